"""Names and construction of the environments of MiniGrid and BabyAI."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from games.adapters.foreign import OwnRandom, import_library
from games.base import to_one_line
from games.names import nearest

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

MAX_DRAWS = 200_000
"""Maximum random numbers for one level, about a second. Levels draw until all objects have a position."""


def find_environment(family: str, name: str) -> str:
    """Return the id of the environment `name` of a family, "MiniGrid" or "BabyAI". The id is `family-name`.

    Raises ValueError, in one line with the nearest name, if there is none, or if the library is not installed.
    """
    prefix = f"{family}-"
    import_library("minigrid", f"{family.lower()}:{name}", "MiniGrid", "minigrid")
    registry = importlib.import_module("gymnasium").registry
    known = [key.removeprefix(prefix) for key in registry if key.startswith(prefix)]
    if name not in known:
        hint = nearest(name, known) or f" (one of {len(known)} is {known[0]})"
        raise ValueError(f"{family} has no environment '{to_one_line(name, 80)}'{hint}")
    return f"{prefix}{name}"


def find_minigrid(name: str) -> str:
    """Return the id of a MiniGrid environment, or raise ValueError, as `find_environment` does."""
    return find_environment("MiniGrid", name)


def find_babyai(name: str) -> str:
    """Return the id of a BabyAI environment, or raise ValueError, as `find_environment` does."""
    return find_environment("BabyAI", name)


class _BoundedRandom:
    """Source of random integers that raises ValueError after `MAX_DRAWS` draws, so that level generation ends.

    Levels catch RecursionError and try again, but not ValueError.
    """

    def __init__(self, draw: Callable[..., int]) -> None:
        self._draw, self._remaining_draws = draw, MAX_DRAWS

    def __call__(self, *limits: Any) -> int:
        self._remaining_draws -= 1
        if self._remaining_draws < 0:
            raise ValueError(f"no level with these options was found in {MAX_DRAWS:,} random numbers")
        return self._draw(*limits)


def make_environment(id: str, settings: Mapping[str, Any], random_state: OwnRandom, seed: int) -> Any:
    """Create an environment, reset it with the seed, and return it. Raises ValueError, in one line, if that fails."""
    try:
        with random_state.activate():  # also silences the output of level generation
            env = importlib.import_module("gymnasium").make(id, disable_env_checker=True, **settings).unwrapped
            env._rand_int = _BoundedRandom(env._rand_int)
            env.reset(seed=seed)
            del env._rand_int
    except Exception as error:  # noqa: BLE001 an environment may refuse its options in any way
        raise ValueError(f"MiniGrid cannot make {id}: {to_one_line(f'{type(error).__name__}: {error}')}") from None
    return env
