"""Connect four: discs fall down a column, and four in a line win. Rules by OpenSpiel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from games.base import whole_number
from games.families.openspiel import GameWithDraws

MAX_SIDE = 20  # rows or columns
WORDS = tuple(f"DROP {column}" for column in range(1, MAX_SIDE + 1))


class ConnectFour(GameWithDraws):
    """Connect four. Acts: DROP n (column n from the left). Payoffs: 1 for the winner, -1 for the loser.

    Additional options: draw, the payoff of both sides for a draw; rows and columns; connect, the number of discs in a
    line that win. Smaller boards are easier.
    """

    name = "connect_four"
    seats: tuple[str, ...] = ("first", "second")
    metadata: ClassVar[dict[str, Any]] = {"name": "connect_four_v0", "render_modes": ["ansi"]}
    # By rows x columns. The full board is a win for the first, too (Allis 1988), but too large to solve in a test.
    theory: ClassVar[Mapping[str, float]] = {"value_4x4": 0.0, "value_connect_3_on_4x4": 1.0}
    perfect_information = True

    def __init__(self, *, rows: int = 6, columns: int = 7, connect: int = 4, **options: Any) -> None:
        whole_number("rows", rows, least=1, most=MAX_SIDE)
        self.columns = whole_number("columns", columns, least=1, most=MAX_SIDE)
        self.connect = whole_number("connect", connect, least=2, most=max(rows, columns))
        super().__init__(f"connect_four(rows={rows},columns={columns},x_in_row={connect})", **options)

    def rules(self) -> str:
        """Return the rules for the players, as one paragraph of text."""
        return (
            f"Connect {self.connect}: first plays X, second O. DROP n lets your disc fall down column n "
            f"(1 to {self.columns} from the left). {self.connect} of your discs in a row, a column or a diagonal win."
            f"{self.draw_rule()} The board shows its rows from top to bottom."
        )

    def word(self, action: int) -> str:
        """Return the act's text for this OpenSpiel action: DROP and the column, from 1."""
        return WORDS[action]

    def public(self) -> dict[str, Any]:
        """Return `board`: its rows from the top, separated by "/", such as .../.O./XX. for three rows."""
        return {"board": str(self.state).rstrip().upper().replace("\n", "/")}

    def private(self, seat: str) -> dict[str, Any]:
        """Return the seat's `mark`, X or O, which is not secret."""
        return {"mark": "X" if seat == "first" else "O"}
