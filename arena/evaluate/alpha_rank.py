"""α-Rank (Omidshafiei et al. 2019): a ranking of players by evolutionary dynamics, computed by OpenSpiel."""

import numpy as np

MUTATION = 0.01
"""Small probability of a step against the payoffs."""


def alpha_rank(payoffs: np.ndarray) -> np.ndarray:
    """Return α-Rank's score of each player [n], summing to 1, from the payoffs [n, n] of row against column.

    The scores are shares of evolutionary time: the stationary distribution in the limit of strong selection, where a
    population of one player is replaced by another player that earns more against it, and by one that earns less with
    probability MUTATION. Unlike ratings, the players of a cycle share their mass. Raises ImportError if OpenSpiel's
    requirements (matplotlib, networkx) are missing.
    """
    from open_spiel.python.egt import alpharank

    if len(payoffs) == 1:
        return np.ones(1)
    _, _, mass, _, _ = alpharank.compute([np.asarray(payoffs)], use_inf_alpha=True, inf_alpha_eps=MUTATION)
    return np.asarray(mass)
