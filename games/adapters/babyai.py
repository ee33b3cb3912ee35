"""BabyAI's levels, with its bot as the player `expert` (Chevalier-Boisvert et al. 2019)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, ClassVar

from games.adapters.minigrid import ACTS, MiniGrid
from games.base import to_one_line
from games.contracts import View


class BabyAI(MiniGrid):
    """Game of one agent in the BabyAI level `env`, which follows the instruction in `mission`; see MiniGrid."""

    name = "babyai"
    family = "BabyAI"
    metadata: ClassVar[dict[str, Any]] = {"name": "babyai_v0", "render_modes": ["ansi"]}


class Expert:
    """BabyAI's bot as a player. It fails on a few levels, such as KeyInBox, and then does nothing."""

    def __init__(self, game: MiniGrid) -> None:
        self.game = game
        self._bot: Any = None
        self._last: Any = None

    def __call__(self, view: View) -> str:
        """Return the bot's next act. If the bot fails, record a fault of the game and return "done"."""
        game = self.game
        try:
            if self._bot is None or self._bot.mission is not game.env:
                self._bot = importlib.import_module("minigrid.utils.baby_ai_bot").BabyAIBot(game.env)
                self._last = None
            self._last = self._bot.replan(self._last)
        except Exception as error:  # noqa: BLE001 some levels break the bot's assertions
            game.faults.append(f"expert: {to_one_line(f'{type(error).__name__}: {error}')}")
            self._last = game.env.actions.done
        return ACTS[int(self._last)]


def _expert(game: MiniGrid, seed: int) -> Callable[[View], str]:
    """Return BabyAI's bot as a player."""
    return Expert(game)


BabyAI.players = {**MiniGrid.players, "expert": _expert}
