"""The clock of a run, and schedules of weights and coefficients."""

import math
from collections.abc import Callable
from typing import Annotated, NamedTuple

from pydantic import Field

from arena.parts.part_config import Kind

Steps = Annotated[int, Field(ge=1, le=10**9)]
Passed = Annotated[int, Field(ge=0, le=10**9)]


class Clock(NamedTuple):
    """Progress of a run: `iteration` counts from 1 to `iterations`. All schedules depend on the iteration."""

    iteration: int = 1
    iterations: int = 1


def constant(clock: Clock, *, value: float) -> float:
    """Return `value` in every iteration; a plain number means this."""
    return value


def linear(clock: Clock, *, start: float, end: float, over: Steps, after: Passed = 0) -> float:
    """Interpolate linearly from `start` to `end` over `over` iterations, beginning after `after` iterations."""
    return start + (end - start) * _compute_progress(clock, over, after)


def cosine(clock: Clock, *, start: float, end: float, over: Steps, after: Passed = 0) -> float:
    """Interpolate along half a cosine, end + (start - end)(1 + cos πx)/2, as in SPEAR (Qin et al. 2025)."""
    return end + (start - end) * (1.0 + math.cos(math.pi * _compute_progress(clock, over, after))) / 2.0


def explore_exploit(clock: Clock, *, start: float, over: Steps) -> float:
    """Decay in EPO's two phases: to .83 of `start` in the first half of `over` iterations, then from .8 to .04.

    With h = over / 2 and e iterations done: start · (1 - .2 (1 - exp(-2 e/h))) while e <= h, then start · .8 exp(-3 (e
    - h)/h). Source: EPO (Xu et al. 2025), the released weight of its entropy term, h = 75.
    """
    done, half = clock.iteration - 1, over / 2
    if done <= half:
        return start * (1.0 - 0.2 * (1.0 - math.exp(-2.0 * done / half)))
    return start * 0.8 * math.exp(-3.0 * (done - half) / half)


def steps(clock: Clock, *, values: Annotated[list[float], Field(min_length=1)], every: Steps) -> float:
    """Move to the next of `values` every `every` iterations, and keep the last: ScalingInter-RL (Xi et al. 2025)."""
    return values[min((clock.iteration - 1) // every, len(values) - 1)]


def _compute_progress(clock: Clock, over: int, after: int) -> float:
    """Return a schedule's progress: 0 up to iteration `after` + 1, then linear, and 1 from `over` iterations later."""
    return min(1.0, max(0.0, (clock.iteration - 1 - after) / over))


SCHEDULES: dict[str, Callable[..., float]] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "explore_exploit": explore_exploit,
    "steps": steps,
}
SCHEDULE = Kind("schedule", SCHEDULES, number="constant")
