"""The matches of a run to read first, and the facts of a deal in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from analysis.frames import Frames

Facts = Mapping[str, Any]
Dealt = Callable[[str, str, int, Sequence[tuple[str, str]]], Mapping[str, Facts]]
"""From a game, its options (JSON), a seed and acts by seat to the facts of each seat at first, and of all ("")."""


def telling(log: Frames) -> dict[str, str]:
    """Ids of the worst, the middle and the best paid of the first and the last iteration, each with what it is."""
    paid = log.seats.dropna(subset=["payoff"])
    own = paid[paid["trained"]] if bool(paid["trained"].any()) else paid  # of a zero-sum game all seats come to zero
    means = own.groupby(["iteration", "match"])["payoff"].mean()
    if own.groupby("match")["payoff"].mean().nunique() < 2:
        means = own.groupby(["iteration", "match"])["payoff"].first()
    table, found = means.reset_index(), dict[str, str]()
    for k in dict.fromkeys([table["iteration"].min(), table["iteration"].max()]) if len(table) else ():
        ranked = table[table["iteration"] == k].sort_values("payoff", kind="stable")["match"].tolist()
        found |= {ranked[0]: "worst paid", ranked[len(ranked) // 2]: "middle", ranked[-1]: "best paid"}
    return found


def facts_in_lines(known: Mapping[str, Facts]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A deal's facts in words, by seat ("" for all), where there are any.

    >>> list(facts_in_lines({"": {"items": ["hat"], "in_pool": [2]}, "opener": {}}))
    [('', [('in pool', 'hat 2')])]
    """
    items = known.get("", {}).get("items", ())
    for who, facts in known.items():
        if told := [(name.replace("_", " "), _fact(v, items)) for name, v in facts.items() if name != "items"]:
            yield who, told


def _fact(value: Any, items: Sequence[str]) -> str:
    """A fact in one line; a number for each of the game's `items` stands after the item's name."""
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {_fact(inner, items)}" for key, inner in value.items())
    if not isinstance(value, Sequence) or isinstance(value, str):
        return str(value)
    if len(value) == len(items) and all(isinstance(inner, int) for inner in value):
        return ", ".join(f"{item} {count}" for item, count in zip(items, value, strict=True))
    return ", ".join(f"({_fact(inner, ())})" if isinstance(inner, list | tuple) else str(inner) for inner in value)
