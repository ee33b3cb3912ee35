"""Breakthrough: pieces step forward, and the first to reach the far row wins (Troyka 2000). Rules by OpenSpiel."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar

from games.base import whole_number
from games.families.openspiel import OpenSpielGame, load


@functools.cache
def list_words(spiel: str) -> tuple[str, ...]:
    """Return the act text of every action number, such as a5b4, without OpenSpiel's star for captures. Cached."""
    state = load(spiel).new_initial_state()
    return tuple(state.action_to_string(0, action).rstrip("*") for action in range(state.num_distinct_actions()))


class Breakthrough(OpenSpielGame):
    """Board game Breakthrough. Acts: start and target cell, such as a5b4. Payoffs 1 and -1, no draws.

    Options: rows (4 to 9), columns (2 to 9). Each side begins with two full rows of pieces, or with one if there are
    fewer than 6 rows.
    """

    name = "breakthrough"
    seats: tuple[str, ...] = ("first", "second")
    metadata: ClassVar[dict[str, Any]] = {"name": "breakthrough_v0", "render_modes": ["ansi"]}
    theory: ClassVar[Mapping[str, float]] = {"value_4x2": -1.0, "value_5x3": 1.0, "value_5x4": 1.0}  # rows x columns
    perfect_information = True

    def __init__(self, *, rows: int = 6, columns: int = 6, **options: Any) -> None:
        self.rows = whole_number("rows", rows, least=4, most=9)
        self.columns = whole_number("columns", columns, least=2, most=9)
        spiel = f"breakthrough(rows={rows},columns={columns})"
        self._words = list_words(spiel)
        super().__init__(spiel, **options)

    def rules(self) -> str:
        """Return the rules for the players, as one paragraph of text."""
        start = self.rows - 1 if self.rows >= 6 else self.rows
        return (
            f"Breakthrough: first has the pieces b and moves down, to row 1; second has w and moves up, to row "
            f"{self.rows}. Write from and to, such as a{start}a{start - 1}. A piece steps one row forward, "
            "straight or diagonally, to a free cell; diagonally it may also take an enemy piece. Who reaches the "
            "enemy's far row, or takes all enemy pieces, wins. The board shows its rows from the top."
        )

    def word(self, action: int) -> str:
        """Return the act's text for this OpenSpiel action: start and target cell, such as a5b4."""
        return self._words[action]

    def public(self) -> dict[str, Any]:
        """Return the board as text, rows separated by "/", each with its number and then its cells."""
        return {"board": "/".join([f"{line[0]} {line[1:]}" for line in str(self.state).splitlines()])}

    def private(self, seat: str) -> dict[str, Any]:
        """Return the letter of the seat's pieces, b or w, as `piece`. It is not secret."""
        return {"piece": "b" if seat == "first" else "w"}
