"""Tic-tac-toe: three in a row on nine cells. Rules by OpenSpiel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from games.families.openspiel import GameWithDraws

EMPTY = "123/456/789"
WORDS = tuple(f"PLAY {cell}" for cell in range(1, 10))


class TicTacToe(GameWithDraws):
    """Tic-tac-toe. Acts: PLAY n, cells from 1 at the top left. Payoffs 1 and -1, at a draw option `draw` for both."""

    name = "tic_tac_toe"
    seats: tuple[str, ...] = ("first", "second")
    metadata: ClassVar[dict[str, Any]] = {"name": "tic_tac_toe_v0", "render_modes": ["ansi"]}
    theory: ClassVar[Mapping[str, float]] = {"value": 0.0}
    perfect_information = True

    def __init__(self, **options: Any) -> None:
        super().__init__("tic_tac_toe", **options)

    def rules(self) -> str:
        """Return the rules for the players, as one paragraph of text."""
        return (
            "Tic-tac-toe: first marks X, second O. PLAY n marks the free cell n. Three of your marks in a row, column "
            f"or diagonal win.{self.draw_rule()} The board shows its rows from top to bottom, free cells by number."
        )

    def word(self, action: int) -> str:
        """Return the act's text for this OpenSpiel action: PLAY and the cell, from 1."""
        return WORDS[action]

    def public(self) -> dict[str, Any]:
        """Return `board`: rows from the top, free cells by number, such as XO3/4X6/789."""
        cells = str(self.state).upper().replace("\n", "/")
        return {"board": "".join([free if cell == "." else cell for free, cell in zip(EMPTY, cells, strict=True)])}

    def private(self, seat: str) -> dict[str, Any]:
        """Return the seat's `mark`, X or O, which is not secret."""
        return {"mark": "X" if seat == "first" else "O"}
