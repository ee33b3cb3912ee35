"""Stored studies against today's code: does a training run still end where its record says?

    python benchmarks/repeats.py                   # one run of each study of a nano recipe
    python benchmarks/repeats.py maze-nano         # of the named studies only

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
from tempfile import TemporaryDirectory
from typing import Any

from reporting import RESULTS, write_result

INSTRUCTION_SETS = {
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "AVX512": {},
}
"""Variables with which a processor with AVX-512 computes as one with the recorded instruction set."""


def repeat_first_run(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record of the repeated run. Raises CalledProcessError if it fails."""
    first = record["runs"][0]
    environment = os.environ | INSTRUCTION_SETS[record["machine"]["instruction_set"]]
    with TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "arena", "study", record["name"], "--arms", first["arm"], "--seeds", "1"),
            *("--first-seed", str(first["seed"]), "--set", "study.seeds=1", "--jobs", "1", "--out", f"{folder}/study"),
        ]
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return dict(json.loads(Path(folder, "study", "study.json").read_text())["runs"][0])


def compare_runs(recorded: dict[str, Any], repeated: dict[str, Any]) -> dict[str, Any]:
    """Return both runs' curves of the study's figure, and whether all curves of both repeat bit by bit."""
    names = recorded["also"].keys() & repeated["also"].keys()
    repeats = recorded["curve"] == repeated["curve"] and all(recorded["also"][k] == repeated["also"][k] for k in names)
    return {"recorded": recorded["curve"], "repeated": repeated["curve"], "repeats": repeats}


def read_records() -> dict[str, dict[str, Any]]:
    """Return the stored studies by name that state an instruction set."""
    records = (json.loads(path.read_text()) for path in sorted(RESULTS.glob("study-*.json")))
    return {record["name"]: record for record in records if record.get("machine", {}).get("instruction_set")}


def main() -> None:
    """Repeat a run of each study, two at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = read_records()
    parser.add_argument("studies", nargs="*", metavar="STUDY")
    names = parser.parse_args().studies or [name for name in known if name.endswith("-nano")]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no stored study with an instruction set: {', '.join(unknown)}")
    path = RESULTS / "repeats.json"
    rows = json.loads(path.read_text())["studies"] if path.exists() else {}

    def repeat(name: str) -> dict[str, Any] | str:
        first = known[name]["runs"][0]
        try:
            run = repeat_first_run(known[name])
        except subprocess.CalledProcessError as error:
            return str(error.stderr).strip().splitlines()[-1]
        return {"arm": first["arm"], "seed": first["seed"]} | compare_runs(first, run)

    with ThreadPoolExecutor(2) as pool:
        for name, row in zip(names, pool.map(repeat, names), strict=True):
            print(f"{name}: {row if isinstance(row, str) else row['repeats']}", flush=True)
            if not isinstance(row, str):
                rows[name] = row
                studies = dict(sorted(rows.items()))
                write_result("repeats", {"command": "python benchmarks/repeats.py", "studies": studies})


if __name__ == "__main__":
    main()
