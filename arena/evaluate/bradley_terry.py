"""Bradley-Terry ratings: P(i beats j) = g_i / (g_i + g_j), fitted to all matches at once.

A draw counts as half a win for each side. As a prior, every player has `prior` additional draws against one virtual
opponent. So undefeated players have a finite strength, and groups that never met are comparable. The likelihood is
concave in the log-strengths (Hunter 2004, "MM algorithms for generalized Bradley-Terry models"); Newton's method
maximises it.
"""

import numpy as np

from arena.statistics import normal_quantile, t_quantile

ELO = 400.0 / np.log(10.0)
"""Elo points per unit of log-strength: 400 points are odds of 10 to 1."""
PRIOR = 1.0
"""Default number of draws with the imagined opponent."""
_MAX_STEPS = 200


def elo_intervals(
    score: np.ndarray, games: int, prior: float = PRIOR, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Elo ratings [n] with mean 0, and lower and upper ends [n] of their confidence intervals.

    `score` [n, n, deals] is the mean score of row against column in the `games` matches of each deal. `prior` is each
    player's number of draws against the virtual opponent, above 0. A rating's variance is the sandwich estimator
    clustered by deal, with Student's quantile. It is clipped from below to the variance of independent matches, because
    identical results must not give narrower intervals, and from above to the variance if all matches of a deal had the
    same result. The ends are NaN for a single deal.
    """
    n, _, deals = score.shape
    wins = _add_prior_opponent(games * score.sum(-1), prior)
    log_strength = _fit(wins)
    rating = ELO * (log_strength - log_strength.mean())
    if deals < 2:
        return rating, np.full(n, np.nan), np.full(n, np.nan)
    contrasts_nn = np.eye(n) - 1.0 / n  # row i maps log-strengths to player i's rating
    influence_nn = np.linalg.solve(_derivatives(wins, log_strength)[1], contrasts_nn)
    independent_n = (contrasts_nn * influence_nn).sum(0)
    own_wins_nd = games * np.where(np.eye(n, dtype=bool)[..., None], 0.0, score).sum(1)
    by_deal_nd = influence_nn.T @ (own_wins_nd - own_wins_nd.mean(-1, keepdims=True))
    sandwich_n = (by_deal_nd**2).sum(-1) * deals / (deals - 1)
    p = 0.5 * (1.0 + level)
    least_n = normal_quantile(p) ** 2 * independent_n
    most_n = least_n * games * n * (n - 1) / 2
    half = ELO * np.sqrt(np.clip(t_quantile(p, deals - 1.0) ** 2 * sandwich_n, least_n, most_n))
    return rating, rating - half, rating + half


def _add_prior_opponent(wins: np.ndarray, prior: float) -> np.ndarray:
    """Return the wins [n + 1, n + 1] with zeros on the diagonal, and the draws with the virtual opponent last."""
    own = np.where(np.eye(len(wins), dtype=bool), 0.0, wins)
    padded = np.pad(own, (0, 1), constant_values=0.5 * prior)
    padded[-1, -1] = 0.0
    return padded


def _fit(wins: np.ndarray) -> np.ndarray:
    """Return maximum-likelihood log-strengths [n], relative to the virtual opponent's, from wins [n + 1, n + 1]."""
    current = np.zeros(len(wins) - 1)
    likelihood = _log_likelihood(wins, current)
    for _ in range(_MAX_STEPS):
        gradient, information = _derivatives(wins, current)
        step = np.linalg.solve(information, gradient)
        while (new_likelihood := _log_likelihood(wins, current + step)) < likelihood and np.abs(step).max() > 1e-12:
            step = 0.5 * step
        if np.abs(step).max() <= 1e-10:
            break
        current, likelihood = current + step, new_likelihood
    return current


def _log_likelihood(wins: np.ndarray, log_strength: np.ndarray) -> float:
    padded = np.append(log_strength, 0.0)
    return float(-(wins * np.logaddexp(0.0, padded - padded[:, None])).sum())


def _derivatives(wins: np.ndarray, log_strength: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradient [n] and the information matrix [n, n] (negated second derivatives) of the log-likelihood."""
    padded = np.append(log_strength, 0.0)
    chance = 0.5 * (1.0 + np.tanh(0.5 * (padded[:, None] - padded)))
    matches = wins + wins.T
    weight = matches * chance * chance.T
    information = np.diag(weight.sum(-1)) - weight
    return (wins - matches * chance).sum(-1)[:-1], information[:-1, :-1]
