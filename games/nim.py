"""Nim: take from one pile at a time; the oldest game with a complete theory (Bouton 1901). Rules by OpenSpiel."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from games.base import flag, whole_number
from games.families.openspiel import OpenSpielGame

MAX_PILES, MAX_THINGS = 10, 20


class Nim(OpenSpielGame):
    """Nim. Acts: TAKE 3 B (three things from pile B). Payoffs 1 and -1, no draws.

    Options: piles, the sizes (1 to 20) of 1 to 10 piles; misere, whether taking the last thing loses instead of wins.
    With best play, the first to move loses exactly if the sizes' XOR is 0; in misere with only sizes 1, if it is 1.
    """

    name = "nim"
    seats: tuple[str, ...] = ("first", "second")
    metadata: ClassVar[dict[str, Any]] = {"name": "nim_v0", "render_modes": ["ansi"]}
    theory: ClassVar[Mapping[str, float]] = {"value": -1.0}  # of 1, 3, 5, 7, misere or not
    perfect_information = True

    def __init__(self, *, piles: Sequence[int] = (1, 3, 5, 7), misere: bool = False, **options: Any) -> None:
        if not isinstance(piles, list | tuple) or not 1 <= len(piles) <= MAX_PILES:
            raise ValueError(f"piles must be a list of 1 to {MAX_PILES} sizes, not {piles!r}")
        sizes = [whole_number("piles", size, least=1, most=MAX_THINGS) for size in piles]
        self.misere = flag("misere", misere)
        self.piles = len(sizes)
        super().__init__(f"nim(pile_sizes={';'.join(map(str, sizes))},is_misere={str(misere).lower()})", **options)

    def rules(self) -> str:
        """Return the rules for the players, as one paragraph of text."""
        return (
            "Nim: in turn, take any number of things from one pile: TAKE 2 B takes two from pile B. "
            f"Who takes the last thing of all {'loses' if self.misere else 'wins'}."
        )

    def word(self, action: int) -> str:
        """Return the act's text for this OpenSpiel action: TAKE, the number and the pile's letter."""
        taken_less_one, pile = divmod(action, self.piles)
        return f"TAKE {taken_less_one + 1} {string.ascii_uppercase[pile]}"

    def public(self) -> dict[str, Any]:
        """Return the current `piles` by letter, such as {"A": 1, "B": 3}."""
        sizes = [int(size) for size in str(self.state).split()[1:]]
        return {"piles": dict(zip(string.ascii_uppercase, sizes, strict=False))}
