"""League tables from the logs of runs: payoffs, ratings, α-rank, and the graph of significant wins.

Players are policies; past versions such as `shared@12` are separate policies. Matches of a policy with itself are
ignored. One policy beats another if the 95 % interval of their difference of payoffs, in common matches, is above 0.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.frames import Frames
from arena.errors import ConfigError
from arena.statistics import Interval, mean_ci

MAX_CYCLE = 4
"""Maximum length of listed cycles; there are too many longer ones to read."""


class Pair(NamedTuple):
    """Comparison of the payoffs of two policies that met in at least one match."""

    one: str
    other: str
    matches: int
    """Number of common matches."""
    ahead: Interval
    """Mean payoff of `one` minus that of `other`, with a 95 % interval over matches."""


def pairs(log: Frames) -> list[Pair]:
    """Compare the payoffs of every two policies that met in finished matches. Returns `Pair`s sorted by name.

    >>> pairs(log)
    []
    """
    payoffs = log.seats.dropna(subset=["payoff"]).astype({"payoff": "float64"})
    means = payoffs.groupby(["run", "match", "policy"])["payoff"].mean().unstack("policy")
    comparisons = []
    for policy, opponent in combinations(means.columns, 2):
        ahead = (means[policy] - means[opponent]).dropna().tolist()
        if ahead:
            comparisons.append(Pair(str(policy), str(opponent), len(ahead), mean_ci(ahead)))
    return comparisons


def payoff_matrix(log: Frames) -> pd.DataFrame:
    """Return a square frame with the mean payoff of the row's policy in finished matches with the column's policy.

    NaN on the diagonal and for pairs that never met. Empty without finished matches.

    >>> payoff_matrix(log).shape
    (1, 1)
    """
    payoffs = log.seats.dropna(subset=["payoff"]).astype({"payoff": "float64"})
    if payoffs.empty:
        return pd.DataFrame(dtype="float64")
    means = payoffs.groupby(["run", "match", "policy"])["payoff"].mean().unstack("policy")
    has_matches = means.notna().astype(float)
    sums, counts = means.fillna(0).T @ has_matches, has_matches.T @ has_matches
    values = np.where(np.eye(len(counts), dtype=bool) | (counts == 0), np.nan, sums / counts.replace(0, np.nan))
    return pd.DataFrame(values, index=sums.index.astype(str), columns=sums.columns.astype(str))


def alpha_rank(log: Frames) -> pd.Series[Any]:
    """Return each policy's share of α-rank's stationary distribution, by name, in descending order.

    The shares sum to 1. Method: Omidshafiei et al. 2019, implemented by OpenSpiel. Pairs that never met count as equal.
    Empty without finished matches. Raises ConfigError if OpenSpiel's dependencies are missing.

    >>> alpha_rank(log).tolist()
    [1.0]
    """
    from arena.evaluate.alpha_rank import alpha_rank as ranked

    payoffs = payoff_matrix(log)
    if payoffs.empty:
        return pd.Series(dtype="float64")
    try:
        mass = ranked(payoffs.fillna(0).to_numpy())
    except ImportError:
        raise ConfigError("α-rank needs optional packages: pip install 'arena-selfplay[analysis]'") from None
    return pd.Series(mass, payoffs.index).sort_values(ascending=False)


def ratings(log: Frames) -> pd.DataFrame:
    """Return a row per policy after each iteration: run, iteration, policy, mu, sigma, matches so far.

    The model is openskill's Plackett-Luce (Weng and Lin 2011), starting at mu 25 and sigma 25/3, with matches in the
    order of the log. A policy at several seats of a match is rated by its mean payoff. A learner's rating lags behind
    its current strength.

    >>> ratings(log).empty
    True
    """
    from openskill.models import PlackettLuce

    model, rows = PlackettLuce(), []
    payoffs = log.seats.dropna(subset=["payoff"]).astype({"payoff": "float64"})
    for run, run_seats in payoffs.groupby("run", sort=False):
        rating_by_policy: dict[str, Any] = {}
        matches: dict[str, int] = {}
        for iteration, iteration_seats in run_seats.groupby("iteration"):
            for _, seats in iteration_seats.groupby("match"):
                scores = seats.groupby("policy")["payoff"].mean()
                if len(scores) < 2:
                    continue
                teams = [[rating_by_policy.get(name) or model.rating(name=name)] for name in scores.index]
                rated_teams = model.rate(teams, scores=scores.tolist())
                rating_by_policy |= {name: team[0] for name, team in zip(scores.index, rated_teams, strict=True)}
                matches |= {name: matches.get(name, 0) + 1 for name in scores.index}
            rows += [
                (run, iteration, name, r.mu, r.sigma, matches[name]) for name, r in sorted(rating_by_policy.items())
            ]
    return pd.DataFrame(rows, columns=["run", "iteration", "policy", "mu", "sigma", "matches"])


def beats(log: Frames) -> Any:
    """Return a networkx graph of all policies, with an edge from winner to loser for each significant difference.

    Edges have `ahead` (mean difference of payoffs), the bounds `low` and `high` of its 95 % interval, and `matches`.
    Raises ConfigError if networkx is missing.

    >>> beats(log).number_of_edges()
    0
    """
    graph = _import_networkx().DiGraph()
    graph.add_nodes_from(sorted({str(name) for name in log.seats["policy"]}))
    for policy, opponent, matches, ahead in pairs(log):
        if ahead.low > 0:
            graph.add_edge(policy, opponent, ahead=ahead.estimate, low=ahead.low, high=ahead.high, matches=matches)
        elif ahead.high < 0:
            graph.add_edge(opponent, policy, ahead=-ahead.estimate, low=-ahead.high, high=-ahead.low, matches=matches)
    return graph


def cycles(graph: Any, longest: int = MAX_CYCLE) -> list[tuple[str, ...]]:
    """Return the cycles of at most `longest` policies, shortest first. Each starts at its alphabetically first name.

    >>> cycles(beats(log))
    []
    """
    rings = [tuple(ring) for ring in _import_networkx().simple_cycles(graph, length_bound=longest)]
    rotated = [ring[ring.index(min(ring)) :] + ring[: ring.index(min(ring))] for ring in rings]
    return sorted(rotated, key=lambda ring: (len(ring), ring))


def _import_networkx() -> Any:
    try:
        import networkx
    except ImportError:
        raise ConfigError("graphs need networkx: pip install 'arena-selfplay[analysis]'") from None
    return networkx
