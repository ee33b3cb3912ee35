"""Updates planned and carried out in one call."""

from collections.abc import Sequence

import numpy as np

from arena.learn.samples import Sample
from arena.learn.settings import ImitateSpec
from arena.learn.trainer import PolicyTrainer
from arena.parts.schedules import Clock


def run_update(
    trainer: PolicyTrainer, samples: Sequence[Sample], rng: np.random.Generator, clock: Clock = Clock()
) -> dict[str, float]:
    """Run an update and return its metrics."""
    return trainer.carry_out(trainer.plan(samples, rng, clock))


def run_imitation(
    trainer: PolicyTrainer, samples: Sequence[Sample], spec: ImitateSpec, rng: np.random.Generator
) -> dict[str, float]:
    """Run imitation and return its metrics."""
    return trainer.carry_out(trainer.plan_imitation(samples, spec, rng))
