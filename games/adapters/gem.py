"""Adapter of GEM's offline games (Liu et al. 2025), with reproducible seeds and retries of unreadable acts."""

from __future__ import annotations

import contextlib
import importlib
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from games.adapters.foreign import OwnRandom, import_library, sanitise, shorten
from games.adapters.gymnasium import GymnasiumGame
from games.adapters.named import split_settings
from games.base import ACTION_LENGTH, IllegalAct, to_one_line
from games.contracts import View
from games.names import nearest

OFFLINE = "game:"
"""Prefix of the ids of GEM's offline games. Its other environments download data sets or wrap reasoning-gym."""
NLTK_GAMES = ("Wordle", "Hangman", "WordSearch")
"""Games that need NLTK's corpus "words", by prefix of their names."""
BOX = "\\boxed{"
PROMPT_LENGTH = 16_000
EXAMPLE = re.compile(r"\\boxed\{(?!\.\.\.\})[^{}\n]{1,60}\}")
MOVES = ("up", "down", "left", "right")
MOVE_GAMES = ("FifteenPuzzle", "Game2048", "Sokoban")
"""Games whose only acts are `MOVES`, by prefix of their names."""


def find_environment(name: str) -> tuple[str, dict[str, Any]]:
    """Return the id and the settings of a name such as `game:Minesweeper-v0-easy(rows=4)`.

    Raises ValueError, in one line, for an unknown game, or if GEM or the game's data is not installed.
    """
    id, settings = split_settings(name)
    registry = import_library("gem.envs.registration", f"gem:{name}", "GEM", "gem").ENV_REGISTRY
    games = [known for known in registry if known.startswith(OFFLINE)]
    if id not in games:
        hint = nearest(id, games) or f" (one of {len(games)} is {games[0]})"
        raise ValueError(f"GEM has no offline game '{to_one_line(id, 80)}'{hint}")
    if id.removeprefix(OFFLINE).startswith(NLTK_GAMES):
        try:
            importlib.import_module("nltk").data.find("corpora/words")
        except LookupError:
            command = "python -m nltk.downloader words"
            raise ValueError(f"gem:{id} needs NLTK's corpus 'words', which is not installed: {command}") from None
    return id, settings


class GemGame(GymnasiumGame):
    """Single-agent game in GEM's game `env`. An act is free text, of which GEM plays the part in `\\boxed{…}`.

    A text without a box is put into one. GEM ends a match at an unreadable act with a reward of -0.1; here such an act
    is illegal and changes nothing. Options are those of GymnasiumGame, without `acts` and `ansi`. Reward part "reward":
    GEM's reward.
    """

    name = "gem"
    library = "GEM"
    metadata: ClassVar[dict[str, Any]] = {"name": "gem_v0", "render_modes": ["ansi"]}

    find = staticmethod(find_environment)
    whole_acts = True

    def rules(self) -> str:
        """Return the game's name and how to act. The private fact `prompt` explains the game."""
        return f"{self.title}, by the rules of GEM. Each turn write an act in {BOX}…}}."

    def private(self, seat: str) -> dict[str, Any]:
        """Return `prompt`, GEM's instructions."""
        return {"prompt": self._prompt}

    def legal(self, seat: str) -> list[str] | None:
        """Return the four moves in the games of `MOVE_GAMES`, or None in games with free text."""
        return list(MOVES) if self.id.removeprefix(OFFLINE).startswith(MOVE_GAMES) else None

    def _make(self) -> Any:
        with _offline():
            return importlib.import_module("gem").make(self.id, **self.settings)

    def _first_message(self, observation: Any, info: Mapping[str, Any]) -> str:
        """Store the instructions, which are the first observation, and return the board, if the game has one."""
        self._prompt = shorten(sanitise(str(observation)), PROMPT_LENGTH)
        return self._observation_text("", info)

    def _observation_text(self, observation: Any, info: Mapping[str, Any]) -> str:
        """Return GEM's observation with its suffix, such as the board."""
        text = f"{observation}\n{info.get('suffix', '')}".strip("\n")
        return shorten(sanitise(text), ACTION_LENGTH) or "Begin."

    def _parse_action(self, act: str) -> tuple[str, str]:
        text = to_one_line(act, ACTION_LENGTH - len(BOX) - 1)
        if not text:
            raise IllegalAct("write an act")
        return text if BOX in text else f"{BOX}{text}}}", text

    def _refusal(self, observation: Any, reward: float) -> str:
        """Return GEM's message if it could not read the act, else ""."""
        unreadable = importlib.import_module("gem.utils.constants").LanguageGameReward.format_error_reward
        return (to_one_line(str(observation)) or "it cannot be read") if reward == unreadable else ""

    def _action_words(self, acts: Any) -> tuple[str, ...]:
        if acts is not None:
            raise ValueError("acts are free texts in GEM's games: leave the option `acts` out")
        return ()

    def _require_text(self) -> None:
        """Do nothing, because GEM's acts and observations are always texts."""


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Suppress NLTK's downloads within the context, because games contact its server even for an installed corpus."""
    nltk: Any = importlib.import_module("nltk")
    download = nltk.download
    nltk.download = lambda *_, **__: True
    try:
        yield
    finally:
        nltk.download = download


def _random(game: GemGame, seed: int) -> Callable[[View], str]:
    """Return a player of random acts: GEM's own or, if the game has none, its examples with random digits."""
    random_state = OwnRandom(np.random.default_rng(seed))

    def act(view: View) -> str:
        with random_state.activate():
            try:
                return to_one_line(str(game.env.sample_random_action()))
            except NotImplementedError:
                examples = EXAMPLE.findall(str(view.private["prompt"])) or ["1"]
                return re.sub(r"\d", lambda _: str(random.randrange(1, 10)), random.choice(examples))

    return act


GemGame.players = {"random": _random}
