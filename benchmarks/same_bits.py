"""Does a change of the code change what a run does? Ten small runs, one of SmolLM2: their logs and weights as hashes.

    python benchmarks/same_bits.py                     # this checkout: the hashes alone
    python benchmarks/same_bits.py --before CHECKOUT   # another one's beside them; and its runs, resumed here

Everything goes through the command line, so that any two checkouts can be compared. A log's hash leaves out what the
clock says, and columns that only one of the two has. With `--before`, each run of the older checkout is also shown and
taken up again by this one, for one iteration more. Writes results/same_bits.json.
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
CLOCK = {"started", "seconds"}
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
"""By name: a recipe, and what is changed in it."""


def arena(checkout: Path, *arguments: str) -> str:
    """Return what a checkout's command prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "arena", *arguments], cwd=checkout, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(checkout)},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(
            f"{checkout}: arena {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-3000:]}"
        )
    return done.stdout


def play(checkout: Path, name: str, out: Path) -> None:
    """One of the runs, in a folder that does not exist yet."""
    recipe, changes = RUNS[name]
    layers = [part for setting in (*SMALL, *WARM) for part in ("--set", setting)]
    arena(checkout, "run", "selfplay", "--recipe", recipe, *layers, *changes, "--out", str(out), "--json")


def log_of(run: Path) -> pa.Table:
    """The match log of a finished run."""
    tables = [pq.read_table(file) for file in sorted((run / "log").glob("????.parquet"))]
    return pa.concat_tables(tables, promote_options="permissive")  # a file lacks what none of its matches uses


def log_hash(table: pa.Table, columns: list[str]) -> str:
    """Return a hash of what happened, whenever it did."""
    rows = [json.dumps(_timeless(row), sort_keys=True, default=str) for row in table.select(columns).to_pylist()]
    return hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()[:16]


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in CLOCK}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def weights_hash(run: Path) -> str:
    """Return a hash of all tensors in the newest checkpoint, optimiser and critic included."""
    newest = sorted(folder for folder in (run / "checkpoints").iterdir() if folder.name.isdigit())[-1]
    found = hashlib.sha256()
    for file in sorted(newest.rglob("*.safetensors")):
        found.update(str(file.relative_to(newest)).encode() + file.read_bytes())
    return found.hexdigest()[:16]


def compare(here: Path, before: Path | None, folder: Path) -> dict[str, Any]:
    """The hashes of all runs."""
    found: dict[str, Any] = {}
    for name in RUNS:
        checkouts = {"now": here} | ({"before": before} if before else {})
        runs = {which: folder / f"{which}-{name.replace(' ', '_')}" for which in checkouts}
        for which, checkout in checkouts.items():
            play(checkout, name, runs[which])
        logs = {which: log_of(run) for which, run in runs.items()}
        columns = [c for c in logs["now"].column_names if all(c in log.column_names for log in logs.values())]
        found[name] = {
            which: {"log": log_hash(logs[which], columns), "weights": weights_hash(runs[which])} for which in runs
        }
        if before:
            found[name]["same"] = found[name]["now"] == found[name]["before"]
            found[name]["old run goes on"] = goes_on(here, runs["before"])
        print(name, found[name], flush=True)
    return found


def goes_on(here: Path, run: Path) -> bool:
    """Return True if the older checkout's run opens, shows and is resumed here, where its last iteration was lost."""
    weights = weights_hash(run)
    newest = sorted(folder for folder in (run / "checkpoints").iterdir() if folder.name.isdigit())[-1]
    (newest / "manifest.json").unlink()  # as if killed before the checkpoint was whole
    arena(here, "show", str(run))
    arena(here, "resume", str(run), "--json")
    return weights_hash(run) == weights


def main() -> None:
    """Compare and write it down."""
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
