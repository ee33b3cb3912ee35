"""Cost of the match log beside that of another checkout: bytes a turn, matches a second, reading it back.

    git worktree add ../before 1f8d4a7
    python benchmarks/log_cost.py --before ../before   # four minutes on two cores

Both checkouts play the same two runs through the command line, small nano policies whose log is the default one and of
the same matches, and the bytes of their sealed files are counted. Then, in turn, each in a process of its own, both
play matches of random players into a log and seal it, and read the runs' logs as rows, as records and by columns; of
each round the ratio of the least processor time, here / before, is kept. Writes results/log_cost.json.
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

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
GOAL = 1.05
RUNS = {
    "as a recipe has it": ["play.matches=64"],
    "many matches, talk": ["play.matches=1024", "game.options.talk=true"],
}
"""By name: what is changed in negotiation-nano, of one iteration without a warm start."""
ALIKE = ["iterations=1", "policies.shared.imitate=null", "play.limits.turns=12"]
ROUND = """
import asyncio, json, sys, tempfile, time
from pathlib import Path
import games
from arena.play.match import Limits, MatchPlan, play_match
from arena.play.orchestrator import play_all
from arena.records import MatchRecord, Seating
from arena.store.matchlog import MatchBatch, MatchLog
from arena.store.reader import RunReader

try:
    from agents.players.model import ScriptedPlayer
    from agents.players.scripted import make_scripted
except ImportError:  # names of before
    from agents.players.brains import make_brain as make_scripted
    from agents.players.model import BrainPlayer as ScriptedPlayer
try:
    from games.contracts import MatchId
    numbered = lambda i: (MatchId(0, i),)
except ImportError:
    numbered = lambda i: (f"0000-{i:04d}", 0)
matches, run = int(sys.argv[1]), sys.argv[2]
seats = {seat: Seating(seat, "random", 0, False, "brain") for seat in games.make("negotiation").seats}
plans = [MatchPlan(*numbered(i), "negotiation", {}, i, seats) for i in range(matches)]


async def play(plan):
    env = games.make(plan.game)
    players = {s: ScriptedPlayer(make_scripted("random", 2 * plan.seed + i, env)) for i, s in enumerate(plan.seats)}
    return await play_match(plan, env, players, Limits())


def logged():
    with tempfile.TemporaryDirectory() as folder:
        log = MatchLog(Path(folder))
        batch = MatchBatch(log)
        asyncio.run(play_all(plans, play, batch.add, 1000))
        batch.flush()
        log.seal(0)


reader = RunReader(run)
columns = ["id", "iteration", "turns.index", "turns.seat", "turns.rewards"]
work = {
    "play, log and seal": logged,
    "read rows": lambda: reader.log.read(1),
    "read rows without streams": lambda: reader.log.read(1, streams=False),
    "read records": lambda: [MatchRecord.from_json(row) for row in reader.log.read(1)],
    "read columns": lambda: [reader.log.table(1, columns) for _ in range(20)],
}
found = {}
for name, do in work.items():
    took = []
    for _ in range(3 if name.startswith("play") else 9):
        begun = time.process_time()
        do()
        took.append(time.process_time() - begun)
    found[name] = min(took)
print(json.dumps(found))
"""


def python(checkout: Path, *arguments: str) -> str:
    """Return what Python prints in a checkout; it must succeed."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=checkout, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{checkout}: {arguments[:4]} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def played(checkout: Path, folder: Path, changes: list[str]) -> dict[str, Any]:
    """One of the runs: how large its sealed log is."""
    layers = [part for setting in (*ALIKE, *changes) for part in ("--set", setting)]
    command = [
        "-m",
        "arena",
        "run",
        "selfplay",
        "--recipe",
        "negotiation-nano",
        *layers,
        "--out",
        str(folder),
        "--json",
    ]
    python(checkout, *command)
    (row,) = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    size = {kind: (folder / "log" / f"0001.{kind}").stat().st_size for kind in ("parquet", "credit.parquet")}
    return {"turns": row["turns"], "bytes": size, "bytes a turn": sum(size.values()) / row["turns"]}


def sizes(checkouts: dict[str, Path], folder: Path) -> dict[str, Any]:
    """Bytes a turn of each run in both checkouts, and their ratio."""
    found: dict[str, Any] = {}
    for i, (name, changes) in enumerate(RUNS.items()):
        arms = {arm: played(checkout, folder / f"{arm}-{i}", changes) for arm, checkout in checkouts.items()}
        if arms["here"]["turns"] != arms["before"]["turns"]:
            raise SystemExit(f"{name}: the two checkouts play other matches: their bytes cannot be compared")
        found[name] = {**arms, "ratio": arms["here"]["bytes a turn"] / arms["before"]["bytes a turn"]}
    return found


def times(checkouts: dict[str, Path], folder: Path, matches: int, rounds: int) -> dict[str, Any]:
    """Seconds of processor time of each kind of work, and the median of the rounds' ratios."""
    seconds: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds):
        order = list(checkouts.items())[:: 1 if number % 2 else -1]
        for arm, checkout in order:
            run = folder / f"{arm}-{len(RUNS) - 1}"
            for name, took in json.loads(python(checkout, "-c", ROUND, str(matches), str(run))).items():
                seconds.setdefault(name, {}).setdefault(arm, []).append(took)
    return {name: _compared(arms, matches if name.startswith("play") else 0) for name, arms in seconds.items()}


def _compared(arms: dict[str, list[float]], matches: int) -> dict[str, Any]:
    ratios = sorted(one / other for one, other in zip(arms["here"], arms["before"], strict=True))
    found: dict[str, Any] = {"ratio": median(ratios), "ratios": [round(ratio, 4) for ratio in ratios]}
    found |= {f"{arm}, seconds": round(median(took), 4) for arm, took in arms.items()}
    return found | ({f"{arm}, matches/s": matches / median(took) for arm, took in arms.items()} if matches else {})


def main() -> None:
    """Compare and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--matches", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    checkouts = {"here": HERE.parent, "before": options.before.resolve()}
    commits = {arm: subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=path, text=True).strip()
               for arm, path in checkouts.items()}  # fmt: skip
    with TemporaryDirectory() as folder:
        found = {"size": sizes(checkouts, Path(folder))}
        found["time"] = times(checkouts, Path(folder), options.matches, options.rounds)
    ratios = {name: round(one["ratio"], 4) for part in found.values() for name, one in part.items()}
    met = {name: ratio <= GOAL for name, ratio in ratios.items()}
    result = {"command": "python benchmarks/log_cost.py --before CHECKOUT", "commits": commits, "goal": GOAL,
              "ratios": ratios, "met": met, **found}  # fmt: skip
    (RESULTS / "log_cost.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({"ratios": ratios, "met": met}, indent=1))


if __name__ == "__main__":
    main()
