"""Training samples from credited trajectories: each turn's advantage on each of its own tokens."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from agents.stream import Stream
from arena.credit.batch import Floats
from arena.credit.branches import pairs
from arena.credit.credited import Credited
from arena.learn.samples import Sample, Source
from arena.records import Trajectory
from games.contracts import TurnSource

OWN: tuple[TurnSource, ...] = ("policy", "replaced", "summary")
IMITATED: tuple[TurnSource, ...] = ("demonstration", "summary")
"""Sources of turns from which a policy learns by imitation; those it wrote itself (`OWN`) it learns from by reward."""


def samples_of(
    credited: Sequence[Credited],
    temperatures: Mapping[str, float],
    sources: Collection[TurnSource] = OWN,
    version: int | None = None,
) -> list[Sample]:
    """One sample per stream with a token to learn from; temperatures are by role.

    Given the `version` of the weights that are about to learn, a sample says which tokens those sampled.

    Turns of other `sources` are context: neither in the loss, nor compared with the sampler by the gate. Where a match
    and its branch part, their turns are numbered as a pair. Boundaries of turns come from the stream's turn ids alone.
    """
    samples = []
    paired = _pairs(credited)
    for number, item in enumerate(credited):
        indices = np.array([turn.index for turn in item.trajectory.turns], np.int64)
        learned = np.ones(len(indices), bool) if item.learned is None else item.learned
        context = [turn.index for turn in item.trajectory.turns if turn.source not in sources]
        fresh = None if version is None else np.array([t.version == version for t in item.trajectory.turns], bool)
        offset = 0
        for stream in item.trajectory.streams:
            own = np.asarray(stream.mask, bool)
            count = int(own.sum())
            tokens = None if item.tokens is None else item.tokens[offset : offset + count]
            offset += count
            if context:
                own, tokens, stream = _without(stream, own, tokens, context)
            places = np.searchsorted(indices, np.asarray(stream.turns, np.int64)[own])
            advantages = item.advantages[places] if tokens is None else tokens
            if learned[places].any():
                samples.append(
                    Sample(
                        stream,
                        advantages.astype(np.float32),
                        np.asarray(stream.logprobs, np.float32)[own],
                        temperatures[item.trajectory.role],
                        places,
                        learned[places],
                        pairs=paired[number][places] if number in paired else None,
                        source=_source(item.trajectory),
                        fresh=None if fresh is None else fresh[places],
                    )
                )
    return samples


def _without(
    stream: Stream, own: NDArray[np.bool_], tokens: Floats | None, turns: Sequence[int]
) -> tuple[NDArray[np.bool_], Floats | None, Stream]:
    """The stream with the tokens of these turns as context, which of its tokens are own then, and what those have."""
    left = own & ~np.isin(stream.turns, turns)
    return left, None if tokens is None else tokens[left[own]], replace(stream, mask=left.tolist())


def _source(trajectory: Trajectory) -> Source:
    return "replayed" if trajectory.source == "recalled" else "logged" if trajectory.source == "replayed" else "played"


def _pairs(credited: Sequence[Credited]) -> dict[int, NDArray[np.int64]]:
    """[K] the number of each turn's pair of answers, -1 for none, by the place of its trajectory."""
    numbers: dict[int, NDArray[np.int64]] = {}
    for number, pair in enumerate(pairs([item.trajectory for item in credited])):
        for one in (pair.first, pair.second):
            none = np.full(len(credited[one].trajectory.turns), -1, np.int64)
            numbers.setdefault(one, none)[pair.place] = number
    return numbers
