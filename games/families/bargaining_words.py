"""Plain-language texts of a negotiation, for people: the pool, the offers, the outcome.

All functions are pure. Their arguments contain only information that the reader of the text may have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from games.families.bargaining import Answer, Deal
from games.families.pools import WORTH, Triple, remainder, worth

PLURAL = re.compile(r"(?<=x|z)es$|(?<=ch|sh|ss)es$|(?<=[^su])s$")
"""Plural ending of a kind of items, such as boxes, hats and glasses."""
Rows = list[tuple[str, ...]]
NOTHING = "nothing"


class Side(NamedTuple):
    """A negotiation as one of its sides knows it."""

    items: tuple[str, ...]
    pool: Triple
    own: Triple
    """Value of one item of each kind to this side."""
    other: Triple | None
    """Value of one item of each kind to the other side; None if unknown."""
    splits: Sequence[tuple[str, int, int]] = ()
    """Pareto-optimal splits, if the game shows them: this side's share, its value, and the rest's to the other side."""


class Limits(NamedTuple):
    """Options of a negotiation that limit its length and its talk."""

    turns: int
    """Maximum turns of both sides together."""
    breakdown: float
    """Probability that a counteroffer ends the talks without a deal."""
    talk: bool
    """Whether remarks are delivered."""


def singular(item: str) -> str:
    """Return the singular of a kind of items, such as `book` for `books`. Names in the singular stay unchanged."""
    return PLURAL.sub("", item)


def describe_share(share: Triple, items: Sequence[str], last: str = " and ") -> str:
    """Return a share in words, such as `1 book and 2 hats`, without zero counts. `last` comes before the last kind."""
    parts = [f"{n} {singular(item) if n == 1 else item}" for n, item in zip(share, items, strict=True) if n]
    return last.join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts or [NOTHING])


def describe_values(values: Triple, items: Sequence[str]) -> str:
    """Return the value of one item of each kind in words, such as `book 1, hat 3, ball 1`."""
    return ", ".join(f"{singular(item)} {value}" for item, value in zip(items, values, strict=True))


def write_introduction(side: Side, limits: Limits, moves_first: bool) -> str:
    """Explain to one side the pool, its values, how to type an act, and how the talks end."""
    items, pool, own = side.items, side.pool, side.own
    other_values = (
        f"{describe_values(side.other, items)}." if side.other else f"you are not told; all together {WORTH}, too."
    )
    kind = max(range(3), key=lambda k: own[k] * pool[k])
    share = tuple(count if k == kind else 0 for k, count in enumerate(pool))
    offer = "OFFER {} {} {}".format(*share)
    talk = f" Talk may follow after |, as in `{offer} | Deal?`." if limits.talk else ""
    split_texts = "; ".join(
        f"OFFER {share}, {own_worth} to you and {other_worth} to them" for share, own_worth, other_worth in side.splits
    )
    risk = f" An offer that answers an offer ends the talks with chance {limits.breakdown:g}."
    return "\n".join(
        [
            f"You and another side divide {describe_share(pool, items)}.",
            f"Worth to you, each: {describe_values(own, items)}; all together {WORTH}.",
            f"Worth to them, each: {other_values}",
            *([f"Nothing is wasted by {split_texts}."] if split_texts else []),
            f"Say what you would take, of {', '.join(items)} in this order: {offer} asks for "
            f"{describe_share(share, items)}, worth {worth(own, share)} of {WORTH} to you, and leaves them "
            f"{describe_share(remainder(pool, share), items)}.",
            f"ACCEPT takes what they offer; WALK ends the talks. No deal, nothing for anybody.{talk}",
            f"{_format_turns(limits.turns)} in all, {'yours' if moves_first else 'theirs'} is the first."
            f"{risk if limits.breakdown else ''}",
        ]
    )


def describe_act(answer: Answer, items: Sequence[str]) -> str:
    """Describe an act of the other side in a sentence."""
    if isinstance(answer, str):
        return {"ACCEPT": "They accept.", "WALK": "They walk away."}[answer]
    return f"They want {describe_share(answer, items)}."


def describe_offer(side: Side, offer: Triple | None) -> str:
    """Describe the other side's standing offer: its share and the remainder, with their values."""
    if offer is None:
        return "No offer lies on the table yet."
    rest = remainder(side.pool, offer)
    own_part = f"you would get {describe_share(rest, side.items)}, worth {worth(side.own, rest)} of {WORTH} to you"
    other_part = f"; theirs would be worth {worth(side.other, offer)} to them" if side.other else ""
    return f"They would take {describe_share(offer, side.items)}; {own_part}{other_part}."


