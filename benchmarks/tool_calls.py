"""Overlap of tool calls between matches, by the delay of the tool.

    python benchmarks/tool_calls.py

In each match of nim the first seat calls a tool before each of its acts. Matches run one at a time, then together. Both
give the same transcripts, or the benchmark fails.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

from agents.players.scripted import check_scripted
from arena.play.contenders import ScriptedContender, play_one
from arena.play.making import SEAT_TOOLS, make_game
from arena.play.match import Limits, MatchPlan
from arena.play.orchestrator import play_all
from arena.records import MatchRecord, Seating
from games.contracts import Game, MatchId, View

OWN = Path(__file__).resolve()
MATCHES = 24
DELAYS = (50, 200, 500)
"""Delays in milliseconds."""


async def later(text: str, milliseconds: int) -> str:
    """Return the text after some time."""
    await asyncio.sleep(milliseconds / 1000)
    return text


def caller(game: Game, seed: int, milliseconds: int) -> Any:
    """Return a player that calls the tool before each act."""

    def answer(view: View) -> str:
        if any(message.sender == "tool" for message in view.messages):
            assert view.legal
            return view.legal[seed % len(view.legal)]
        return f"later(text='{view.turn}', milliseconds={milliseconds})"

    return answer


def caller_50(game: Game, seed: int) -> Any:
    """Return a player whose calls take 50 ms."""
    return caller(game, seed, 50)


def caller_200(game: Game, seed: int) -> Any:
    """Return a player whose calls take 200 ms."""
    return caller(game, seed, 200)


def caller_500(game: Game, seed: int) -> Any:
    """Return a player whose calls take 500 ms."""
    return caller(game, seed, 500)


async def play(delay: int, in_flight: int) -> tuple[float, list[MatchRecord]]:
    """Play all matches and return the seconds and the records."""
    options = {SEAT_TOOLS: {"first": [f"{OWN}:later"]}}
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


def main() -> None:
    """Print seconds by delay, one match at a time and together, and their ratio."""
    print("delay    one at a time  together  ratio  calls")
    for delay in DELAYS:
        slow, first = asyncio.run(play(delay, 1))
        fast, second = asyncio.run(play(delay, MATCHES))
        texts = [[[(turn.seat, turn.raw) for turn in record.turns] for record in each] for each in (first, second)]
        assert texts[0] == texts[1], "the transcripts differ"
        calls = sum(int(record.report["seat_tool_calls"]) for record in first)
        print(f"{delay:3} ms   {slow:10.1f} s  {fast:6.1f} s  {slow / fast:5.1f}  {calls}")


if __name__ == "__main__":
    main()
