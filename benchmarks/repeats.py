"""Stored studies against today's code: does a training run still end where its record says?

    python benchmarks/repeats.py                   # one run of each study of a nano recipe
    python benchmarks/repeats.py maze-nano         # of the named studies only
    python benchmarks/repeats.py maze-nano --set learn.lr=1e-4

Repeats the first run of each study's first arm, with the recorded CPU instruction set, and compares its curves bit by
bit. Adds the studies to results/repeats.json.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from reporting import RESULTS, write_result

INSTRUCTION_SETS = {
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "AVX512": {},
}
"""Variables with which a processor with AVX-512 computes as one with the recorded instruction set."""


def repeat_first_run(record: dict[str, Any], folder: Path, settings: list[str]) -> dict[str, Any]:
    """Return the record of the repeated run, read from `folder` if it has been repeated before."""
    first = record["runs"][0]
    changes = [part for setting in ["study.seeds=1", *settings] for part in ("--set", setting)]
    command = [
        *(sys.executable, "-m", "arena", "study", record["name"], "--arms", first["arm"], "--seeds", "1"),
        *("--first-seed", str(first["seed"]), "--jobs", "1", "--out", str(folder), *changes),
    ]
    environment = os.environ | INSTRUCTION_SETS[record["machine"]["instruction_set"]]
    subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads((folder / "study.json").read_text())["runs"][0])


def compare_runs(recorded: dict[str, Any], repeated: dict[str, Any]) -> dict[str, Any]:
    """Return the curves of both runs, and whether all recorded curves repeat bit by bit."""
    names = recorded["also"].keys() & repeated["also"].keys()
    repeats = recorded["curve"] == repeated["curve"] and all(recorded["also"][k] == repeated["also"][k] for k in names)
    return {"recorded": recorded["curve"], "repeated": repeated["curve"], "repeats": repeats}


def main() -> None:
    """Repeat a run of each study, two at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", metavar="STUDY")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="PATH=VALUE")
    parser.add_argument("--runs", type=Path, default=Path("runs/repeats"), help="folder of the runs")
    args = parser.parse_args()
    records = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("study-*.json"))]
    records = [r for r in records if (r["name"] in args.studies if args.studies else r["name"].endswith("-nano"))]
    path = RESULTS / "repeats.json"
    rows = json.loads(path.read_text())["studies"] if path.exists() else {}

    def repeat(record: dict[str, Any]) -> dict[str, Any]:
        try:
            run = repeat_first_run(record, args.runs / record["name"], args.settings)
        except subprocess.CalledProcessError as error:
            return {"failed": error.stderr.strip().splitlines()[-1]}
        row = {"arm": run["arm"], "seed": run["seed"], "settings": args.settings}
        return row | compare_runs(record["runs"][0], run)

    with ThreadPoolExecutor(2) as pool:
        for record, row in zip(records, pool.map(repeat, records), strict=True):
            print(record["name"], row, flush=True)
            rows[record["name"]] = row
            write_result("repeats", {"command": "python benchmarks/repeats.py", "studies": dict(sorted(rows.items()))})


if __name__ == "__main__":
    main()
