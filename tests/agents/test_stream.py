"""Streams only grow, keep lists of equal length, and mask exactly the sampled tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.stream import Stream

IDS = st.lists(st.integers(0, 200_000), max_size=8)
STEPS = st.lists(st.tuples(st.booleans(), IDS), max_size=12)


@given(STEPS)
def test_stream_keeps_ids_and_masks_sampled_ones(
    steps: list[tuple[bool, list[int]]],
) -> None:
    stream = Stream()
    expected: list[tuple[int, bool, float, int]] = []
    for turn, (written, ids) in enumerate(steps):
        before = list(zip(stream.ids, stream.mask, stream.logprobs, stream.turns, strict=True))
        logprobs = [-0.5 * (place + 1) for place in range(len(ids))]
        if written:
            stream.append_sampled(ids, logprobs, turn)
            expected += [(token, True, value, turn) for token, value in zip(ids, logprobs, strict=True)]
        else:
            stream.observe(ids)
            expected += [(token, False, 0.0, -1) for token in ids]
        after = list(zip(stream.ids, stream.mask, stream.logprobs, stream.turns, strict=True))
        assert after[: len(before)] == before
        assert after == expected
    assert len(stream) == len(expected)
    assert stream.sampled_count == sum(written for _, written, _, _ in expected)


@pytest.mark.parametrize(
    ("ids", "logprobs", "turn"),
    [([1, 2], [-1.0], 0), ([1], [-1.0], -1), ([1], [float("nan")], 0), ([1], [float("-inf")], 0)],
)
def test_refuses_invalid_samples_without_side_effects(ids: list[int], logprobs: list[float], turn: int) -> None:
    stream = Stream()
    with pytest.raises(ValueError):
        stream.append_sampled(ids, logprobs, turn)
    assert stream == Stream()


def test_refuses_lists_of_unequal_length() -> None:
    with pytest.raises(ValueError, match="equally long"):
        Stream([1, 2], [True], [0.0], [0])


def test_streams_share_no_lists_with_their_callers() -> None:
    ids = [1, 2]
    stream = Stream()
    stream.observe(ids)
    ids.append(3)
    assert stream.ids == [1, 2]
