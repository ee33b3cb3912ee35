"""Turns, trajectories and match records whose fields have defaults."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from arena.records import MatchRecord, Seating, Trajectory, Turn
from games.contracts import MatchId

STARTED = "2026-01-01T00:00:00+00:00"


def make_turn(index: int, rewards: Mapping[str, float], seat: str = "opener", **changes: Any) -> Turn:
    """Return a valid turn of two tokens, with changes. Its role is called like its seat."""
    turn = Turn(
        index=index, seat=seat, role=seat, policy="shared", version=1, messages=(), raw="x", public="", private="",
        action="x", valid=True, rewards=rewards, finish="stop", tokens=2, seconds=0.0,
    )  # fmt: skip
    return turn._replace(**changes)


def wrap_turns(turns: Sequence[Turn], **changes: Any) -> Trajectory:
    """Return a trained player's trajectory of these turns without streams, with changes."""
    first = turns[0] if turns else make_turn(0, {})
    trajectory = Trajectory(
        match="m", game="g", seat=first.seat, role=first.role, policy=first.policy, version=first.version,
        trained=True, turns=tuple(turns), streams=(),
    )  # fmt: skip
    return replace(trajectory, **changes)


def make_match_record(**changes: Any) -> MatchRecord:
    """Return the record of a finished match of one trained opener without turns, with changes."""
    record = MatchRecord(
        identity=MatchId(1, 0), game="g", options={}, seed=0,
        seats={"opener": Seating("opener", "shared", 1, True, "model")}, status="finished", reason="", payoffs={},
        report={}, turns=(), streams={}, started=STARTED, seconds=1.0,
    )  # fmt: skip
    return replace(record, **changes)
