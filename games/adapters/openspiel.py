"""OpenSpiel's games as text games, with OpenSpiel's own texts for acts and observations (Lanctot et al. 2019)."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pyspiel

from games.families.openspiel import OpenSpielGame, load


class AnyOpenSpiel(OpenSpielGame):
    """Any OpenSpiel game; `game` is its name with parameters, such as `oh_hell(players=4)`.

    In a game with hidden information, acts are not shown to other seats; each seat sees only its own observation.
    """

    name = "openspiel"
    metadata: ClassVar[dict[str, Any]] = {"name": "openspiel_v0", "render_modes": ["ansi"]}

    def __init__(self, game: str, **options: Any) -> None:
        kind = load(game).get_type()
        self.perfect_information = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
        super().__init__(game, **options)

    def rules(self) -> str:
        """Return the game's name and parameters, the seats, and how the payoffs relate, as one text."""
        kind, aims = self.spiel.get_type(), pyspiel.GameType.Utility
        aim = {aims.ZERO_SUM: "What one wins the others lose.", aims.IDENTICAL: "All are paid the same."}
        return (
            f"{kind.long_name}, by the rules of OpenSpiel's {self.spiel}. Seats: {', '.join(self.seats)}. "
            f"{aim.get(kind.utility, 'Each wants the most for itself.')} Play one of the legal acts, just as written."
        )

    def words(self, actions: list[int]) -> dict[str, int]:
        """Return the actions by act text. "#" and the action number are appended to an empty or repeated text."""
        texts = [(self.word(action), action) for action in actions]
        counts = Counter(word for word, _ in texts)
        return {word if word and counts[word] == 1 else f"{word} #{action}".lstrip(): action for word, action in texts}

    def text_for_others(self, action: int, word: str) -> str:
        """Return the act's text for the other seats: the text itself with perfect information, else ""."""
        return word if self.perfect_information else ""

    def verdict(self) -> tuple[str, str]:
        """Return the reason why the match ended, always "over", and an announcement of every seat's payoff."""
        returns = ", ".join(f"{seat} {value:g}" for seat, value in zip(self.seats, self.returns(), strict=True))
        return "over", f"The match is over: {returns}."
