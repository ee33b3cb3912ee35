"""A hundred matches with failing MCP servers: each continues or fails with a reason, and no process is left."""

import asyncio
import sys
import time
from functools import partial
from typing import Any

import pytest

from arena.play.contenders import ScriptedContender, play_one
from arena.play.making import SEAT_TOOLS, make_game
from arena.play.match import Limits, MatchPlan
from arena.play.orchestrator import play_all
from arena.records import Seating
from games.contracts import Game, MatchId, View
from simulators.toolbox import mcp_server
from tests.factories.mcp_children import SERVER, count_servers

ANSWERS = {
    "": "fine", "garbage": "fine", "slow": "fine", "stubborn": "fine", "crash": "Error: act failed: its server ended",
    "hang": "Error: act took too long.", "huge": "xxx", "malformed": "Error: ",
    "error": "Error: out of order", "bomb": "Error: ",
}  # fmt: skip
"""Start of the text that a player reads after its call, for each fault."""
AT_START = {
    "crash_at_start": "does not start: no shop today", "silent": "no answer in",
    "schema": "its list of tools is malformed",
}  # fmt: skip
SCRIPTS = {"first": f"{__file__}:caller", "second": "minimax"}
MATCHES = 100


def caller(game: Game, seed: int) -> Any:
    """Return a player that calls the tool once before each act."""

    def answer(view: View) -> str:
        is_answered = any(message.sender == "tool" for message in view.messages)
        return view.legal[seed % len(view.legal)] if is_answered and view.legal else "act()"

    return answer


def make_plan(index: int, fault: str) -> MatchPlan:
    source = {"mcp": f"{sys.executable} {SERVER} {fault}".strip(), "timeout": 1.0 if fault == "hang" else 60.0}
    seats = {seat: Seating("brain", script, 0, False, "brain") for seat, script in SCRIPTS.items()}
    options = {SEAT_TOOLS: {"first": [source]}}
    return MatchPlan(identity=MatchId(0, index), game="nim", options=options, seed=index, seats=seats)


def has_no_server() -> bool:
    """Wait at most 30 s for all servers to end; return whether they have."""
    deadline = time.monotonic() + 30
    while count_servers() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not count_servers()


@pytest.mark.slow
def test_faults_harm_no_other_match_and_leave_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "START_SECONDS", 30.0)
    faults = [list(ANSWERS)[index % len(ANSWERS)] for index in range(MATCHES)]
    plans = [make_plan(index, fault) for index, fault in enumerate(faults)]
    contenders = {seat: ScriptedContender(script) for seat, script in SCRIPTS.items()}
    play = partial(play_one, contenders=contenders, seed=0, limits=Limits(turn_seconds=120.0))
    records = asyncio.run(play_all(plans, play, lambda record: None, 24))
    assert len(records) == MATCHES
    for record, fault in zip(sorted(records, key=lambda record: record.seed), faults, strict=True):
        assert record.status == "finished", (fault, record.reason)
        first_result = next(m.text for turn in record.turns for m in turn.messages if m.sender == "tool")
        assert first_result.startswith(ANSWERS[fault]) and len(first_result) < 3000, (fault, first_result)
    assert has_no_server()


@pytest.mark.parametrize("fault", AT_START)
def test_unusable_server_is_refused_before_the_first_match(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "START_SECONDS", 1.0 if fault == "silent" else 20.0)
    with pytest.raises(Exception, match=AT_START[fault]) as error:
        make_game("nim", make_plan(0, fault).options)
    assert "\n" not in str(error.value) and has_no_server()
