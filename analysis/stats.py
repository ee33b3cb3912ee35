"""Confidence intervals for small samples, the same that the arena's closing summary uses."""

from arena.statistics import COUNT, SHARE, Interval, difference_ci, mean_ci, paired_ci, range_of, rate_ci

__all__ = ["COUNT", "SHARE", "Interval", "difference_ci", "mean_ci", "paired_ci", "range_of", "rate_ci"]