def describe_time_left(turns_left: int, has_offer: bool, breakdown: float) -> str:
    """Describe how many turns are left, including this one, and, if there is an offer, the risk of a counteroffer."""
    if turns_left == 1:
        return "This is the last turn: ACCEPT, or there is no deal." if has_offer else "This is the last turn."
    risk = f" Another offer ends the talks with chance {breakdown:g}." if has_offer and breakdown else ""
    return f"{_format_turns(turns_left)} left, this one included.{risk}"


def _format_turns(count: int) -> str:
    return f"{count} turn{'s' if count > 1 else ''}"


class Outcome(NamedTuple):
    """An ended negotiation with all hidden information. Pairs have the side that moves first first."""

    seats: tuple[str, ...]
    items: tuple[str, ...]
    pool: Triple
    values: tuple[Triple, Triple]
    shares: tuple[Triple, Triple] | None
    """Each side's share in the deal or, without a deal, in the last offer; None if there was no offer."""
    deal: bool
    reason: str
    """Reason why there is no deal, such as `they walked away`."""
    best: int
    """Highest possible sum of payoffs."""
    nash: tuple[Deal, ...]
    """Payoffs of the Nash bargaining solutions."""
    perfect: Deal | None
    """Subgame-perfect deal; None if values are private."""


def name_seats(seats: Sequence[str], people: Sequence[str]) -> dict[str, str]:
    """Return each seat's name in texts: `you` and `they` if there is a single human reader, else the seat itself."""
    if len(people) != 1:
        return {seat: seat for seat in seats}
    return {seat: "you" if seat == people[0] else "they" for seat in seats}


def compare_with_theory(outcome: Outcome, names: Mapping[str, str]) -> Rows:
    """Return a table as rows, header first, that compares each side's share and its value with theory."""
    rows = [("", *(names[seat] for seat in outcome.seats), "sum")]
    if outcome.shares:
        share_texts = [describe_share(share, outcome.items, ", ") for share in outcome.shares]
        rows.append(("got" if outcome.deal else "on the table", *share_texts, ""))
    payoffs = _compute_payoffs(outcome)
    rows += [
        ("value per item", *(describe_values(own, outcome.items) for own in outcome.values), ""),
        ("value", *map(str, payoffs), str(sum(payoffs))),
        ("best joint value", "", "", str(outcome.best)),
        (
            "Nash bargaining",
            *_join_sides(outcome.nash),
            " or ".join(dict.fromkeys(str(sum(deal)) for deal in outcome.nash)),
        ),
    ]
    if outcome.perfect:
        rows.append(("subgame-perfect", *map(str, outcome.perfect), str(sum(outcome.perfect))))
    return rows


def summarise(outcome: Outcome, names: Mapping[str, str]) -> str:
    """Return a summary of how the talks ended, what each side got, and theory. It addresses the side named `you`."""
    lines = []
    if not outcome.deal:
        lines.append(f"No deal: {outcome.reason}.")
        if outcome.shares:
            results = (
                f"{names[seat]} would get {describe_share(share, outcome.items)}, worth {worth(own, share)} of {WORTH}"
                for seat, share, own in zip(outcome.seats, outcome.shares, outcome.values, strict=True)
            )
            lines.append(f"On the table lay: {'; '.join(results)}.")
    index = next((place for place, seat in enumerate(outcome.seats) if names[seat] == "you"), None)
    payoffs = _compute_payoffs(outcome)
    if index is None:
        first, second = outcome.seats
        clauses = [f"{first} got {payoffs[0]} of {WORTH}, {second} {payoffs[1]}"]
        clauses += [f"{name} would have given {first} {a}, {second} {b}" for name, (a, b) in _list_theories(outcome)]
    else:
        clauses = [f"You got {payoffs[index]} of {WORTH}"]
        clauses += [
            f"{name} would have given you {d[index]}, the other side {d[1 - index]}"
            for name, d in _list_theories(outcome)
        ]
    return "\n".join([*lines, "; ".join(clauses) + "."])


def _compute_payoffs(outcome: Outcome) -> list[int]:
    if not (outcome.deal and outcome.shares):
        return [0, 0]
    return [worth(own, share) for own, share in zip(outcome.values, outcome.shares, strict=True)]


def _list_theories(outcome: Outcome) -> list[tuple[str, Sequence[object]]]:
    perfect: list[tuple[str, Sequence[object]]] = [("subgame-perfect play", outcome.perfect)] if outcome.perfect else []
    return [("Nash", _join_sides(outcome.nash)), *perfect]


def _join_sides(deals: Sequence[Deal]) -> list[str]:
    return [" or ".join(map(str, side)) for side in zip(*deals, strict=True)]
