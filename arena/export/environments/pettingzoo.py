"""PettingZoo environments of a game with all seats as agents. Games are AEC environments already."""

from __future__ import annotations

from typing import Any

from pettingzoo.utils import OrderEnforcingWrapper
from pettingzoo.utils.conversions import turn_based_aec_to_parallel

from arena.export.environments.episode import Task


def env(task: Task) -> Any:
    """Return the game as an AEC environment that refuses to step before a reset.

    An observation is the messages that are new to a seat, as dicts with `sender` and `text`. Acts are texts. The infos
    of the seat to move hold `rules`, `public` and `private` facts, and `legal` acts.
    """
    return OrderEnforcingWrapper(task.make())


def parallel_env(task: Task) -> Any:
    """Return the game as a parallel environment, which ignores all acts but that of the seat to move."""
    return turn_based_aec_to_parallel(env(task))
