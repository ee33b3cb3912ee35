"""Base class of games about one task of reasoning-gym, and their scripted players."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from games.contracts import View
from simulators.base import Script, Simulator, silent
from simulators.reasoning import gym, replies


class TaskGame(Simulator):
    """Base class of games about one reasoning-gym task, `task`, drawn from the families in `tasks`."""

    tasks: Mapping[str, Mapping[str, Any]]
    """Settings by family."""
    task: gym.Task
    answer: str
    """Format of the answer in an act, one of `replies.ANSWERS`."""

    def guess(self, rng: np.random.Generator) -> str:
        """Return the answer to another random task of the family: plausible, but usually wrong."""
        return gym.draw_task(self.task.family, self.tasks[self.task.family], rng).answer


def random(game: TaskGame, seed: int) -> Script:
    """Return a player that gives the answer of another random task of the family."""
    rng = np.random.default_rng([seed, 1])  # independent of the match, which may have the same seed
    return lambda view: replies.write_answer(game.guess(rng), game.answer)


def oracle(game: TaskGame, seed: int) -> Script:
    """Return a player that knows the right answer and gives it in the game's answer format."""
    return lambda view: replies.write_answer(game.task.answer, game.answer)


def swapper(game: TaskGame, seed: int) -> Script:
    """Return a player that knows the answer, but swaps its last two characters with probability 1/2.

    A policy that imitates it learns the task together with the mistake, which learning from reward can then remove.
    """
    rng = np.random.default_rng([seed, 3])

    def act(view: View) -> str:
        right = game.task.answer
        answer = right[:-2] + right[:-3:-1] if rng.random() < 0.5 else right
        return replies.write_answer(answer, game.answer)

    return act


PLAYERS: Mapping[str, Callable[[Any, int], Script]] = {
    "noop": silent, "random": random, "oracle": oracle, "swapper": swapper
}  # fmt: skip
