"""OpenSpiel's games as text games, in OpenSpiel's own words (Lanctot et al. 2019)."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pyspiel

from games.families.openspiel import OpenSpielGame, load


class AnyOpenSpiel(OpenSpielGame):
    """Any game of OpenSpiel in its own words; game: its name, with parameters if any, such as `oh_hell(players=4)`.

    Where something is hidden the others read no acts: each seat sees what OpenSpiel says it knows.
    """

    name = "openspiel"
    metadata: ClassVar[dict[str, Any]] = {"name": "openspiel_v0", "render_modes": ["ansi"]}

    def __init__(self, game: str, **options: Any) -> None:
        kind = load(game).get_type()
        self.perfect_information = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
        super().__init__(game, **options)

    def rules(self) -> str:
        """Return the game's name and parameters, the seats, and how their interests relate."""
        kind, aims = self.spiel.get_type(), pyspiel.GameType.Utility
        aim = {aims.ZERO_SUM: "What one wins the others lose.", aims.IDENTICAL: "All are paid the same."}
        return (
            f"{kind.long_name}, by the rules of OpenSpiel's {self.spiel}. Seats: {', '.join(self.seats)}. "
            f"{aim.get(kind.utility, 'Each wants the most for itself.')} Play one of the legal acts, just as written."
        )

    def words(self, actions: list[int]) -> dict[str, int]:
        """Return OpenSpiel's action strings, with the action's number if a string is empty or not unique."""
        written = [(self.word(action), action) for action in actions]
        shared = Counter(word for word, _ in written)
        return {
            word if word and shared[word] == 1 else f"{word} #{action}".lstrip(): action for word, action in written
        }

    def heard_by_others(self, action: int, word: str) -> str:
        """Return the act if nothing is hidden, else ""."""
        return word if self.perfect_information else ""

    def verdict(self) -> tuple[str, str]:
        """Return "over" and the returns of all seats."""
        returns = ", ".join(f"{seat} {value:g}" for seat, value in zip(self.seats, self.returns(), strict=True))
        return "over", f"The match is over: {returns}."
