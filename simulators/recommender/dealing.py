"""Validate the options of deals, and draw deals in which a recommender that knows the users gains enough joy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from games.base import choice, whole_number
from simulators.base import SimulatorFault
from simulators.embedding import EMBEDDINGS, Embedding
from simulators.recommender import yardstick
from simulators.recommender.catalogue import MAX_ITEMS, MIN_ITEMS
from simulators.recommender.index import Key, Shelf
from simulators.recommender.population import assign_segments, draw_friendships, draw_segment_tastes
from simulators.recommender.ratings import fit_population
from simulators.recommender.record import Floats, Record
from simulators.recommender.service import Deal, Limits

DEALS = 200
"""Number of draws after which the search for a suitable deal fails."""

Draw = Callable[[np.random.Generator, Floats, int], Record]
"""Function that draws a user, given a generator, the Dirichlet parameters [genres] of its segment, and the segment."""


@dataclass(frozen=True)
class DealSettings:
    """Settings of a game from which its deals are drawn."""

    shelf: Shelf
    limits: Limits
    users: int
    concentration: Floats
    """Dirichlet parameters [genres] of the population's tastes."""

    def draw_deal(self, rng: np.random.Generator, draw: Draw) -> tuple[Deal, yardstick.Yardstick]:
        """Draw a deal in which knowing the users gains enough joy (`MARGIN`). Returns it with its reference scores.

        The gain is required with all users patient, and again with all impatient. A seed therefore gives the same users
        for every persona except "mixed", which is drawn too. Raises SimulatorFault after `DEALS` draws.
        """
        for _ in range(DEALS):
            deal_rng, user_rng = rng.spawn(2)
            segments = assign_segments(self.users)
            parameters = draw_segment_tastes(deal_rng, self.concentration, segments[-1] + 1)
            users = tuple(draw(user_rng, parameters[segment], segment) for segment in segments)
            deal = self.make_deal(deal_rng, users)
            references = {name: yardstick.measure(deal.with_persona(name)) for name in ("cooperative", "impatient")}
            if all(each.oracle - each.random >= yardstick.MARGIN * self.users for each in references.values()):
                return deal, self._choose_reference(deal, references)
        raise SimulatorFault(f"knowing the users gains too little in {DEALS} deals: offer more candidates or pages")

    def make_deal(self, rng: np.random.Generator, records: tuple[Record, ...]) -> Deal:
        """Create a deal with these users. Draws their friendships and the key of its random draws from `rng`."""
        key, graph = int(rng.integers(2**53)), int(rng.integers(2**31))
        return Deal(self.shelf, self.limits, records, draw_friendships(assign_segments(len(records)), graph), key)

    def _choose_reference(self, deal: Deal, references: Mapping[str, yardstick.Yardstick]) -> yardstick.Yardstick:
        """Return the deal's reference scores, from `references` by persona if all users are impatient or none is."""
        impatience = {record.persona == "impatient" for record in deal.records}
        if len(impatience) > 1:
            return yardstick.measure(deal)
        return references["impatient" if impatience == {True} else "cooperative"]


def make_shelf_key(
    catalogue: int | str, edition: int, embedding: Embedding, ratings: str, steepness: float | None
) -> tuple[Key, tuple[float, ...]]:
    """Validate options. Returns the shelf's key, and the Dirichlet parameters fitted to ratings (() without ratings).

    Raises ValueError for an invalid option or file.
    """
    source = catalogue if isinstance(catalogue, str) else whole_number("catalogue", catalogue, MIN_ITEMS, MAX_ITEMS)
    choice("embedding", embedding, *EMBEDDINGS)
    key = Key(source, whole_number("edition", edition, 0), embedding)
    if not isinstance(ratings, str):
        raise ValueError(f"ratings must be the name of a CSV file, not {ratings!r}")
    if not ratings:
        return key, ()
    if steepness is not None or isinstance(source, str):
        raise ValueError("ratings hold genres and tastes: leave out steepness and catalogue files")
    genres, concentration = fit_population(ratings)
    return key._replace(genres=genres), concentration


def make_limits(days: int, pages: int, slate: int, candidates: int, terse: bool) -> Limits:
    """Validate and return the sizes of a match. Raises ValueError, for example for fewer candidates than `slate`."""
    slate_size = whole_number("slate", slate, 1, 10)
    return Limits(
        days=whole_number("days", days, 1, 100),
        pages=whole_number("pages", pages, 1, 100),
        slate=slate_size,
        candidates=whole_number("candidates", candidates, slate_size, 9 if terse else MIN_ITEMS),
        explained=not terse,
    )
