"""Remarks that a scripted negotiator adds to its acts: short, varied, and true to its values and act.

A remark reveals only the speaker's own values and correct numbers. It is drawn from all true remarks in the situation,
so that people and small models read arguments instead of a fixed phrase.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from agents.player import ScriptedPolicy
from agents.players.negotiators import WORTH, Triple, parse_view, remainder, worth
from games.contracts import View

MAX_REMARK_LENGTH = 60
"""Maximum characters of a remark."""
GOOD, POOR, LATE = 7, 4, 3
"""Minimum own value of a good deal, own value below which a deal is poor, and turns left at which time is short."""


class Situation(NamedTuple):
    """State of a negotiation, and the speaker's act, from which its remark is drawn. Shares are item counts by kind."""

    items: tuple[str, ...]
    """Names of the kinds."""
    pool: Triple
    """Number of items of each kind."""
    values: Triple
    """Value of one item of each kind to the speaker."""
    offer: Triple | None
    """Share that the other side demands; None without an offer."""
    demand: Triple | None
    """Share that the speaker demands now; None if it accepts."""
    last_demand: Triple | None
    """Share that the speaker demanded last; None before its first demand."""
    turns_left: int
    """Remaining turns, including this one."""

    @property
    def offer_value(self) -> int:
        """Value to the speaker of accepting the standing offer; 0 without one."""
        return worth(self.values, remainder(self.pool, self.offer)) if self.offer is not None else 0

    @property
    def favourite(self) -> int | None:
        """Index of the kind with the highest value per item; None if there are several."""
        best = [kind for kind, value in enumerate(self.values) if value == max(self.values)]
        return best[0] if len(best) == 1 else None


def remark(seen: Situation, rng: np.random.Generator, used: frozenset[str] = frozenset()) -> str:
    """Draw a true remark that fits the speaker's act, if possible not in `used`: one line of at most 60 characters."""
    fitting = [text for text in (_demand_remarks(seen) if seen.demand else _acceptance_remarks(seen)) if _fits(text)]
    fresh = [text for text in fitting if text not in used] or fitting
    return fresh[int(rng.integers(len(fresh)))]


def _fits(text: str) -> bool:
    return len(text) <= MAX_REMARK_LENGTH and "|" not in text and text.isprintable()


def _acceptance_remarks(seen: Situation) -> Iterator[str]:
    yield "Agreed."
    yield "Deal."
    yield f"Agreed, that is {seen.offer_value} of {WORTH} to me."
    if seen.offer_value >= GOOD:
        yield "With pleasure!"
        yield f"Gladly: {seen.offer_value} of {WORTH} is good for me."
    elif seen.offer_value < POOR:
        yield f"Only {seen.offer_value} of {WORTH} for me, but I take it."
    if seen.favourite is not None and seen.offer is not None and seen.offer[seen.favourite] == 0:
        yield f"Deal: I get all the {seen.items[seen.favourite]}, my favourites."


def _demand_remarks(seen: Situation) -> Iterator[str]:
    assert seen.demand is not None
    own = worth(seen.values, seen.demand)
    if seen.turns_left == 1:
        yield "Time is up, a pity."
        return
    yield f"That is worth {own} of {WORTH} to me."
    yield from _preference_remarks(seen, seen.demand)
    if seen.offer is None:
        yield "Let us begin with this."
        return
    if seen.turns_left <= LATE:
        yield "Time is running out, take this."
    if seen.offer_value < min(own, GOOD):
        yield f"Only {seen.offer_value} of {WORTH} for me? I want more."
        yield "You leave me too little."
    elif seen.offer_value < own:
        yield f"Close: {seen.offer_value} of {WORTH} for me. I want a little more."
    best = seen.favourite
    if best is not None and seen.offer[best] == seen.pool[best]:
        yield f"You would keep all the {seen.items[best]}, my favourites."
    if seen.last_demand is not None and own < worth(seen.values, seen.last_demand):
        yield "I ask for less than before."
        yield f"I come down to {own} of {WORTH}."
    if seen.last_demand == seen.demand:
        yield "I stay with my offer."


def _preference_remarks(seen: Situation, demanded: Triple) -> Iterator[str]:
    """Yield remarks on the kinds that the speaker values most or not at all, and on those that it leaves."""
    best = seen.favourite
    if best is not None:
        yield f"I care most about the {seen.items[best]}."
        yield f"Each of the {seen.items[best]} is worth {seen.values[best]} to me."
        if demanded[best] == seen.pool[best]:
            leftovers = (item for item, share in zip(seen.items, demanded, strict=True) if share == 0)
            yield from (f"I take the {seen.items[best]}, you take the {item}." for item in leftovers)
    for item, count, value, share in zip(seen.items, seen.pool, seen.values, demanded, strict=True):
        if value == 0:
            yield f"I have no use for the {item}."
        if share == 0 and count > 1:
            yield f"All the {item} are yours."


class TalkativeNegotiator:
    """Scripted negotiator that wraps another, `script`, and adds a random true remark to its acts."""

    def __init__(self, script: ScriptedPolicy, seed: int) -> None:
        self.script, self.rng = script, np.random.default_rng((seed, 1))
        self.used: frozenset[str] = frozenset()
        self.last_demand: Triple | None = None

    def act(self, view: View) -> str:
        """Return the scripted policy's act, with a new remark after "|" if it offers or accepts."""
        act = self.script.act(view)
        kind, _, numbers = act.partition(" ")
        if kind not in ("OFFER", "ACCEPT"):
            return act
        seen, demand = parse_view(view), tuple(map(int, numbers.split())) or None
        items = tuple(view.public["items"])
        situation = Situation(
            items=items,
            pool=seen.pool,
            values=seen.values,
            offer=seen.offer,
            demand=demand,
            last_demand=self.last_demand,
            turns_left=seen.turns_left,
        )
        self.last_demand = demand
        text = remark(situation, self.rng, self.used)
        self.used |= {text}
        return f"{act} | {text}"
