"""Aggregates: what a token weighs, by hand; padding and order change nothing."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.config.kinds import choose
from arena.learn.aggregates import AGGREGATES

TURNS = np.array([0, 0, 1, 2, 2, 2])
STREAMS = np.array([0, 0, 0, 1, 1, 1])
ALL = np.ones(6, bool)
NAMES = sorted(AGGREGATES)


def weights(name: str, turns: Any = TURNS, streams: Any = STREAMS, learned: Any = ALL) -> np.ndarray:
    settings = {"length": 10} if name == "constant_length" else {}
    return choose("aggregate", name, **settings)(np.asarray(turns), np.asarray(streams), np.asarray(learned))


def test_by_hand() -> None:
    assert weights("token_mean").tolist() == pytest.approx([1 / 6] * 6)
    # three turns of 2, 1 and 3 tokens
    assert weights("turn_mean").tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 9, 1 / 9, 1 / 9])
    # two streams of 3 tokens each
    assert weights("stream_mean").tolist() == pytest.approx([1 / 6] * 6)
    # the first stream's two turns share its half
    assert weights("stream_turn_mean").tolist() == pytest.approx([1 / 8, 1 / 8, 1 / 4, 1 / 6, 1 / 6, 1 / 6])
    # two streams, 10 tokens each by decree
    assert weights("constant_length").tolist() == pytest.approx([1 / 20] * 6)


def test_what_is_out_of_the_loss_weighs_nothing_and_is_not_counted() -> None:
    learned = [True, False, True, False, False, False]  # the second stream has nothing in the loss
    assert weights("token_mean", learned=learned).tolist() == [0.5, 0, 0.5, 0, 0, 0]
    assert weights("turn_mean", learned=learned).tolist() == [0.5, 0, 0.5, 0, 0, 0]
    assert weights("stream_mean", learned=learned).tolist() == [0.5, 0, 0.5, 0, 0, 0]
    assert weights("stream_turn_mean", learned=learned).tolist() == [0.5, 0, 0.5, 0, 0, 0]
    assert weights("constant_length", learned=learned).tolist() == [0.1, 0, 0.1, 0, 0, 0]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_learn_is_no_error(name: str) -> None:
    assert not weights(name, learned=np.zeros(6, bool)).any()
    none = np.zeros(0, int)
    assert weights(name, none, none, none > 0).tolist() == []


def test_two_equally_wrong_answers_of_length_l_and_4l() -> None:
    """Dr. GRPO: a token of the short one weighs 4 times as much in a mean of sequences, the same under a constant."""
    answers = np.repeat([0, 1], [25, 100])
    for name, ratio in (("stream_mean", 4.0), ("turn_mean", 4.0), ("constant_length", 1.0), ("token_mean", 1.0)):
        found = weights(name, answers, answers, answers >= 0)
        assert found[0] / found[-1] == pytest.approx(ratio), name


@st.composite
def steps(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The turns, streams and learned of one optimiser step."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    turns = np.repeat(np.arange(len(sizes)), sizes)
    owner = np.sort(draw(st.lists(st.integers(0, 2), min_size=len(sizes), max_size=len(sizes))))
    learned = draw(st.lists(st.booleans(), min_size=len(turns), max_size=len(turns)))
    return turns, np.unique(owner, return_inverse=True)[1][turns], np.array(learned)


@settings(deadline=None)
@given(steps(), st.randoms())
def test_order_does_not_matter(step: Any, random: Any) -> None:
    order = list(range(len(step[0])))
    random.shuffle(order)
    for name in NAMES:
        assert weights(name, *(column[order] for column in step)) == pytest.approx(weights(name, *step)[order])


@settings(deadline=None)
@given(steps(), st.integers(1, 4))
def test_padding_does_not_matter(step: Any, more: int) -> None:
    """Tokens out of the loss, in streams there are and in a new one, change no other token's weight."""
    turns, streams, learned = step
    new = [(turns[-1], streams[-1])] * more + [(turns.max() + 1, streams.max() + 1)] * more
    longer = (np.append(turns, [t for t, _ in new]), np.append(streams, [s for _, s in new]))
    for name in NAMES:
        found = weights(name, *longer, np.append(learned, [False] * len(new)))
        assert found[: len(turns)] == pytest.approx(weights(name, *step)) and not found[len(turns) :].any()


@settings(deadline=None)
@given(steps())
def test_means_weigh_1_in_all(step: Any) -> None:
    for name in ("token_mean", "turn_mean", "stream_mean", "stream_turn_mean"):
        assert weights(name, *step).sum() == pytest.approx(float(step[2].any()))
