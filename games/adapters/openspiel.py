"""OpenSpiel's games as text games, in OpenSpiel's own words (Lanctot et al. 2019)."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pyspiel

from games.families.openspiel import OpenSpielGame, load


class AnyOpenSpiel(OpenSpielGame):
    """Any OpenSpiel game in OpenSpiel's own words; `game` is its name with parameters, as `oh_hell(players=4)`.

    With hidden information, other seats do not read an act; each seat sees only OpenSpiel's observation for it.
    """

    name = "openspiel"
    metadata: ClassVar[dict[str, Any]] = {"name": "openspiel_v0", "render_modes": ["ansi"]}

    def __init__(self, game: str, **options: Any) -> None:
        kind = load(game).get_type()
        self.perfect_information = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
        super().__init__(game, **options)

    def rules(self) -> str:
        """Return the game's name and parameters, the seats, and whether it is zero-sum or cooperative, as one text."""
        kind, aims = self.spiel.get_type(), pyspiel.GameType.Utility
        aim = {aims.ZERO_SUM: "What one wins the others lose.", aims.IDENTICAL: "All are paid the same."}
        return (
            f"{kind.long_name}, by the rules of OpenSpiel's {self.spiel}. Seats: {', '.join(self.seats)}. "
            f"{aim.get(kind.utility, 'Each wants the most for itself.')} Play one of the legal acts, just as written."
        )

    def words(self, actions: list[int]) -> dict[str, int]:
        """Map act texts to OpenSpiel's actions. An empty or repeated text gets " #" and the action number appended."""
        written = [(self.word(action), action) for action in actions]
        shared = Counter(word for word, _ in written)
        return {
            word if word and shared[word] == 1 else f"{word} #{action}".lstrip(): action for word, action in written
        }

    def text_for_others(self, action: int, word: str) -> str:
        """Return the act's text for the other seats: the text itself with perfect information, else ""."""
        return word if self.perfect_information else ""

    def verdict(self) -> tuple[str, str]:
        """Return the reason of the end, always "over", and an announcement of every seat's payoff."""
        returns = ", ".join(f"{seat} {value:g}" for seat, value in zip(self.seats, self.returns(), strict=True))
        return "over", f"The match is over: {returns}."
