"""All seats of a game as PettingZoo environments: games are AEC environments already."""

from __future__ import annotations

from typing import Any

from pettingzoo.utils import OrderEnforcingWrapper
from pettingzoo.utils.conversions import turn_based_aec_to_parallel

from arena.export.environments.episode import Task


def env(task: Task) -> Any:
    """Return the game as an AEC environment, which refuses to step before a reset.

    Observations are the messages that are new to a seat as dicts of `sender` and `text`; acts are texts. Infos of the
    seat to move hold `rules`, `public` and `private` facts and `legal` acts.
    """
    return OrderEnforcingWrapper(task.make())


def parallel_env(task: Task) -> Any:
    """Return the game as a parallel environment, of whose acts only that of the seat to move counts."""
    return turn_based_aec_to_parallel(env(task))
