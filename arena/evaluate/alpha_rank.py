"""α-Rank (Omidshafiei et al. 2019), by OpenSpiel."""

import numpy as np

MUTATION = 0.01


def alpha_rank(payoffs: np.ndarray) -> np.ndarray:
    """Return α-Rank's share of evolutionary time for each player [n], summing to 1, from payoffs [n, n].

    `payoffs` are of row against column. The shares are the stationary distribution in the limit of strong selection: a
    population of one player is replaced by another player that earns more against it; the reverse happens with chance
    MUTATION. Unlike ratings, the players of a cycle share their mass. Raises ImportError if OpenSpiel's requirements
    (matplotlib, networkx) are missing.
    """
    from open_spiel.python.egt import alpharank

    if len(payoffs) == 1:
        return np.ones(1)
    _, _, mass, _, _ = alpharank.compute([np.asarray(payoffs)], use_inf_alpha=True, inf_alpha_eps=MUTATION)
    return np.asarray(mass)
