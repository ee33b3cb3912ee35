"""Environments of other libraries with a scripted player for a policy to imitate before it learns from reward.

An environment that lists its legal acts needs no such class: Arena's `random` plays it.
"""

import random
from collections.abc import Callable
from typing import Any

from games.adapters.gem import GemGame
from games.adapters.openenv import OpenEnv
from games.adapters.verifiers import Verifiers
from games.contracts import Game, View


def draw_number(game: Game, seed: int) -> Callable[[View], str]:
    """Return a player of random numbers from 1 to 10."""
    rng = random.Random(seed)
    return lambda view: str(rng.randint(1, 10))


def answer_digit(game: Game, seed: int) -> Callable[[View], str]:
    """Return a player of random digits in the tags that the environment's parser expects."""
    rng = random.Random(seed)
    return lambda view: f"<answer>{rng.randint(0, 9)}</answer>"


def say_words(game: Game, seed: int) -> Callable[[View], str]:
    """Return a player of one to four words."""
    rng = random.Random(seed)
    return lambda view: " ".join(rng.choices(["yes", "no", "hello", "good"], k=rng.randint(1, 4)))


class GuessTheNumber(GemGame):
    """GEM's easy number game: 1 to 10, four guesses, told whether to go higher or lower."""

    def __init__(self, **options: Any) -> None:
        super().__init__("game:GuessTheNumber-v0-easy", **options)


class LetterCounting(Verifiers):
    """Letter counting of reasoning-gym, in verifiers' own environment for it."""

    def __init__(self, **options: Any) -> None:
        name = "verifiers.envs.integrations.reasoninggym_env:ReasoningGymEnv"
        super().__init__(f"{name}(gym=letter_counting)", **options)


class Echo(OpenEnv):
    """Environment of `openenv init my_echo`, which pays a tenth of a message's length."""

    def __init__(self, **options: Any) -> None:
        super().__init__("my_echo.server.app:app", **options)


GuessTheNumber.players = {**GemGame.players, "guesser": draw_number}
LetterCounting.players = {**Verifiers.players, "guesser": answer_digit}
Echo.players = {**OpenEnv.players, "talker": say_words}
