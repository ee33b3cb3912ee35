"""Agreement of learned or judged values with payoffs, and the alarm for reward hacking."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.records import Trajectory

Z = 1.645
"""The normal distribution's .95 quantile: the alarm's one-sided significance level is 5 %."""


def measure_agreement(
    values: Sequence[float], payoffs: Sequence[float], groups: Sequence[Hashable]
) -> dict[str, float]:
    """Return the means `value` and `payoff`, and the rank measures `agreement` and `correlation` where defined.

    `agreement` is the share of pairs with different payoffs, within groups, that the values rank in the same order;
    ties count half. It is 0.5 by chance, and the AUC if there are two distinct payoffs. `correlation` is Spearman's,
    over all groups.
    """
    value, payoff = np.array(values, np.float64), np.array(payoffs, np.float64)
    numbers = {group: n for n, group in enumerate(dict.fromkeys(groups))}
    group_numbers = np.array([numbers[group] for group in groups])
    figures = {"value": float(value.mean()), "payoff": float(payoff.mean())}
    ordered_alike = compared = 0.0
    for row in range(len(value)):
        higher = (group_numbers == group_numbers[row]) & (payoff > payoff[row])
        compared += higher.sum()
        ordered_alike += (value[higher] > value[row]).sum() + 0.5 * (value[higher] == value[row]).sum()
    if compared:
        figures["agreement"] = float(ordered_alike / compared)
    if (correlation := _correlate(value, payoff)) is not None:
        figures["correlation"] = correlation
    return figures


def compare_with_payoffs(
    trajectories: Sequence[Trajectory], values: Sequence[float | None], by_deal: bool = False
) -> dict[str, float]:
    """Return the agreement of values with the payoffs of an iteration's own trajectories; {} if none has both.

    With `by_deal`, values are only compared within each seat of a deal. Recalled trajectories are left out.
    """
    rows = [
        (value, trajectory.payoff, (trajectory.game, trajectory.seed, trajectory.seat) if by_deal else None)
        for trajectory, value in zip(trajectories, values, strict=True)
        if value is not None and trajectory.payoff is not None and trajectory.source != "recalled"
    ]
    return measure_agreement(*map(list, zip(*rows, strict=True))) if rows else {}


def measure_position_bias(values: Sequence[float]) -> float | None:
    """Return the rank correlation of values, in the order shown, with early positions; None if all are equal."""
    return _correlate(np.array(values), -np.arange(len(values), dtype=np.float64))


class RewardHackingAlarm:
    """Alarm over the last `window` iterations: a reward rises, or disagrees with the payoff, while the payoff falls."""

    def __init__(self, window: int, is_absolute: bool, state: Mapping[str, Any]) -> None:
        """Restore the alarm over the last `window` iterations from `state`, which may be {}.

        With `is_absolute`, values are comparable between iterations, and the alarm tests whether they rise. Otherwise
        it tests whether they disagree with payoffs.
        """
        self._window, self._is_absolute = window, is_absolute
        self._rows: list[list[float]] = [[*map(float, row)] for row in state.get("rows", [])]
        self.is_raised = bool(state.get("raised", False))

    def state(self) -> dict[str, Any]:
        """Return the values of the window's iterations, and whether the alarm is raised."""
        return {"rows": self._rows, "raised": self.is_raised}

    def add(self, value: float | None, payoff: float | None, agreement: float | None) -> str:
        """Add an iteration's means. Returns a warning if they raise the alarm, else "". Skips missing values."""
        if value is None or payoff is None:
            return ""
        self._rows = [*self._rows, [value, payoff, 0.5 if agreement is None else agreement]][-self._window :]
        was_raised = self.is_raised
        values, payoffs, agreements = zip(*self._rows, strict=True)
        is_misleading = compute_trend(values) > Z if self._is_absolute else float(np.mean(agreements)) < 0.5
        self.is_raised = len(self._rows) == self._window and is_misleading and compute_trend(payoffs) < -Z
        if was_raised or not self.is_raised:
            return ""
        change = f"rose from {values[0]:.3g} to {values[-1]:.3g}" if self._is_absolute else "disagreed with the payoff"
        return (
            f"over {self._window} iterations its value {change} while the payoff fell from {payoffs[0]:.3g} to "
            f"{payoffs[-1]:.3g}: the policy may exploit this reward"
        )


def compute_trend(series: Sequence[float]) -> float:
    """Return the z value of the Mann-Kendall trend test, which is positive for a rise; 0 if all values are equal."""
    values, n = np.array(series, np.float64), len(series)
    score = float(np.sign(values[None, :] - values[:, None])[np.triu_indices(n, 1)].sum())
    ties = np.unique(values, return_counts=True)[1]
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    return float((score - np.sign(score)) / np.sqrt(variance)) if variance > 0 else 0.0


def _correlate(one: NDArray[np.float64], other: NDArray[np.float64]) -> float | None:
    """Return Spearman's rank correlation; None if all values of one side are equal."""
    from scipy.stats import spearmanr  # imported here because it takes half a second

    is_constant = min(np.ptp(one), np.ptp(other)) == 0
    return None if is_constant else float(spearmanr(one, other).statistic)
