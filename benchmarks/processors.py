"""The flagship with two threads, and as other processors would round: what each run gained against the panel.

    python benchmarks/processors.py                  # six runs of the recipe `negotiation`, one at a time (an hour)
    python benchmarks/processors.py --folder runs/p  # a stopped run goes on, too

Stated before the first run: seeds 10 and 11, which were judged with one thread and AVX-512 already and were not used
for tuning. A run holds where it gains 1.0 or more and the interval of its gain over deals lies above 0, as in the
recipe's own verdict; the claim holds where all six do. Writes results/processors.json after every run, and goes on
from there.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from panel import interval_text, run_of

from arena.doctor import environment

PLACE = Path(__file__).parent / "results" / "processors.json"
PROCESSORS = {
    "SSE4.1": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "native, 2 threads": {"OMP_NUM_THREADS": "2"},
}
SEEDS = (10, 11)
LEAST = 1.0
"""Points that a run has to gain."""
COMMAND = "python benchmarks/processors.py"


def play(name: str, seed: int, run: Path) -> dict[str, Any]:
    """One run, or the rest of it: what it gained, and in which precision."""
    threads = PROCESSORS[name].get("OMP_NUM_THREADS", "1")
    words = ["run", "selfplay", "--recipe", "negotiation", "--seed", str(seed), "--out", str(run)]
    words += ["--set", f"threads={threads}", "--set", "checkpoint.every=1000", "--json"]
    if (run / "config.yaml").exists():  # a stopped call began it
        words = ["resume", str(run), "--json"]
    env = os.environ | {"OMP_NUM_THREADS": threads} | PROCESSORS[name]
    done = subprocess.run([sys.executable, "-P", "-m", "arena", *words], capture_output=True, text=True, env=env)
    if done.returncode:
        raise SystemExit(f"{name}, seed {seed}: {done.stderr[-2000:]}")
    gained = run_of(run, LEAST)
    assert gained, f"{run}: the panel did not judge it twice"
    config = (run / "config.yaml").read_text()
    return gained | {"arm": name, "seed": seed, "machine": environment(), "config": config}


def table(runs: list[dict[str, Any]]) -> list[str]:
    """A row for each run, as Markdown."""
    rows = ["| processor | seed | before | after | difference | holds |", "|---|---|---|---|---|---|"]
    for run in runs:
        figures = [interval_text(run["payoff"][name]) for name in ("before", "after", "difference")]
        rows.append(f"| {run['arm']} | {run['seed']} | {' | '.join(figures)} | {'yes' if run['success'] else 'no'} |")
    return rows


def main() -> None:
    """Run what is not kept yet, keep the numbers after every run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="keep the runs here")
    options = parser.parse_args()
    runs: list[dict[str, Any]] = json.loads(PLACE.read_text())["runs"] if PLACE.exists() else []
    done = {(run["arm"], run["seed"]) for run in runs}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for seed, name in [(seed, name) for seed in SEEDS for name in PROCESSORS if (name, seed) not in done]:
            runs.append(play(name, seed, folder / f"{name.split(',')[0]}-{seed}"))
            kept = {"command": COMMAND, "least": LEAST, "processors": PROCESSORS, "runs": runs}
            PLACE.write_text(json.dumps(kept, indent=1) + "\n")
    print(*table(runs), sep="\n")


if __name__ == "__main__":
    main()
