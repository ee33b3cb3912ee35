"""Environment for TRL's GRPOTrainer: the model plays one seat of a game by calling the tool `act`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from arena.export.environments.episode import Episode, Task, deal
from games.pictures import decode_picture

INSTRUCTIONS = (
    "Play the game below by calling the tool `act`, once for each of your turns, until the match is over.\n\n"
)


class GameEnvironment:
    """TRL environment of one seat. Its method `act` is a tool for the model; TRL calls `reset` and `get_reward`.

    Use it as `GRPOTrainer(environment_factory=partial(GameEnvironment, task))`. All rollouts of a row play the row's
    seed, so a group shares its deal. The reward is the payoff less penalties for illegal acts. A match that the model
    does not finish is abandoned, which costs the seat its stake.
    """

    def __init__(self, task: Task) -> None:
        self._task = task.resolve()
        self._episode: Episode | None = None

    def reset(self, seed: int, **row: Any) -> str | list[dict[str, Any]]:
        """Deal a match with the row's seed and return the first observation, which TRL appends to the prompt."""
        if self._episode:
            self._episode.close()
        self._episode = deal(self._task, seed)
        return _make_content(self._episode)

    def act(self, act: str) -> str | list[dict[str, Any]]:
        """Play your next act in the game.

        Args:
            act: The act, worded as the rules say.

        Returns:
            What happened until your next turn, or that the match is over.
        """
        if self._episode is None:
            raise RuntimeError("no match was dealt yet")
        if not self._episode.done:
            self._episode.act(str(act))
        return _make_content(self._episode)

    def get_reward(self) -> float:
        """Return the sum of the match's rewards. An unfinished match is abandoned first."""
        if self._episode is None:
            raise RuntimeError("no match was dealt yet")
        self._episode.abandon()
        return self._episode.reward


def rows(seeds: Iterable[int]) -> list[dict[str, Any]]:
    """Return rows for `datasets.Dataset.from_list`, one per seed: the seed, and a prompt that `reset` completes."""
    return [{"prompt": [{"role": "user", "content": INSTRUCTIONS}], "seed": seed} for seed in seeds]


def _make_content(episode: Episode) -> str | list[dict[str, Any]]:
    """Return the observation as a text or, if it has images, as a list of message parts."""
    if not episode.images:
        return episode.text
    images = [{"type": "image", "image": decode_picture(image.data)} for image in episode.images]
    return [{"type": "text", "text": episode.text}, *images]
