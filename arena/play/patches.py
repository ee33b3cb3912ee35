"""Patches as demonstrations: the acts that an expert put in place of a learner's wrong ones, each to be imitated.

The learner was asked in some context, and wrote what the expert would not have written. The demonstration is that
context with the expert's act after it, of which only the act is to be learned. It is a stream of its own: in what the
learner learns from by reward a patch stays what it was, words that it was shown. Source: UI-S1 (Lu et al. 2025), where
patched turns are in the loss, with the expert's thoughts.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from agents.players.model import spoken
from agents.policy import Policy
from agents.stream import Stream
from arena.learn.samples import Sample
from arena.records import MatchRecord, Trajectory, is_patch, trained


def patches(records: Iterable[MatchRecord], learner: Policy, temperatures: Mapping[str, float]) -> list[Sample]:
    """One sample for each patch in a policy's own matches; temperatures are by role.

    What a branch repeats of another match is that one's. Their log-probabilities at sampling time are 0: nobody
    sampled them.
    """
    samples = []
    for record in records:
        for trajectory in trained([record]):
            if trajectory.policy == learner.name:
                samples += _of(record, trajectory, learner, temperatures[trajectory.role])
    return samples


def _of(record: MatchRecord, trajectory: Trajectory, learner: Policy, temperature: float) -> list[Sample]:
    parted = record.identity.turn or 0
    put = [t for t in record.turns if is_patch(t) and t.seat == trajectory.seat and t.index > parted]
    contexts = trajectory.contexts() if put else {}
    samples = []
    for turn in put:
        ids = spoken(learner.frame, turn.raw).ids
        stream = Stream()
        stream.observe(contexts[turn.index - 1])  # of the act that it replaces
        stream.wrote(ids, (0.0,) * len(ids), turn.index)
        nothing = np.zeros(len(ids), np.float32)
        places, learned = np.zeros(len(ids), np.int64), np.ones(len(ids), bool)
        samples.append(Sample(stream, nothing, nothing, temperature, places, learned, source="demonstration"))
    return samples
