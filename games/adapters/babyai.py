"""BabyAI's levels as single-agent games, with its bot as the player `expert` (Chevalier-Boisvert et al. 2019)."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

from games.adapters.minigrid import ACTS, MiniGrid
from games.base import to_one_line
from games.contracts import View


class BabyAI(MiniGrid):
    """Single-agent game in the BabyAI level `env`. The task is the instruction in `mission`. Options as in MiniGrid."""

    name = "babyai"
    family = "BabyAI"
    metadata: ClassVar[dict[str, Any]] = {"name": "babyai_v0", "render_modes": ["ansi"]}


class Expert:
    """Player that acts as BabyAI's bot. The bot fails on a few levels, such as KeyInBox; it then writes "done"."""

    def __init__(self, game: MiniGrid, seed: int) -> None:
        self.game = game
        self._bot: Any = None
        self._last: Any = None

    def __call__(self, view: View) -> str:
        """Return the bot's next act. If the bot fails, append the error to `game.faults` and return "done"."""
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


BabyAI.players = {**MiniGrid.players, "expert": Expert}
