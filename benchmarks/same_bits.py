"""Comparison of runs between two checkouts, by hashes of logs and weights of small runs, one of SmolLM2.

    python benchmarks/same_bits.py                     # only this checkout's hashes
    python benchmarks/same_bits.py --before CHECKOUT   # compare with another checkout, and resume its runs here

All runs go through the command line, so that any two checkouts can be compared. A log's hash leaves out times, and
columns that only one checkout has. With `--before`, this checkout also shows and resumes each run of the other checkout
for one iteration. Writes results/same_bits.json.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
TIME_FIELDS = {"started", "seconds"}
WARM = ["policies.shared.imitate.matches=32", "policies.shared.imitate.minibatches=4"]
SMALL = [
    "play.matches=16",
    "play.in_flight=16",
    "learn.minibatches=2",
    "iterations=3",
    "checkpoint={every: 1, keep: 9}",
]
TWO_TABLES = """tables=[
  {game: {name: kuhn_poker, options: {illegal: end, talk: false}},
   seats: {first: {role: nano_kuhn, policy: shared}, second: {role: nano_kuhn, policy: shared}}, share: 3},
  {game: {name: tic_tac_toe, options: {illegal: end, talk: false}},
   seats: {first: {role: nano_tic_tac_toe, policy: shared}, second: {role: nano_tic_tac_toe, policy: shared}}}]"""
SMOLLM2 = ["iterations=2", "precision=bf16", "threads=1", "evaluate=null", "credit={select: [], estimator: mars}"]
RUNS: dict[str, tuple[str, list[str]]] = {
    "shared": ("kuhn_poker-nano", []),
    "separate": ("negotiation-nano", ["--policies", "separate"]),
    "league": ("tic_tac_toe-nano", ["--set", "play.limits={turns: 20}"]),
    "critic": ("negotiation-nano", ["--set", "credit={estimator: gae_turn, critic: value_head}"]),
    "replay": ("kuhn_poker-nano", ["--set", "play.group=4", "--set", "learn.replay=self_imitation"]),
    "two tables": ("kuhn_poker-nano", ["--set", TWO_TABLES]),
    "branches": (
        "negotiation-nano",
        ["--set", "play.parts=[branches]", "--set", "learn.regularisers={entropy_band: {}}"],
    ),
    "ZeRO": ("negotiation-nano", ["--set", "learn.zero_stage=1", "--set", "learn.epochs=2"]),
    "SmolLM2": ("negotiation", [part for setting in SMOLLM2 for part in ("--set", setting)]),
}
"""Recipes with overrides, by name."""


def run_arena(checkout: Path, *arguments: str) -> str:
    """Run an `arena` command with a checkout's code and return its output. Raises SystemExit if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "arena", *arguments], cwd=checkout, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(checkout)},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(
            f"{checkout}: arena {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-3000:]}"
        )
    return done.stdout


def play_run(checkout: Path, name: str, out: Path) -> None:
    """Run one of `RUNS` with a checkout's code, in a new folder."""
    recipe, changes = RUNS[name]
    layers = [part for setting in (*SMALL, *WARM) for part in ("--set", setting)]
    run_arena(checkout, "run", "selfplay", "--recipe", recipe, *layers, *changes, "--out", str(out), "--json")


def read_log(run: Path) -> pa.Table:
    """Return the match log of a finished run as one table."""
    tables = [pq.read_table(file) for file in sorted((run / "log").glob("????.parquet"))]
    return pa.concat_tables(tables, promote_options="permissive")  # files lack columns that none of their matches use


def hash_log(table: pa.Table, columns: list[str]) -> str:
    """Return a hash of the log's columns without times."""
    rows = [json.dumps(_drop_times(row), sort_keys=True, default=str) for row in table.select(columns).to_pylist()]
    return hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()[:16]


def _drop_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _drop_times(v) for k, v in value.items() if k not in TIME_FIELDS}
    return [_drop_times(item) for item in value] if isinstance(value, list) else value


def hash_weights(run: Path) -> str:
    """Return a hash of all tensors in a run's newest checkpoint, including optimiser and critic."""
    newest = sorted(folder for folder in (run / "checkpoints").iterdir() if folder.name.isdigit())[-1]
    digest = hashlib.sha256()
    for file in sorted(newest.rglob("*.safetensors")):
        digest.update(str(file.relative_to(newest)).encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def compare(here: Path, before: Path | None, folder: Path) -> dict[str, Any]:
    """Return the hashes of all runs and, given another checkout, whether they are equal and its runs resume here."""
    found: dict[str, Any] = {}
    for name in RUNS:
        checkouts = {"now": here} | ({"before": before} if before else {})
        runs = {checkout_name: folder / f"{checkout_name}-{name.replace(' ', '_')}" for checkout_name in checkouts}
        for checkout_name, checkout in checkouts.items():
            play_run(checkout, name, runs[checkout_name])
        logs = {checkout_name: read_log(run) for checkout_name, run in runs.items()}
        columns = [c for c in logs["now"].column_names if all(c in log.column_names for log in logs.values())]
        found[name] = {
            checkout_name: {"log": hash_log(logs[checkout_name], columns), "weights": hash_weights(runs[checkout_name])}
            for checkout_name in runs
        }
        if before:
            found[name]["same"] = found[name]["now"] == found[name]["before"]
            found[name]["old run goes on"] = can_resume(here, runs["before"])
        print(name, found[name], flush=True)
    return found


def can_resume(here: Path, run: Path) -> bool:
    """Return whether another checkout's run, without its last checkpoint, resumes here to the same weights."""
    weights = hash_weights(run)
    newest = sorted(folder for folder in (run / "checkpoints").iterdir() if folder.name.isdigit())[-1]
    (newest / "manifest.json").unlink()  # as if killed before the checkpoint was complete
    run_arena(here, "show", str(run))
    run_arena(here, "resume", str(run), "--json")
    return hash_weights(run) == weights


def main() -> None:
    """Compare and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        found = compare(HERE.parent, options.before and options.before.resolve(), Path(folder))
    if options.before:
        same = all(run["same"] and run["old run goes on"] for run in found.values())
        text = json.dumps({"command": "python benchmarks/same_bits.py --before CHECKOUT", "runs": found}, indent=1)
        (RESULTS / "same_bits.json").write_text(text + "\n")
        print("the same, and old runs go on" if same else "NOT the same")
        raise SystemExit(not same)


if __name__ == "__main__":
    main()
