"""The league of a run as a graph with a payoff table, and its alarms, for the viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from analysis.alarms import alarms
from analysis.frames import Frames, load
from analysis.league import alpha_rank, beats, cycles, pairs, payoff_matrix, ratings
from analysis.view.formatting import sanitize
from arena.errors import ConfigError
from arena.plain import printable
from arena.store.reader import RunReader

MIN_MATCHES = 20_000
"""The league covers the newest iterations with at least this many matches, because ratings take time."""
MAX_NODES, MAX_CYCLES, MAX_TABLE_ROWS = 40, 20, 12


def list_alarms(run: Path) -> list[dict[str, Any]]:
    """Return a run's alarms as dicts: `name`, `who` (the subject), and the intervals `before` and `after`."""
    return [
        {"name": a.name, "who": printable(a.who), "before": list(a.before), "after": list(a.after)}
        for a in alarms(load(run))
    ]


def build_league_graph(run: Path) -> dict[str, Any]:
    """Return the league of a run's newest iterations, from `since` on, as a graph.

    `nodes` are policies with their number of matches, their rating, and whether they learn. `edges` are pairs that met,
    with the difference of their payoffs. `rings` are cycles in which each policy beats the next; `matrix` is the payoff
    table. `left_out` is the number of policies beyond `MAX_NODES`.
    """
    reader, numbers, matches = RunReader(run), list[int](), 0
    for k in reversed(reader.iterations()):
        numbers.append(k)
        matches += len(reader.log.table(k, ["id"]))
        if matches >= MIN_MATCHES:
            break
    log = load(run, iterations=numbers)
    seats = log.frame("seats", ["policy", "match", "trained", "role"])
    counts = seats.groupby("policy")["match"].nunique().sort_values(ascending=False, kind="stable")
    learners = {str(name) for name in seats.loc[seats["trained"], "policy"]}
    names = [str(name) for name in counts.index[:MAX_NODES]]
    rating_rows = ratings(log).to_dict("records")
    ratings_by_policy = {str(row["policy"]): [row["mu"], row["sigma"]] for row in rating_rows}  # the last wins
    return {
        "nodes": [
            {
                "name": name,
                "matches": int(counts[name]),
                "learns": name in learners,
                "rating": ratings_by_policy.get(name),
            }
            for name in names
        ],
        "edges": [
            {"one": p.one, "other": p.other, "matches": p.matches, "ahead": list(p.ahead)}
            for p in pairs(log)
            if p.one in names and p.other in names
        ],
        "matrix": _payoff_table(log),
        "rings": [list(ring) for ring in cycles(beats(log))[:MAX_CYCLES]],
        "left_out": max(0, len(counts) - MAX_NODES),
        "since": min(numbers, default=0),
        "matches": matches,
    }


def _payoff_table(log: Frames) -> dict[str, Any] | None:
    """Return the mean payoffs of row policies with column policies: `names` and `cells`, by α-rank if available.

    `shares` are α-rank's, or None. Returns None if most pairs of policies never met.
    """
    payoffs = payoff_matrix(log)
    if len(payoffs) < 2 or 2 * int(payoffs.notna().to_numpy().sum()) < len(payoffs) * (len(payoffs) - 1):
        return None
    try:
        weights = alpha_rank(log)
    except ConfigError:  # OpenSpiel's α-rank is an optional dependency
        weights = None
    names = [str(name) for name in (payoffs.index if weights is None else weights.index)][:MAX_TABLE_ROWS]
    values = payoffs.loc[names, names].to_numpy(dtype=float)
    return {
        "names": [sanitize(name) for name in names],
        "shares": None if weights is None else [float(weights[name]) for name in names],
        "cells": [[float(value) if np.isfinite(value) else None for value in row] for row in values],
        "left_out": max(0, len(payoffs) - MAX_TABLE_ROWS),
    }
