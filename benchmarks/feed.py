"""Cost of the turn feed to a run: matches of players without a model, 1,000 in flight, with the feed and without.

    python benchmarks/feed.py            # half a minute on one quiet core
    python benchmarks/feed.py --quick    # one small round: does it still work?

The worst case: a turn takes 30 microseconds here, and milliseconds where a model takes it. Both arms keep records and
the log, as a run does; they take turns within a round, and what is compared is the process's own CPU time, the best of
the rounds, so that a busy machine hits both alike. `followed` is the share of the matches that the feed followed within
its hundredth of the time. Writes results/feed.json.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from orchestrator import plans_for

import games
from agents.players.model import ScriptedPlayer
from agents.players.scripted import make_scripted
from arena.doctor import environment
from arena.play.feed import Feed
from arena.play.match import Limits, MatchPlan, play_match
from arena.play.orchestrator import play_all
from arena.records import MatchRecord, Turn
from arena.store.matchlog import MatchBatch, MatchLog
from games.contracts import Message

RESULTS = Path(__file__).parent / "results"
GAMES = {"connect_four": 1500}
"""Matches of an arm in a round."""
IN_FLIGHT, TARGET = 1000, 0.03


class Followed:
    """The feed as a run has it, and how many matches it followed."""

    def __init__(self, run: Path, fed: bool) -> None:
        self.feed, self.seen = Feed(run) if fed else None, set[str]()

    def turn(self, plan: MatchPlan, turn: Turn) -> None:
        """As `arena.play.watchers.Logged`."""
        if self.feed:
            self.feed.turn(plan, turn)
            if turn.index == 0 and plan.id in self.feed._followed:
                self.seen.add(plan.id)


def played(game: str, matches: int, fed: bool) -> tuple[float, float]:
    """Turns per CPU second, and the share of the matches that were followed."""
    turns = 0
    with tempfile.TemporaryDirectory() as folder:
        watcher, batch = Followed(Path(folder), fed), MatchBatch(MatchLog(Path(folder) / "log"))

        async def play(plan: MatchPlan) -> MatchRecord:
            env = games.make(game)
            players = {
                s: ScriptedPlayer(make_scripted("random", 2 * plan.seed + i, env)) for i, s in enumerate(plan.seats)
            }
            return await play_match(plan, env, players, Limits(), on_turn=watcher.turn)

        def ended(record: MatchRecord) -> None:
            nonlocal turns
            turns += len(record.turns)
            if watcher.feed:
                watcher.feed.ended(record.id)
            batch.add(record)

        cpu = time.process_time()
        asyncio.run(play_all(plans_for(game, matches), play, ended, IN_FLIGHT))
        batch.flush()
        if watcher.feed:
            watcher.feed.close()
        return turns / (time.process_time() - cpu), len(watcher.seen) / matches


def calls(follow: bool) -> float:
    """Microseconds that the feed takes for a turn, writing included, of a match that it follows, or does not."""
    turn, spent = _turn(), 0.0

    async def feed_all(folder: str) -> float:
        feed, plans = Feed(Path(folder)), plans_for("negotiation", 100)
        feed._followed = {plan.id: 1 for plan in plans} if follow else {"another": 1}
        turns = [turn._replace(index=k) for k in range(1, 51)]
        begun = time.process_time()
        for plan in plans:
            for one in turns:
                feed.turn(plan, one)
        feed._write()
        spent = time.process_time() - begun
        feed.close()
        return spent

    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            took = asyncio.run(feed_all(folder))
            spent = min(spent or took, took)
    return 1e6 * spent / 5000


def _turn() -> Turn:
    """A turn of a negotiation with a few words of talk."""
    said = "OFFER 1 0 2 | I keep the books and a hat, you have the rest."
    seen = (Message.of("responder", "OFFER 2 1 0 | that is my last word"), Message.of("referee", "Your turn."))
    return Turn(0, "opener", "opener", "shared", 3, seen, said, said, "", said, True, {"deal": 0.5}, "stop", 24, 0.1)


def main() -> None:
    """Measure, write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    rounds, result = 1 if chosen.quick else 8, dict[str, Any]()
    for game, matches in GAMES.items():
        matches = matches // 20 if chosen.quick else matches
        for fed in (False, True):
            played(game, matches // 10, fed)  # unmeasured: modules are imported
        pairs = []
        for k in range(rounds):
            arms = {fed: played(game, matches, fed) for fed in ((False, True) if k % 2 else (True, False))}
            pairs.append((arms[False][0], *arms[True]))
        best = {"without": max(p[0] for p in pairs), "with": max(p[1] for p in pairs)}
        result[game] = {
            "turns_per_cpu_second": best, "slower": round(best["without"] / best["with"] - 1, 4),
            "rounds": pairs, "followed": round(median(p[2] for p in pairs), 3),
        }  # fmt: skip
    result["microseconds_of_a_turn"] = {
        name: round(calls(follow), 2) for name, follow in (("followed", True), ("not followed", False))
    }
    result |= {
        "in_flight": IN_FLIGHT, "target": TARGET, "command": " ".join(["python", "benchmarks/feed.py", *sys.argv[1:]]),
        "seed": "matches are dealt by their number", "machine": environment(), "load_at_end": os.getloadavg(),
    }  # fmt: skip
    if not chosen.quick:
        (RESULTS / "feed.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: result[name] for name in (*GAMES, "microseconds_of_a_turn")}, indent=1))


if __name__ == "__main__":
    main()
