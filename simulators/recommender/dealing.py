"""Dealing of matches: users, their friends, and a deal in which knowing them is worth something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from simulators.base import SimulatorFault
from simulators.recommender import yardstick
from simulators.recommender.index import Shelf
from simulators.recommender.population import friendships, segments_of, tastes
from simulators.recommender.record import Floats, Record
from simulators.recommender.service import Deal, Limits

DEALS = 200
"""Deals drawn before it counts as impossible that knowing the users pays."""

Draw = Callable[[np.random.Generator, Floats, int], Record]
"""A user from a generator, its segment's Dirichlet parameters [genres] and its segment."""


@dataclass(frozen=True)
class Table:
    """Settings that deals are drawn from."""

    shelf: Shelf
    limits: Limits
    users: int
    concentration: Floats
    """Dirichlet parameters [genres] of the population's tastes."""

    def deal(self, rng: np.random.Generator, draw: Draw) -> tuple[Deal, yardstick.Yardstick]:
        """The first deal in which knowing its users is worth something, and what it is worth.

        Worth something be they patient or not: so the users of a seed are the same whatever the persona, unless it is
        mixed, which is drawn too.
        """
        for _ in range(DEALS):
            own, draws = rng.spawn(2)
            segments = segments_of(self.users)
            parameters = tastes(own, self.concentration, segments[-1] + 1)
            dealt = self.made(own, tuple(draw(draws, parameters[segment], segment) for segment in segments))
            sticks = {manner: yardstick.measure(dealt.with_manner(manner)) for manner in ("cooperative", "impatient")}
            if all(stick.oracle - stick.random >= yardstick.MARGIN * self.users for stick in sticks.values()):
                return dealt, self._stick(dealt, sticks)
        raise SimulatorFault(f"in none of {DEALS} deals it helps to know the user: offer more candidates, or pages")

    def made(self, rng: np.random.Generator, records: tuple[Record, ...]) -> Deal:
        """The deal of these users, with chance from rng."""
        key, graph = int(rng.integers(2**53)), int(rng.integers(2**31))
        return Deal(self.shelf, self.limits, records, friendships(segments_of(len(records)), graph), key)

    def _stick(self, dealt: Deal, sticks: Mapping[str, yardstick.Yardstick]) -> yardstick.Yardstick:
        """The measure of this deal; where nobody is impatient, or everybody, it was taken already."""
        hasty = {record.persona == "impatient" for record in dealt.records}
        if len(hasty) > 1:
            return yardstick.measure(dealt)
        return sticks["impatient" if hasty == {True} else "cooperative"]
