"""The league's table: payoffs of each with each, in the order of what evolution would leave of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.frames import Frames
from analysis.league import alpha_rank, payoff_matrix
from analysis.page.texts import harmless
from arena.errors import ConfigError

LISTED = 12


def matrix(log: Frames) -> dict[str, Any] | None:
    """Mean payoff of row with column; None where most of those who play never met: it would be empty."""
    payoffs = payoff_matrix(log)
    if len(payoffs) < 2 or 2 * int(payoffs.notna().to_numpy().sum()) < len(payoffs) * (len(payoffs) - 1):
        return None
    try:
        weights = alpha_rank(log)
    except ConfigError:  # OpenSpiel's α-rank needs what is not installed
        weights = None
    names = [str(name) for name in (payoffs.index if weights is None else weights.index)][:LISTED]
    values = payoffs.loc[names, names].to_numpy(dtype=float)
    return {
        "names": [harmless(name) for name in names],
        "shares": None if weights is None else [float(weights[name]) for name in names],
        "cells": [[float(value) if np.isfinite(value) else None for value in row] for row in values],
        "left_out": max(0, len(payoffs) - LISTED),
    }
