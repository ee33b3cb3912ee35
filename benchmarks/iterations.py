"""Time of an iteration, and of a match without a model, beside another checkout that takes turns with this one.

    python benchmarks/iterations.py --before CHECKOUT           # minutes
    python benchmarks/iterations.py --before CHECKOUT --quick   # does it still work?

Runs of a nano recipe and of the flagship, each in a process of its own with one thread, in turns; seconds of play and
learning from the metrics, the first iteration left out. Then orchestrator.py's matches of random players, in two
processes that take turns every half a second, by their own CPU time. Writes results/iterations.json: medians, and the
ratio of this checkout to the other round by round.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from neighbour import benchmarks_of

from arena.doctor import environment

HERE = Path(__file__).resolve().parent
RUNS = {
    "negotiation-nano": ["iterations=8", "policies.shared.imitate.matches=64", "policies.shared.imitate.minibatches=8"],
    "negotiation": [
        *("iterations=4", "play.matches=16", "evaluate=null", "precision=bf16", "credit={select: [], estimator: mars}"),
        *("policies.shared.imitate.matches=16", "policies.shared.imitate.minibatches=3"),
    ],
}


def iteration_of(checkout: Path, recipe: str) -> dict[str, float]:
    """Median seconds of play and learning in an iteration, and of learning alone."""
    with TemporaryDirectory() as folder:
        settings = [part for setting in ("threads=1", *RUNS[recipe]) for part in ("--set", setting)]
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "arena", "run", "selfplay", "--recipe", recipe, *settings, "--out", str(out)]
        environ = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=checkout, env=environ, check=True, capture_output=True)
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    spent = [row["seconds"] for row in rows[1:]]
    return {"iteration": median(s["play"] + s["learn"] for s in spent), "learning": median(s["learn"] for s in spent)}


MATCHES = {"kuhn_poker": 400, "negotiation": 200}
ARMS = ("records off", "records", "records and log, 1000 in flight")
SERVE = """
import json, sys, time
import orchestrator
arms = {}
for line in sys.stdin:
    game, arm, matches = json.loads(line)
    work = arms.setdefault((game, arm), orchestrator.arms_of(game, matches)[arm])
    began = time.process_time()
    work()
    print(json.dumps(time.process_time() - began), flush=True)
"""


class Child:
    """A process that plays a checkout's matches as its own benchmark does."""

    def __init__(self, checkout: Path) -> None:
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(checkout), str(benchmarks_of(checkout))]),
            "OMP_NUM_THREADS": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE], cwd=checkout, env=environ, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def seconds(self, game: str, arm: str) -> float:
        """CPU time of an arm's matches."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([game, arm, MATCHES[game]]) + "\n")
        self.process.stdin.flush()
        return float(json.loads(self.process.stdout.readline()))


def matches_beside(here: Path, before: Path, rounds: int) -> dict[str, Any]:
    """Every arm of every game in turns, round by round; the first round only warms up."""
    children = {"now": Child(here), "before": Child(before)}
    found: dict[str, Any] = {}
    try:
        for game, arm in ((game, arm) for game in MATCHES for arm in ARMS):
            seconds: dict[str, list[float]] = {name: [] for name in children}
            for _ in range(1 + rounds):
                for name, child in children.items():
                    seconds[name].append(child.seconds(game, arm))
            found[f"{game}, {arm}"] = _ratio({name: each[1:] for name, each in seconds.items()})
    finally:
        for child in children.values():
            child.process.kill()
    return found


def _ratio(seconds: dict[str, list[float]]) -> dict[str, Any]:
    each = [now / then for now, then in zip(seconds["now"], seconds["before"], strict=True)]
    return {
        "seconds": {name: median(values) for name, values in seconds.items()},
        "ratios": each,
        "ratio": median(each),
    }


def compare(here: Path, before: Path, recipe: str, rounds: int) -> dict[str, Any]:
    """Both checkouts in turns."""
    spent: dict[str, list[dict[str, float]]] = {"now": [], "before": []}
    for _ in range(rounds):
        for name, checkout in (("now", here), ("before", before)):
            spent[name].append(iteration_of(checkout, recipe))
    parts = {part: {name: [one[part] for one in each] for name, each in spent.items()} for part in spent["now"][0]}
    return {f"{recipe}, {part}": _ratio(seconds) for part, seconds in parts.items()}


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, default=HERE.parent, help="Another checkout of Arena.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--matches", action="store_true", help="Matches alone; the iterations' figures stay.")
    options = parser.parse_args()
    here, before, results = HERE.parent, options.before.resolve(), HERE / "results" / "iterations.json"
    rounds, recipes = (1, ["negotiation-nano"]) if options.quick else (3, list(RUNS))
    found: dict[str, Any] = {}
    for recipe in [] if options.matches else recipes:
        found |= compare(here, before, recipe, rounds)
    found |= matches_beside(here, before, 1 if options.quick else 25)
    for what, row in found.items():
        now, then = row["seconds"]["now"], row["seconds"]["before"]
        print(f"{what}: {now:.2f} s, before {then:.2f} s, ratio {row['ratio']:.3f}")
    if not options.quick:
        command = ["benchmarks/iterations.py", "--before", "CHECKOUT"]
        about = {"environment": environment() | {"command": command}}
        kept = json.loads(results.read_text())["beside"] if options.matches else {}
        results.write_text(json.dumps(about | {"beside": kept | found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
