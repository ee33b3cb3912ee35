"""Overlap of tool calls between matches, by the tool's delay and its limit of concurrent calls.

    python benchmarks/tool_calls.py [--quick]

In each match of nim, the first seat calls a tool before each of its acts. Matches run one at a time, then together. The
benchmark fails if the transcripts differ. Writes results/tool-calls.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

from agents.players.scripted import check_scripted
from arena.doctor import describe_environment
from arena.play.contenders import ScriptedContender, play_one
from arena.play.making import SEAT_TOOLS, make_game
from arena.play.match import Limits, MatchPlan
from arena.play.orchestrator import play_all
from arena.records import MatchRecord, Seating
from games.contracts import Game, MatchId, View

OWN = Path(__file__).resolve()
MATCHES = 24
DELAYS = (50, 200, 500)
"""Delays of the tool in milliseconds."""
LIMITS = (8, 64)
"""Maximum concurrent calls of the tool. 8 is the default."""
RESULT = OWN.parent / "results" / "tool-calls.json"


async def later(text: str, milliseconds: int) -> str:
    """Wait for `milliseconds`, then return the text. This is the tool."""
    await asyncio.sleep(milliseconds / 1000)
    return text


def make_caller(game: Game, seed: int, milliseconds: int) -> Any:
    """Return a player that calls the tool before each act."""

    def answer(view: View) -> str:
        if any(message.sender == "tool" for message in view.messages):
            assert view.legal
            return view.legal[seed % len(view.legal)]
        return f"later(text='{view.turn}', milliseconds={milliseconds})"

    return answer


def caller_50(game: Game, seed: int) -> Any:
    """Return a player whose calls take 50 ms."""
    return make_caller(game, seed, 50)


def caller_200(game: Game, seed: int) -> Any:
    """Return a player whose calls take 200 ms."""
    return make_caller(game, seed, 200)


def caller_500(game: Game, seed: int) -> Any:
    """Return a player whose calls take 500 ms."""
    return make_caller(game, seed, 500)


async def play(delay: int, at_once: int, in_flight: int) -> tuple[float, list[MatchRecord]]:
    """Play all matches, at most `in_flight` together. Returns the seconds and the records."""
    options = {SEAT_TOOLS: {"first": [{"function": f"{OWN}:later", "at_once": at_once}]}}
    scripts = {"first": f"{OWN}:caller_{delay}", "second": "minimax"}
    game = make_game("nim", options)
    for seat, script in scripts.items():
        check_scripted(script, game, seat)
    seats = {seat: Seating("brain", script, 0, False, "brain") for seat, script in scripts.items()}
    plans = [
        MatchPlan(identity=MatchId(0, i), game="nim", options=options, seed=i, seats=seats) for i in range(MATCHES)
    ]
    one = partial(play_one, contenders={s: ScriptedContender(name) for s, name in scripts.items()}, seed=0,
                  limits=Limits())  # fmt: skip
    start = time.perf_counter()
    records = await play_all(plans, one, lambda record: None, in_flight)
    return time.perf_counter() - start, records


def measure_overlap(delay: int, at_once: int) -> dict[str, float]:
    """Return the seconds of matches one at a time (`alone`) and `together`, their ratio, and the number of calls."""
    seconds_alone, first = asyncio.run(play(delay, at_once, 1))
    seconds_together, second = asyncio.run(play(delay, at_once, MATCHES))
    texts = [[[(turn.seat, turn.raw) for turn in record.turns] for record in each] for each in (first, second)]
    assert texts[0] == texts[1], "the transcripts differ"
    calls = sum(int(record.report["seat_tool_calls"]) for record in first)
    return {
        "delay": delay,
        "at_once": at_once,
        "alone": seconds_alone,
        "together": seconds_together,
        "ratio": seconds_alone / seconds_together,
        "calls": calls,
    }


def main() -> None:
    """Measure each delay and limit, print the rows and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    is_quick, rows = parser.parse_args().quick, []
    print("delay    limit  one at a time  together  ratio  calls")
    for delay in DELAYS[: 1 if is_quick else None]:
        for at_once in LIMITS:
            rows.append(row := measure_overlap(delay, at_once))
            print(
                f"{delay:3} ms   {at_once:5}  {row['alone']:11.1f} s  {row['together']:6.1f} s  {row['ratio']:5.1f}  "
                f"{row['calls']:.0f}",
                flush=True,
            )
    if not is_quick:
        result = {"command": "python benchmarks/tool_calls.py", "machine": describe_environment(), "rows": rows}
        RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
