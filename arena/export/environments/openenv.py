"""OpenEnv server of one seat of a game. Each WebSocket session at `/ws` plays its own matches, one per reset."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any

from openenv.core.env_server import Action, Environment, Observation, State, create_app
from openenv.core.env_server.types import EnvironmentMetadata

from arena.export.environments.episode import Episode, Task, deal
from games.base import ACTION_LENGTH

SESSIONS = 64
"""Maximum number of concurrent sessions."""
NO_MATCH = "There is no match: reset first, over the WebSocket /ws, because plain HTTP requests keep no state."


class GameAction(Action):  # type: ignore[misc]  # openenv is untyped here
    """The learner's act as text."""

    act: str


class GameObservation(Observation):  # type: ignore[misc]
    """Observation of the seat: the news since its last act, with the inherited `reward` and `done`."""

    text: str
    legal: list[str] | None
    """Legal acts, if they can be listed."""
    images: list[str]
    """Images as data URLs, in the order of their placeholders in the text."""


class GameEnvironment(Environment):  # type: ignore[misc]
    """OpenEnv environment of one session. Its rewards add up to the payoff less penalties for illegal acts."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task
        self.episode: Episode | None = None
        self.episode_id: str | None = None
        self._acts = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> GameObservation:
        """Deal a match and return the first observation. The seed is that of `arena play --seed`, random if None."""
        self.close()
        self.episode = deal(self.task, secrets.randbelow(2**31) if seed is None else seed)
        self.episode_id, self._acts = episode_id, 0
        return self._observation(self.episode, 0.0)

    def step(self, action: GameAction, timeout_s: float | None = None, **kwargs: Any) -> GameObservation:
        """Play an act and return the observation. Before a reset, the observation asks for one.

        Raises RuntimeError if the match is over.
        """
        if self.episode is None:  # plain HTTP makes a new environment for each request
            return GameObservation(text=NO_MATCH, legal=None, images=[], done=True)
        reward = self.episode.act(action.act[: ACTION_LENGTH + 1])
        self._acts += 1
        return self._observation(self.episode, reward)

    @property
    def state(self) -> State:
        """Episode id and number of acts. The match's own state is excluded, because it is secret."""
        return State(episode_id=self.episode_id, step_count=self._acts)

    def get_metadata(self) -> EnvironmentMetadata:
        """Return the environment's name and description."""
        description = f"The seat {self.task.seat} of the game {self.task.game}, by Arena"
        return EnvironmentMetadata(name=self.task.game, description=description)

    def close(self) -> None:
        """Release the resources of the last match."""
        if self.episode:
            self.episode.close()
            self.episode = None

    def _observation(self, episode: Episode, reward: float) -> GameObservation:
        images = [image.url for image in episode.images]
        return GameObservation(text=episode.text, legal=episode.legal, images=images, reward=reward, done=episode.done)


def app(task: Task) -> Any:
    """Return the ASGI application of the server."""
    make = partial(GameEnvironment, task.resolve())
    return create_app(make, GameAction, GameObservation, env_name=task.game, max_concurrent_envs=SESSIONS)


def serve(task: Task, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve the environment until interrupted."""
    import uvicorn

    uvicorn.run(app(task), host=host, port=port, log_level="warning")
