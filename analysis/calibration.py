"""Calibration of a clinic's doctors: are they right as often as the exact posterior of what they learned says?"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from analysis.stats import SHARE, Interval, mean_ci


@dataclass(frozen=True)
class Calibration:
    """Figures of matches that ended in a diagnosis; means with 95 % intervals over matches."""

    accuracy: Interval
    """Share of right diagnoses."""
    believed: Interval
    """Mean posterior chance of the disease that was named."""
    regret: Interval
    """Mean of what the likeliest disease's chance exceeds that by: 0 for who names the likeliest."""
    brier: Interval
    """Mean squared difference of that chance and the outcome, 0 or 1 (Brier 1950); lower is better."""
    error: float
    """Expected calibration error (Naeini et al. 2015): the mean of |accuracy - believed| over bins, by matches."""
    bins: pd.DataFrame
    """Bins of equal width that hold a match: matches, believed, accuracy."""


def calibration(matches: pd.DataFrame, bins: int = 10) -> Calibration:
    """Judge `Frames.matches`, or any frame with its columns `report.…`; ValueError where none ended in a diagnosis.

    >>> calibration(analysis.load("runs/latest").matches)
    """
    wanted = ["report.success", "report.posterior_named", "report.posterior_best"]
    if not {*wanted, "report.diagnosis"} <= {*matches.columns}:
        raise ValueError("calibration is of matches of the clinic: there is no column report.posterior_named")
    named = matches[matches["report.diagnosis"].fillna("") != ""]
    if named.empty:
        raise ValueError("calibration: no match ended in a diagnosis")
    right, believed, best = (named[name].astype("float64") for name in wanted)
    places = (believed * bins).clip(upper=bins - 1).astype(int).rename("bin")
    frame = pd.DataFrame({"accuracy": right, "believed": believed}).groupby(places)
    table = frame.mean().assign(matches=frame.size())
    gaps = (table["accuracy"] - table["believed"]).abs()
    return Calibration(
        accuracy=mean_ci(right.tolist(), SHARE),
        believed=mean_ci(believed.tolist(), SHARE),
        regret=mean_ci((best - believed).tolist(), SHARE),
        brier=mean_ci(((believed - right) ** 2).tolist(), SHARE),
        error=float((gaps * table["matches"]).sum() / table["matches"].sum()),
        bins=table,
    )
