"""Aggregates: token weights by hand; padding and order change nothing."""

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


def compute_weights(name: str, turns: Any = TURNS, streams: Any = STREAMS, learned: Any = ALL) -> np.ndarray:
    settings = {"length": 10} if name == "constant_length" else {}
    return choose("aggregate", name, **settings)(np.asarray(turns), np.asarray(streams), np.asarray(learned))


def test_weights_by_hand() -> None:
    assert compute_weights("token_mean").tolist() == pytest.approx([1 / 6] * 6)
    # three turns of 2, 1 and 3 tokens
    assert compute_weights("turn_mean").tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 9, 1 / 9, 1 / 9])
    # two streams of 3 tokens each
    assert compute_weights("stream_mean").tolist() == pytest.approx([1 / 6] * 6)
    # the first stream's two turns share its half
    assert compute_weights("stream_turn_mean").tolist() == pytest.approx([1 / 8, 1 / 8, 1 / 4, 1 / 6, 1 / 6, 1 / 6])
    # two streams, 10 tokens each by decree
    assert compute_weights("constant_length").tolist() == pytest.approx([1 / 20] * 6)


def test_tokens_out_of_the_loss_have_weight_zero() -> None:
    learned = [True, False, True, False, False, False]  # the second stream has nothing in the loss
    assert compute_weights("token_mean", learned=learned).tolist() == [0.5, 0, 0.5, 0, 0, 0]
    assert compute_weights("turn_mean", learned=learned).tolist() == [0.5, 0, 0.5, 0, 0, 0]
    assert compute_weights("stream_mean", learned=learned).tolist() == [0.5, 0, 0.5, 0, 0, 0]
    assert compute_weights("stream_turn_mean", learned=learned).tolist() == [0.5, 0, 0.5, 0, 0, 0]
    assert compute_weights("constant_length", learned=learned).tolist() == [0.1, 0, 0.1, 0, 0, 0]


@pytest.mark.parametrize("name", NAMES)
def test_empty_loss_is_no_error(name: str) -> None:
    assert not compute_weights(name, learned=np.zeros(6, bool)).any()
    none = np.zeros(0, int)
    assert compute_weights(name, none, none, none > 0).tolist() == []


def test_dr_grpo_length_bias_by_hand() -> None:
    """Of wrong replies of length l and 4l, a mean of sequences weighs the short one's tokens 4 times as much."""
    answers = np.repeat([0, 1], [25, 100])
    for name, ratio in (("stream_mean", 4.0), ("turn_mean", 4.0), ("constant_length", 1.0), ("token_mean", 1.0)):
        weights = compute_weights(name, answers, answers, answers >= 0)
        assert weights[0] / weights[-1] == pytest.approx(ratio), name


@st.composite
def draw_steps(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw the turns, streams and learned mask of one optimiser step."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    turns = np.repeat(np.arange(len(sizes)), sizes)
    owner = np.sort(draw(st.lists(st.integers(0, 2), min_size=len(sizes), max_size=len(sizes))))
    learned = draw(st.lists(st.booleans(), min_size=len(turns), max_size=len(turns)))
    return turns, np.unique(owner, return_inverse=True)[1][turns], np.array(learned)


@settings(deadline=None)
@given(draw_steps(), st.randoms())
def test_order_does_not_matter(step: Any, random: Any) -> None:
    order = list(range(len(step[0])))
    random.shuffle(order)
    for name in NAMES:
        assert compute_weights(name, *(column[order] for column in step)) == pytest.approx(
            compute_weights(name, *step)[order]
        )


@settings(deadline=None)
@given(draw_steps(), st.integers(1, 4))
def test_padding_does_not_matter(step: Any, padding: int) -> None:
    """Tokens out of the loss, in existing or new streams, change no other token's weight."""
    turns, streams, learned = step
    new = [(turns[-1], streams[-1])] * padding + [(turns.max() + 1, streams.max() + 1)] * padding
    longer = (np.append(turns, [t for t, _ in new]), np.append(streams, [s for _, s in new]))
    for name in NAMES:
        weights = compute_weights(name, *longer, np.append(learned, [False] * len(new)))
        assert weights[: len(turns)] == pytest.approx(compute_weights(name, *step)) and not weights[len(turns) :].any()


@settings(deadline=None)
@given(draw_steps())
def test_weights_of_means_sum_to_one(step: Any) -> None:
    for name in ("token_mean", "turn_mean", "stream_mean", "stream_turn_mean"):
        assert compute_weights(name, *step).sum() == pytest.approx(float(step[2].any()))
