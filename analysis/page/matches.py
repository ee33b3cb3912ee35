"""Some matches of a run to read: the deal, then every act with its credit, then what it came to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.frames import Frames
from analysis.page.names import named
from analysis.page.texts import MOST, figure, harmless
from arena.store.schema import UNREAD

SHADES = 5
"""Steps of credit on either side of nothing."""
STRONG = 0.95
"""The quantile of the advantages' sizes from which on the colour is the strongest."""
BEGIN = END = MOST // 2
"""Turns that are shown of a long match: the first and the last ones."""
FACT = 300
"""Characters of a fact that are shown."""
Facts = Mapping[str, Any]
Dealt = Callable[[str, str, int, Sequence[tuple[str, str]]], Mapping[str, Facts]]
"""From a game, its options (JSON), a seed and acts by seat to the facts of each seat at first, and of all ("")."""


def matches(log: Frames, dealt: Dealt | None) -> Iterator[dict[str, Any]]:
    """The worst, the middle and the best paid of the first and the last iteration."""
    paid = log.seats.dropna(subset=["payoff"])
    own = paid[paid["trained"]] if bool(paid["trained"].any()) else paid  # of a zero-sum game all seats come to zero
    means = own.groupby(["iteration", "match"])["payoff"].mean()
    if own.groupby("match")["payoff"].mean().nunique() < 2:
        means = own.groupby(["iteration", "match"])["payoff"].first()
    table = means.reset_index()
    if table.empty:
        return
    sizes = log.turns["advantage"].dropna().abs().astype("float64")
    scale = float(sizes.quantile(STRONG)) if len(sizes) else 0.0
    scale = scale or float(sizes.max() if len(sizes) else 0.0)
    options = log.among("matches", ["match", "options"]).to_pandas()
    known = dict(zip(options["match"], options["options"], strict=True)) if "options" in options else {}
    for k in dict.fromkeys([table["iteration"].min(), table["iteration"].max()]):
        ranked = table[table["iteration"] == k].sort_values("payoff", kind="stable")["match"].tolist()
        places = {ranked[0]: "worst paid", ranked[len(ranked) // 2]: "middle", ranked[-1]: "best paid"}
        for match, place in places.items():
            yield _match(log, match, scale) | {"place": place} | _deal(log, match, known.get(match, "{}"), dealt)


def _match(log: Frames, match: str, scale: float) -> dict[str, Any]:
    head = log.matches[log.matches["match"] == match].iloc[0]
    turns = log.turns[log.turns["match"] == match].to_dict("records")
    seats = log.seats[log.seats["match"] == match].dropna(subset=["payoff"])
    told = [(str(name)[7:], head[name]) for name in head.index if str(name).startswith("report.")]
    return {
        "id": harmless(match),
        "game": harmless(head["game"]),
        "iteration": int(head["iteration"]),
        "turns": [_turn({str(name): value for name, value in turn.items()}, scale) for turn in turns[:BEGIN]],
        "left_out": max(0, len(turns) - MOST),
        "ending": [_turn({str(name): value for name, value in turn.items()}, scale) for turn in turns[BEGIN:][-END:]],
        "payoffs": [(harmless(s), f"{float(p):g}") for s, p in zip(seats["seat"], seats["payoff"], strict=True)][:MOST],
        "report": [
            (harmless(name), harmless(named(name).words), figure(value)) for name, value in told if not pd.isna(value)
        ][:MOST],
    }


def _deal(log: Frames, match: str, options: str, dealt: Dealt | None) -> dict[str, Any]:
    """List what was dealt, as (who, fact, value); nothing where the game's rules are not at hand."""
    row = log.matches[log.matches["match"] == match].iloc[0]
    turns = log.turns[log.turns["match"] == match].sort_values("turn")
    turns = turns[~turns["source"].isin(UNREAD)]
    acts = list(zip(turns["seat"].astype(str), turns["action"].fillna("").astype(str), strict=True))
    known = dealt(str(row["game"]), options, int(row["seed"]), acts) if dealt else {}
    deal = [
        (
            harmless(who or "all know"),
            [(harmless(name), harmless(value, FACT)) for name, value in facts[:MOST]],
        )
        for who, facts in facts_in_lines(known)
    ]  # fmt: skip
    return {"deal": deal}


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


def _turn(turn: dict[str, Any], scale: float) -> dict[str, Any]:
    given = not pd.isna(turn["advantage"])
    parts = [f"{harmless(n[7:])} {v:+.2f}" for n, v in turn.items() if n.startswith("reward.") and v]
    earned = f"earned {turn['reward']:+.2f}" + (f" ({', '.join(parts)})" if parts else "")
    shaded = shade(float(turn["advantage"]), scale) if given else "none"
    return {
        **{name: harmless(turn[name]) for name in ("seat", "role", "policy", "action", "public", "private")},
        "valid": bool(turn["valid"]),
        "shade": shaded,
        "mark": _mark(shaded),
        "credit": f"{earned}, advantage {turn['advantage']:+.3f}" if given else f"{earned}, not credited",
    }


def shade(advantage: float, scale: float) -> str:
    """The class of a turn's colour: c1 to c5 for better than expected, m1 to m5 for worse, c0 for neither.

    >>> shade(0.5, 1.0), shade(-9.0, 1.0), shade(0.01, 1.0)
    ('c3', 'm5', 'c0')
    """
    step = round(SHADES * min(1.0, abs(advantage) / scale) + 1e-9) if scale > 0 else 0
    return "c0" if not step else f"{'c' if advantage > 0 else 'm'}{step}"


def _mark(shaded: str) -> str:
    """The same without colour: how many signs, and which."""
    if shaded in ("none", "c0"):
        return "" if shaded == "none" else "±"
    return ("+" if shaded[0] == "c" else "\N{MINUS SIGN}") * (1 + (int(shaded[1]) - 1) // 2)
