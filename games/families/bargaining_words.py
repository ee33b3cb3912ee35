"""Plain-language texts of a negotiation, for people: the pool, the offers, the outcome.

All functions are pure, and receive only the information that their reader may have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from games.families.bargaining import Answer, Deal
from games.families.pools import WORTH, Triple, remainder, worth

PLURAL = re.compile(r"(?<=x|z)es$|(?<=ch|sh|ss)es$|(?<=[^su])s$")
"""Plural ending of a kind of items such as boxes, hats and glasses."""
Rows = list[tuple[str, ...]]
NOTHING = "nothing"


class Side(NamedTuple):
    """Negotiation with only the information that one of its sides may have."""

    items: tuple[str, ...]
    pool: Triple
    own: Triple
    """Worth of one item of each kind to this side."""
    other: Triple | None
    """Worth of one item of each kind to the other side, or None if unknown."""
    splits: Sequence[tuple[str, int, int]] = ()
    """Efficient splits, if shown: this side's share, its worth to this side, and the rest's worth to the other side."""


class Limits(NamedTuple):
    """Number of turns, chance of breakdown per counteroffer, and whether talk is delivered."""

    turns: int
    breakdown: float
    talk: bool


def singular(item: str) -> str:
    """Return the name of one item of a kind: `books` gives `book`; other names stay as they are."""
    return PLURAL.sub("", item)


def describe_share(share: Triple, items: Sequence[str], last: str = " and ") -> str:
    """Return a share in words, such as `1 book and 2 hats`; `last` joins the last kind. Zero counts are omitted."""
    parts = [f"{n} {singular(item) if n == 1 else item}" for n, item in zip(share, items, strict=True) if n]
    return last.join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts or [NOTHING])


def describe_values(values: Triple, items: Sequence[str]) -> str:
    """Return the worth of one item of each kind, such as `book 1, hat 3, ball 1`."""
    return ", ".join(f"{singular(item)} {value}" for item, value in zip(items, values, strict=True))


def write_introduction(side: Side, limits: Limits, moves_first: bool) -> str:
    """Explain to one side the pool, its worth, how to type an act, and how the talks end.

    `moves_first` tells whether this side moves first.
    """
    items, pool, own = side.items, side.pool, side.own
    theirs = f"{describe_values(side.other, items)}." if side.other else f"you are not told; all together {WORTH}, too."
    kind = max(range(3), key=lambda k: own[k] * pool[k])
    share = tuple(count if k == kind else 0 for k, count in enumerate(pool))
    offer = "OFFER {} {} {}".format(*share)
    talk = f" Talk may follow after |, as in `{offer} | Deal?`." if limits.talk else ""
    shown = "; ".join(f"OFFER {share}, {mine} to you and {yours} to them" for share, mine, yours in side.splits)
    risk = f" An offer that answers an offer ends the talks with chance {limits.breakdown:g}."
    return "\n".join(
        [
            f"You and another side divide {describe_share(pool, items)}.",
            f"Worth to you, each: {describe_values(own, items)}; all together {WORTH}.",
            f"Worth to them, each: {theirs}",
            *([f"Nothing is wasted by {shown}."] if shown else []),
            f"Say what you would take, of {', '.join(items)} in this order: {offer} asks for "
            f"{describe_share(share, items)}, worth {worth(own, share)} of {WORTH} to you, and leaves them "
            f"{describe_share(remainder(pool, share), items)}.",
            f"ACCEPT takes what they offer; WALK ends the talks. No deal, nothing for anybody.{talk}",
            f"{_turns(limits.turns)} in all, {'yours' if moves_first else 'theirs'} is the first."
            f"{risk if limits.breakdown else ''}",
        ]
    )


def describe_act(answer: Answer, items: Sequence[str]) -> str:
    """Describe an act of the other side in a sentence."""
    if isinstance(answer, str):
        return {"ACCEPT": "They accept.", "WALK": "They walk away."}[answer]
    return f"They want {describe_share(answer, items)}."


def describe_offer(side: Side, offer: Triple | None) -> str:
    """Describe the other side's standing offer (its demanded share) and the remainder, with both worths."""
    if offer is None:
        return "No offer lies on the table yet."
    left = remainder(side.pool, offer)
    gets = f"you would get {describe_share(left, side.items)}, worth {worth(side.own, left)} of {WORTH} to you"
    theirs = f"; theirs would be worth {worth(side.other, offer)} to them" if side.other else ""
    return f"They would take {describe_share(offer, side.items)}; {gets}{theirs}."


