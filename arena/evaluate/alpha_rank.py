"""α-Rank: the share of time that evolution spends at each contender (Omidshafiei et al. 2019), by OpenSpiel."""

import numpy as np

MUTATION = 0.01


def alpha_rank(payoffs: np.ndarray) -> np.ndarray:
    """Mass [n], summing to 1, from payoffs [n, n] of row against column, in the limit of strong selection.

    A population of one contender is taken over by another that is paid more by it than the reverse; the reverse
    happens with chance MUTATION, so that the chain has one stationary distribution. Cycles share mass, unlike in
    ratings. ImportError where open_spiel's own needs (matplotlib, networkx) are missing.
    """
    from open_spiel.python.egt import alpharank

    if len(payoffs) == 1:
        return np.ones(1)
    _, _, mass, _, _ = alpharank.compute([np.asarray(payoffs)], use_inf_alpha=True, inf_alpha_eps=MUTATION)
    return np.asarray(mass)
