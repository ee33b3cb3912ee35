"""Gymnasium environment of one seat of a game, with texts as observations and actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium

from arena.export.environments.episode import Episode, Task, deal
from arena.export.environments.names import slugify
from games.base import ACTION_LENGTH, UnicodeText

LONGEST = 10**7
"""Maximum number of characters of an observation."""
SEEDS = 2**31
"""Number of different seeds that a reset without a seed may draw."""


class GameEnv(gymnasium.Env[str, str]):  # type: ignore[misc]  # gymnasium is untyped here
    """Gymnasium environment in which the agent plays one seat of a game, and scripted policies play the others.

    An observation is a text with all that is new to the seat: first the rules, then facts, messages and legal acts. The
    rewards add up to the payoff less penalties for illegal acts. `reset(seed=N)` deals as `arena play --seed N` does;
    without a seed, the environment's generator draws one. Infos hold `seed`, `legal`, `valid`, `payoff`, `images` (the
    bytes of the observation's images) and, after the end, the game's `report`.
    """

    metadata: Mapping[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(
        self,
        game: str,
        options: Mapping[str, Any] | None = None,
        seat: str = "",
        against: str = "random",
        render_mode: str | None = None,
    ) -> None:
        self.task = Task(game, options or {}, seat, against).resolve()
        self.observation_space, self.action_space = UnicodeText(LONGEST), UnicodeText(ACTION_LENGTH)
        self.render_mode = render_mode
        self.episode: Episode | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Deal a new match and return the seat's first observation and infos. `options` are ignored."""
        super().reset(seed=seed)
        self.close()
        self.episode = deal(self.task, int(self.np_random.integers(SEEDS)) if seed is None else seed)
        return self._observation(self.episode)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play an act and return observation, reward, terminated, truncated and infos. An illegal act never raises."""
        if self.episode is None:
            raise RuntimeError("reset the environment first")
        reward = self.episode.act(action)
        text, infos = self._observation(self.episode)
        return text, reward, self.episode.terminated, self.episode.truncated, infos

    def render(self) -> str | None:
        """Return the transcript of all seats in render mode `ansi`. It may show facts that are hidden from the seat."""
        return self.episode.game.render() if self.episode and self.render_mode == "ansi" else None

    def close(self) -> None:
        """Release the resources of the last match."""
        if self.episode:
            self.episode.close()
            self.episode = None

    def _observation(self, episode: Episode) -> tuple[str, dict[str, Any]]:
        return episode.text[:LONGEST], {**episode.facts(), "images": tuple(image.data for image in episode.images)}


def register(task: Task) -> str:
    """Register the task for `gymnasium.make` and return its id, such as `arena/kuhn_poker-v0`."""
    name = f"arena/{slugify(task.game)}-v0"
    kwargs = {"game": task.game, "options": dict(task.options), "seat": task.seat, "against": task.against}
    gymnasium.register(id=name, entry_point=GameEnv, kwargs=kwargs)
    return name
