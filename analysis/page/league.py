"""The league on a run's page: payoffs of each with each, ratings as lines, and whether there is a cycle."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from analysis.frames import Frames
from analysis.league import alpha_rank, beats, cycles, payoff_matrix, ratings
from analysis.page import charts
from analysis.page.charts import Series
from analysis.page.matches import shade
from analysis.page.pictures import Picture
from analysis.page.texts import harmless, in_words
from arena.errors import ConfigError
from arena.statistics import ANY, Interval

RATED, LISTED = 6, 12


def league(log: Frames) -> dict[str, Any] | None:
    """List who met whom and what came of it; None where one policy met only itself."""
    payoffs = payoff_matrix(log)
    if len(payoffs) < 2:
        return None
    rings = cycles(beats(log))
    ring = " beats ".join(map(harmless, [*rings[0], rings[0][0]])) if rings else ""
    met = int(payoffs.notna().to_numpy().sum())
    full = 2 * met >= len(payoffs) * (len(payoffs) - 1)
    table = {"matrix": _matrix(log, payoffs)} if full else {"pairs": _pairs(log, payoffs)}
    return {"matrix": None, "pairs": None, "ring": ring, "ratings": _ratings(log), **table}


def _pairs(log: Frames, payoffs: pd.DataFrame) -> list[tuple[str, str, str, str]]:
    """Both payoffs of those that met, learners first, where most never did: a matrix would be empty."""
    learns = {str(name) for name in log.seats.loc[log.seats["trained"], "policy"]}
    names = sorted(map(str, payoffs.index), key=lambda name: (name not in learns, name))
    table = payoffs.loc[names, names].to_numpy(dtype=float)
    return [
        (harmless(names[a]), harmless(names[b]), in_words(float(table[a, b]), ANY), in_words(float(table[b, a]), ANY))
        for a, b in combinations(range(len(names)), 2)
        if np.isfinite(table[a, b])
    ]


def _matrix(log: Frames, payoffs: pd.DataFrame) -> dict[str, Any]:
    """A row and a column for each, in the order of what evolution would leave to them."""
    try:
        weights = alpha_rank(log)
    except ConfigError:  # OpenSpiel's α-rank needs what is not installed
        weights = None
    names = [str(name) for name in (payoffs.index if weights is None else weights.index)][:LISTED]
    values = payoffs.loc[names, names].to_numpy()
    known = np.abs(values[np.isfinite(values)])
    bound = float(known.max()) if len(known) else 0.0
    rows = [
        {
            "name": harmless(name),
            "share": "" if weights is None else f"{weights[name]:.2f}",
            "cells": [
                ("none", "") if not np.isfinite(value) else (shade(float(value), bound), in_words(float(value), ANY))
                for value in row
            ],
        }
        for name, row in zip(names, values, strict=True)
    ]
    return {"rows": rows, "left_out": max(0, len(payoffs) - LISTED)}


def _ratings(log: Frames) -> Picture | None:
    rated = ratings(log)
    if rated["iteration"].nunique() < 2:
        return None
    best = rated.groupby("policy")["matches"].max().sort_values(ascending=False, kind="stable").index[:RATED]
    series = []
    for name in sorted(map(str, best)):
        own = rated[rated["policy"] == name][["iteration", "mu", "sigma"]].astype("float64").to_numpy().tolist()
        points = [(int(k), Interval(mu, mu - sigma, mu + sigma)) for k, mu, sigma in own]
        series.append(Series(harmless(name), points))
    return Picture("Ratings", "", charts.lines("Ratings", series), "openskill, one standard deviation around each")
