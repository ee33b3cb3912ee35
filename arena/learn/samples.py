"""From credited trajectories to what a trainer learns from: each turn's advantage on each of its own tokens."""

from collections.abc import Mapping, Sequence

import numpy as np

from arena.credit.assign import Credited
from arena.learn.trainer import Sample


def samples_of(credited: Sequence[Credited], temperatures: Mapping[str, float]) -> list[Sample]:
    """One sample per stream with sampled tokens; temperatures are by role.

    Boundaries of turns come from the stream's turn ids alone.
    """
    samples = []
    for item in credited:
        by_turn = {t.index: a for t, a in zip(item.trajectory.turns, item.advantages, strict=True)}
        for stream in item.trajectory.streams:
            own = [i for i, sampled in enumerate(stream.mask) if sampled]
            if own:
                advantages = np.array([by_turn[stream.turns[i]] for i in own], np.float32)
                behaviour = np.array([stream.logprobs[i] for i in own], np.float32)
                samples.append(Sample(stream, advantages, behaviour, temperatures[item.trajectory.role]))
    return samples
