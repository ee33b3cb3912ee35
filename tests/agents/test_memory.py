"""Memories as pure functions of the number of exchanges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agents.memory import Memory, plan_restart


@given(st.integers(0, 1000))
def test_full_memory_always_continues(taken: int) -> None:
    assert plan_restart(Memory(), taken) is None


def test_window_continues_until_full_then_restarts_every_turn() -> None:
    assert [plan_restart(Memory(kind="window", turns=2), taken) for taken in range(5)] == [None, None, None, 2, 2]
    assert [plan_restart(Memory(kind="window", turns=0), taken) for taken in range(3)] == [None, 0, 0]


@given(st.integers(0, 20), st.integers(0, 60))
def test_window_shows_exactly_its_last_exchanges(turns: int, taken: int) -> None:
    visible = 0  # exchanges in the stream when the last turn is taken
    for before in range(taken + 1):
        restart = plan_restart(Memory(kind="window", turns=turns), before)
        visible = (visible + 1 if before else 0) if restart is None else restart
    assert visible == min(taken, turns)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "window"}, "add `turns: 4`"),
        ({"kind": "all", "turns": 3}, "memory all has no size"),
        ({"kind": "window", "turns": -1}, "greater than or equal to 0"),
        ({"kind": "window", "turns": True}, "valid integer"),
        ({"kind": "summary"}, "add `context: 2048`"),
        ({"kind": "summary", "context": 100, "turns": 2}, "memory summary has no size in turns"),
        ({"kind": "window", "turns": 2, "context": 100}, "context belong to summaries"),
        ({"kind": "summary", "context": 100, "tokens": 0}, "greater than or equal to 1"),
        ({"kind": "recall"}, "'all', 'window' or 'summary'"),
    ],
)
def test_refuses_invalid_memory(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Memory.model_validate(fields)