def describe_time_left(left: int, offered: bool, breakdown: float) -> str:
    """Describe how many turns are left, including this one, and after an offer the risk of breakdown."""
    if left == 1:
        return "This is the last turn: ACCEPT, or there is no deal." if offered else "This is the last turn."
    risk = f" Another offer ends the talks with chance {breakdown:g}." if offered and breakdown else ""
    return f"{_turns(left)} left, this one included.{risk}"


def _turns(count: int) -> str:
    return f"{count} turn{'s' if count > 1 else ''}"


class Outcome(NamedTuple):
    """Result of a negotiation, with all hidden information. Pairs are in the order in which the seats move."""

    seats: tuple[str, ...]
    items: tuple[str, ...]
    pool: Triple
    values: tuple[Triple, Triple]
    shares: tuple[Triple, Triple] | None
    """Share of each side in the deal or, without a deal, in the last offer. None if there was no offer."""
    deal: bool
    why: str
    """Reason why there is no deal, such as `they walked away`."""
    best: int
    """Highest possible sum of payoffs."""
    nash: tuple[Deal, ...]
    """Payoffs of the Nash bargaining solutions."""
    perfect: Deal | None
    """Payoffs of subgame-perfect play, if theory has a solution."""


def name_seats(seats: Sequence[str], people: Sequence[str]) -> dict[str, str]:
    """Return the name to use for each seat: `you` and `they` for a single human reader, else the seat's own name."""
    if len(people) != 1:
        return {seat: seat for seat in seats}
    return {seat: "you" if seat == people[0] else "they" for seat in seats}


def compare_with_theory(outcome: Outcome, names: Mapping[str, str]) -> Rows:
    """Return rows of cells, header first, that compare each side's share and its worth with theoretical results."""
    rows = [("", *(names[seat] for seat in outcome.seats), "sum")]
    if outcome.shares:
        held = [describe_share(share, outcome.items, ", ") for share in outcome.shares]
        rows.append(("got" if outcome.deal else "on the table", *held, ""))
    payoffs = _payoffs(outcome)
    rows += [
        ("value per item", *(describe_values(own, outcome.items) for own in outcome.values), ""),
        ("value", *map(str, payoffs), str(sum(payoffs))),
        ("best joint value", "", "", str(outcome.best)),
        (
            "Nash bargaining",
            *_either(outcome.nash),
            " or ".join(dict.fromkeys(str(sum(deal)) for deal in outcome.nash)),
        ),
    ]
    if outcome.perfect:
        rows.append(("subgame-perfect", *map(str, outcome.perfect), str(sum(outcome.perfect))))
    return rows


def summarise(outcome: Outcome, names: Mapping[str, str]) -> str:
    """Describe how the talks ended, both payoffs and the theory's, and address the side called `you`, if any."""
    lines = []
    if not outcome.deal:
        lines.append(f"No deal: {outcome.why}.")
        if outcome.shares:
            would = (
                f"{names[seat]} would get {describe_share(share, outcome.items)}, worth {worth(own, share)} of {WORTH}"
                for seat, share, own in zip(outcome.seats, outcome.shares, outcome.values, strict=True)
            )
            lines.append(f"On the table lay: {'; '.join(would)}.")
    me = next((place for place, seat in enumerate(outcome.seats) if names[seat] == "you"), None)
    payoffs = _payoffs(outcome)
    if me is None:
        first, second = outcome.seats
        told = [f"{first} got {payoffs[0]} of {WORTH}, {second} {payoffs[1]}"]
        told += [f"{who} would have given {first} {a}, {second} {b}" for who, (a, b) in _theories(outcome)]
    else:
        told = [f"You got {payoffs[me]} of {WORTH}"]
        told += [f"{who} would have given you {d[me]}, the other side {d[1 - me]}" for who, d in _theories(outcome)]
    return "\n".join([*lines, "; ".join(told) + "."])


def _payoffs(outcome: Outcome) -> list[int]:
    if not (outcome.deal and outcome.shares):
        return [0, 0]
    return [worth(own, share) for own, share in zip(outcome.values, outcome.shares, strict=True)]


def _theories(outcome: Outcome) -> list[tuple[str, Sequence[object]]]:
    perfect: list[tuple[str, Sequence[object]]] = [("subgame-perfect play", outcome.perfect)] if outcome.perfect else []
    return [("Nash", _either(outcome.nash)), *perfect]


def _either(deals: Sequence[Deal]) -> list[str]:
    return [" or ".join(map(str, side)) for side in zip(*deals, strict=True)]
