"""The interquartile mean with a stratified bootstrap: what a few runs on several games show, whatever one run did.

Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (NeurIPS). Their library,
rliable, computes the same; it has not been kept up with numpy and pandas, and this is all that is needed of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from arena.statistics import Interval, Values


def interquartile_mean(scores: Sequence[float]) -> float:
    """The mean of the middle half: a quarter of the values, rounded down, is left out at either end.

    >>> interquartile_mean([0, 1, 2, 99])
    1.5
    """
    ordered = np.sort(np.asarray(scores, dtype=np.float64))
    if len(ordered) == 0 or not np.isfinite(ordered).all():
        raise ValueError("an interquartile mean needs finite numbers, at least one")
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def iqm_ci(scores: Mapping[str, Values], level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """Interquartile mean of all runs on all games, with the interval of a bootstrap that redraws each game's runs.

    `scores` has a value per run for each game, on scales that can be put together. The interval is too narrow for few
    runs, as any bootstrap: of 3 to 5 seeds trust `mean_ci` (arena/statistics.py says how far).

    >>> iqm_ci({"kuhn_poker": [0.4, 0.5, 0.6, 0.5], "negotiation": [0.7, 0.8, 0.7, 0.9]}).estimate
    0.625
    """
    rng, strata = np.random.default_rng(seed), [np.asarray(own, dtype=np.float64) for own in scores.values()]
    estimate = interquartile_mean([value for own in strata for value in own])
    drawn = np.concatenate([rng.choice(own, (resamples, len(own))) for own in strata], axis=1)
    drawn.sort(axis=1)
    cut = drawn.shape[1] // 4
    means = drawn[:, cut : drawn.shape[1] - cut].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high))
