"""Confidence intervals for small samples, the same that the arena's closing summary uses."""

from arena.statistics import Interval, difference_ci, mean_ci, rate_ci

__all__ = ["Interval", "difference_ci", "mean_ci", "rate_ci"]
