"""Bradley–Terry strengths: P(i beats j) = g_i / (g_i + g_j), fitted offline to all matches at once.

A draw is half a win for either side. Everybody has also drawn `prior` matches with one imagined contender: so a player
that never lost, or never won, still has a finite strength, and groups that never met are comparable. Fits are Newton's,
over log-strengths relative to the imagined contender's, of a likelihood that is concave (Hunter 2004, "MM algorithms
for generalized Bradley–Terry models", has it and its properties).
"""

import numpy as np

from arena.statistics import normal_quantile, t_quantile

ELO = 400.0 / np.log(10.0)
PRIOR = 1.0
_STEPS = 200


def strengths(wins: np.ndarray, prior: float = PRIOR) -> np.ndarray:
    """Strengths [n], of geometric mean 1, from `wins` [n, n]: how often row beat column; `prior` is above 0."""
    n = len(wins)
    return np.exp(_centred(_climb(_with_imagined(wins, prior), np.zeros(n), np.eye(n))))  # type: ignore[no-any-return]


def elo(strength: np.ndarray) -> np.ndarray:
    """Strengths on Elo's scale: 400 points are odds of 10 to 1; the mean is 0 where the geometric mean is 1."""
    return ELO * np.log(strength)  # type: ignore[no-any-return]


def elo_intervals(
    score: np.ndarray, games: int, prior: float = PRIOR, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ratings [n] and the ends of their intervals, from the mean score [n, n, deals] of row in `games` with column.

    An interval is the ratings whose log-likelihood, with all else refitted, is at most φ t² / 2 below the best fit's
    (profile likelihood): it holds its estimate, and the prior alone bounds it where every match was won. The unit is
    the deal: φ is the rating's variance by what differs from deal to deal (the sandwich estimator) over its variance
    if matches were independent coins, and t has one degree of freedom less than there are deals. Results that are
    all alike tell no more than coins, and a deal no less than one: φ t² is never below z², nor above z² times the
    matches of a deal. The ends are NaN for one deal.
    """
    n, _, deals = score.shape
    wins = _with_imagined(games * score.sum(-1), prior)
    best = _climb(wins, np.zeros(n), np.eye(n))
    rating = _centred(best)
    if deals < 2:
        return ELO * rating, np.full(n, np.nan), np.full(n, np.nan)
    _, information = _slopes(wins, best)
    contrasts = np.eye(n) - 1.0 / n
    along = np.linalg.solve(information, contrasts)  # column i: the way on which a change of i's rating costs least
    coins = (contrasts * along).sum(0)
    own = games * np.where(np.eye(n, dtype=bool)[..., None], 0.0, score).sum(1)
    by_deal = along.T @ (own - own.mean(-1, keepdims=True))
    seen = (by_deal**2).sum(-1) * deals / (deals - 1)
    p = 0.5 * (1.0 + level)
    coin = normal_quantile(p) ** 2
    fall = 0.5 * np.clip(t_quantile(p, deals - 1.0) ** 2 * seen / coins, coin, coin * games * n * (n - 1) / 2)
    reach = [
        np.array([_reach(wins, best, contrasts[i], side * along[:, i] / coins[i], fall[i]) for i in range(n)])
        for side in (-1, 1)
    ]
    return ELO * rating, ELO * (rating - reach[0]), ELO * (rating + reach[1])


def _with_imagined(wins: np.ndarray, prior: float) -> np.ndarray:
    """The wins over others, and last the imagined contender's draws."""
    own = np.where(np.eye(len(wins), dtype=bool), 0.0, wins)
    padded = np.pad(own, (0, 1), constant_values=0.5 * prior)
    padded[-1, -1] = 0.0
    return padded


def _centred(log_strength: np.ndarray) -> np.ndarray:
    return np.asarray(log_strength - log_strength.mean())


def _likelihood(wins: np.ndarray, log_strength: np.ndarray) -> float:
    """The log-likelihood of log-strengths [n] relative to the imagined contender's."""
    whole = np.append(log_strength, 0.0)
    return float(-(wins * np.logaddexp(0.0, whole - whole[:, None])).sum())


def _slopes(wins: np.ndarray, log_strength: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradient [n] of the log-likelihood, and the information [n, n]: its second derivatives, negated."""
    whole = np.append(log_strength, 0.0)
    chance = 0.5 * (1.0 + np.tanh(0.5 * (whole[:, None] - whole)))
    played = wins + wins.T
    weight = played * chance * chance.T
    information = np.diag(weight.sum(-1)) - weight
    return (wins - played * chance).sum(-1)[:-1], information[:-1, :-1]


def _climb(wins: np.ndarray, start: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return the log-strengths of the highest likelihood that `start` reaches along the columns of `free`."""
    found, height = start, _likelihood(wins, start)
    for _ in range(_STEPS):
        gradient, information = _slopes(wins, found)
        step = free @ np.linalg.solve(free.T @ information @ free, free.T @ gradient)
        while (higher := _likelihood(wins, found + step)) < height and np.abs(step).max() > 1e-12:
            step = 0.5 * step
        if np.abs(step).max() <= 1e-10:
            break
        found, height = found + step, higher
    return found


def _reach(wins: np.ndarray, best: np.ndarray, contrast: np.ndarray, along: np.ndarray, fall: float) -> float:
    """Return how far a rating moves until its profile likelihood is `fall` below the best.

    `contrast` @ log-strengths is the rating; `along` is a direction in which it changes by 1.
    """
    free, top = np.linalg.svd(contrast[None, :])[2][1:].T, _likelihood(wins, best)

    def within(distance: float) -> bool:
        return top - _likelihood(wins, _climb(wins, best + distance * along, free)) < fall

    low, high = 0.0, 1.0
    while within(high):
        low, high = high, 2.0 * high
    while high - low > 1e-4:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if within(middle) else (low, middle)
    return high
