"""Bradley–Terry strengths: P(i beats j) = g_i / (g_i + g_j), fitted offline to all matches at once.

Fitted by Hunter's minorisation–maximisation (2004, "MM algorithms for generalized Bradley–Terry models"); a draw is
half a win for either side. Everybody has also drawn `prior` matches with one imagined contender: so
a player that never lost, or never won, still has a finite strength, and groups that never met are comparable.
"""

import numpy as np

ELO = 400.0 / np.log(10.0)
PRIOR = 1.0


def strengths(wins: np.ndarray, prior: float = PRIOR, tolerance: float = 1e-9, steps: int = 100_000) -> np.ndarray:
    """Strengths [..., n], of geometric mean 1, from `wins` [..., n, n]: how often row beat column.

    ValueError where there is no best fit, which happens with prior 0 alone.
    """
    wins = np.asarray(wins, dtype=np.float64)
    n = wins.shape[-1]
    if prior:
        wins = np.pad(wins, [(0, 0)] * (wins.ndim - 2) + [(0, 1)] * 2, constant_values=0.5 * prior)
        wins[..., n, n] = 0.0
    played, won = wins + np.swapaxes(wins, -1, -2), wins.sum(-1)
    strength = np.ones(wins.shape[:-1])
    for _ in range(steps if won.all() else 0):
        new = won / (played / (strength[..., :, None] + strength[..., None, :])).sum(-1)
        new = _normal(new)
        moved = float(np.max(np.abs(np.log(new / strength))))
        strength = new
        if moved < tolerance:
            return _normal(strength[..., :n])
    raise ValueError("the strengths have no best fit: somebody never lost or never won, so give a prior")


def _normal(strength: np.ndarray) -> np.ndarray:
    """Only ratios are determined: those of geometric mean 1."""
    return np.asarray(strength / np.exp(np.log(strength).mean(-1, keepdims=True)))


def elo(strength: np.ndarray) -> np.ndarray:
    """Strengths on Elo's scale: 400 points are odds of 10 to 1; the mean is 0 where the geometric mean is 1."""
    return ELO * np.log(strength)  # type: ignore[no-any-return]


def bootstrap_elo(
    wins: np.ndarray, drawn: np.ndarray, prior: float = PRIOR, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ratings [n] of `wins` [n, n], and the ends of their percentile intervals over resampled `drawn` [B, n, n]."""
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(elo(strengths(drawn, prior, tolerance=1e-4)), [tail, 100.0 - tail], axis=0)
    return elo(strengths(wins, prior)), low, high
