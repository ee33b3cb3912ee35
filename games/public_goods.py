"""Public goods game: coins kept stay private, coins given are multiplied and shared (Ledyard 1995)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from games.base import MAX_LISTED, TALK, number, whole_number
from games.families.simultaneous import ROUND, SimultaneousGame, read_number


class PublicGoods(SimultaneousGame):
    """Public goods game. Acts: GIVE n, hidden until all have chosen.

    A round pays each seat endowment - n + multiplier * total / players, in reward part "round". Options besides
    TextGame's: players 3 to 6; endowment >= 1, the coins of each seat per round; multiplier >= 0; rounds >= 1;
    continuation, the probability of another round. `theory` is a seat's payoff in one round at the defaults: in
    equilibrium, where nobody gives, and at best, if all give everything.
    """

    name = "public_goods"
    metadata: ClassVar[dict[str, Any]] = {"name": "public_goods_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {ROUND: "the round's payoff"}
    theory: ClassVar[Mapping[str, float]] = {"equilibrium_payoff": 10.0, "best_mean_payoff": 15.0}

    def __init__(
        self, *, players: int = 3, endowment: int = 10, multiplier: float = 1.5, rounds: int = 3, **options: Any
    ) -> None:
        self.seats = tuple(f"player_{i}" for i in range(whole_number("players", players, least=3, most=6)))
        self.endowment = whole_number("endowment", endowment, least=1, most=MAX_LISTED)
        self.multiplier = number("multiplier", multiplier)
        super().__init__(rounds=rounds, **options)

    def rules(self) -> str:
        """Return the rules as one paragraph: the aim, the act, the payoff of a round."""
        talk = TALK if self.talk else ""
        return (
            f"Public goods: in each round each of {len(self.seats)} players has {self.endowment} coins. GIVE n puts n "
            f"into the pot and keeps the rest; all choose at once. The pot times {self.multiplier:g} is shared "
            f"equally. {self.describe_length()}{talk}"
        )

    def public(self) -> dict[str, Any]:
        """Return the rounds and past choices (see the base class), and the `endowment` of each seat per round."""
        return {**super().public(), "endowment": self.endowment}

    def legal(self, seat: str) -> list[str]:
        """Return GIVE 0 to GIVE endowment."""
        return [f"GIVE {n}" for n in range(self.endowment + 1)]

    def read(self, seat: str, act: str) -> int:
        """Parse the act GIVE n to n. Raises IllegalAct unless n is from 0 to the endowment."""
        return read_number("GIVE", self.endowment, act)

    def settle(self, choices: list[int]) -> None:
        """Pay each seat its remaining coins and an equal share of the multiplied pot, and announce all gifts."""
        share = self.multiplier * sum(choices) / len(choices)
        for seat, gift in zip(self.seats, choices, strict=True):
            self.pay(seat, ROUND, self.endowment - gift + share)
        gifts = ", ".join(f"{seat} {gift}" for seat, gift in zip(self.seats, choices, strict=True))
        self.tell(f"Round {len(self.history)}: gave {gifts}; everybody gets {share:.4g}.")

    def figures(self) -> dict[str, float | bool | str]:
        """Return the number of `rounds` played, and `given`: the share of all coins that was given."""
        coins = max(1, len(self.history)) * len(self.seats) * self.endowment
        return {"rounds": len(self.history), "given": sum(map(sum, self.history)) / coins}
