"""The league from the log of runs: who beats whom, how strong each is, who speaks to whom and is listened to.

Everybody is called by policy, past versions such as `shared@12` being policies of their own; matches of a policy with
itself say nothing of who beats whom. "Beats" is a mean payoff above the other's over the matches in which both sat,
with an interval that leaves out 0.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.frames import Frames
from arena.errors import ConfigError
from arena.statistics import Interval, mean_ci

ORDERS = 199
"""Random orders against which influence is held."""
LONGEST = 4
"""Contenders of a cycle at most: there are too many of the longer ones to be read."""


class Pair(NamedTuple):
    """Two that met."""

    one: str
    other: str
    matches: int
    ahead: Interval
    """Mean payoff of the one less the other's, 95 % over matches."""


def pairs(log: Frames) -> list[Pair]:
    """All pairs of policies that met in finished matches, in the order of their names.

    >>> pairs(log)
    []
    """
    paid = log.seats.dropna(subset=["payoff"]).astype({"payoff": "float64"})
    means = paid.groupby(["run", "match", "policy"])["payoff"].mean().unstack("policy")
    found = []
    for one, other in combinations(means.columns, 2):
        ahead = (means[one] - means[other]).dropna().tolist()
        if ahead:
            found.append(Pair(str(one), str(other), len(ahead), mean_ci(ahead)))
    return found


def payoff_matrix(log: Frames) -> pd.DataFrame:
    """Mean payoff of row in finished matches with column; NaN where they did not meet, and with itself.

    Empty where nobody was paid.

    >>> payoff_matrix(log).shape
    (1, 1)
    """
    paid = log.seats.dropna(subset=["payoff"]).astype({"payoff": "float64"})
    if paid.empty:
        return pd.DataFrame(dtype="float64")
    means = paid.groupby(["run", "match", "policy"])["payoff"].mean().unstack("policy")
    met = means.notna().astype(float)
    sums, counts = means.fillna(0).T @ met, met.T @ met
    values = np.where(np.eye(len(counts), dtype=bool) | (counts == 0), np.nan, sums / counts.replace(0, np.nan))
    return pd.DataFrame(values, index=sums.index.astype(str), columns=sums.columns.astype(str))


def alpha_rank(log: Frames) -> pd.Series[Any]:
    """The share of time that evolution spends at each policy (Omidshafiei et al. 2019), by OpenSpiel; sums to 1.

    Pairs that never met count as equal; empty where nobody was paid. ConfigError where what OpenSpiel needs for it is
    not installed.

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
        raise ConfigError("α-rank needs more: pip install 'arena-selfplay[analysis]'") from None
    return pd.Series(mass, payoffs.index).sort_values(ascending=False)


def ratings(log: Frames) -> pd.DataFrame:
    """Ratings as they were after each iteration: run, iteration, policy, mu, sigma, matches so far.

    By openskill's Plackett-Luce model (Weng and Lin 2011), from mu 25, sigma 25/3, in the order of the log; who sat at
    several seats of a match is rated by their mean. Of a learner it is the rating of something that moves.

    >>> ratings(log).empty
    True
    """
    from openskill.models import PlackettLuce

    model, rows = PlackettLuce(), []
    paid = log.seats.dropna(subset=["payoff"]).astype({"payoff": "float64"})
    for run, own in paid.groupby("run", sort=False):
        rated: dict[str, Any] = {}
        matches: dict[str, int] = {}
        for iteration, played in own.groupby("iteration"):
            for _, seats in played.groupby("match"):
                scores = seats.groupby("policy")["payoff"].mean()
                if len(scores) < 2:
                    continue
                teams = [[rated.get(name) or model.rating(name=name)] for name in scores.index]
                new = model.rate(teams, scores=scores.tolist())
                rated |= {name: team[0] for name, team in zip(scores.index, new, strict=True)}
                matches |= {name: matches.get(name, 0) + 1 for name in scores.index}
            rows += [(run, iteration, name, r.mu, r.sigma, matches[name]) for name, r in sorted(rated.items())]
    return pd.DataFrame(rows, columns=["run", "iteration", "policy", "mu", "sigma", "matches"])


def beats(log: Frames) -> Any:
    """A networkx graph with an edge from the winner to the loser of every pair of which it is sure.

    Nodes are all who sat somewhere; edges have `ahead` (mean), `low`, `high` and `matches`.

    >>> beats(log).number_of_edges()
    0
    """
    graph = _networkx().DiGraph()
    graph.add_nodes_from(sorted({str(name) for name in log.seats["policy"]}))
    for one, other, matches, ahead in pairs(log):
        if ahead.low > 0:
            graph.add_edge(one, other, ahead=ahead.estimate, low=ahead.low, high=ahead.high, matches=matches)
        elif ahead.high < 0:
            graph.add_edge(other, one, ahead=-ahead.estimate, low=-ahead.high, high=-ahead.low, matches=matches)
    return graph


def cycles(graph: Any, longest: int = LONGEST) -> list[tuple[str, ...]]:
    """Rings in who beats whom, the shortest first, each from the name that comes first; [] where it is a ranking.

    >>> cycles(beats(log))
    []
    """
    found = [tuple(ring) for ring in _networkx().simple_cycles(graph, length_bound=longest)]
    turned = [ring[ring.index(min(ring)) :] + ring[: ring.index(min(ring))] for ring in found]
    return sorted(turned, key=lambda ring: (len(ring), ring))


def speech(log: Frames) -> Any:
    """A networkx graph of seats with an edge from who said something to who read it: `messages` and `words`.

    The referee is left out. Where all is said to all, edges tell who says much.

    >>> speech(log).number_of_edges()
    0
    """
    graph = _networkx().DiGraph()
    graph.add_nodes_from(sorted({str(seat) for seat in log.seats["seat"]}))
    read = log.messages[log.messages["sender"].isin(list(graph))]
    for (sender, reader), texts in read.groupby(["sender", "seat"])["text"]:
        graph.add_edge(sender, reader, messages=len(texts), words=int(texts.str.count(r"\S+").sum()))
    return graph


def influence(log: Frames, orders: int = ORDERS, seed: int = 0) -> pd.DataFrame:
    """Measure how much a seat's act tells of each other seat's next: sender, reader, acts, bits, p; the most first.

    The mutual information of the two acts, in bits, less its mean over random orders of the sender's acts within the
    same game and number of the turn (few acts have some by chance, and the stage of a match is no influence); p is
    the share of orders with as much. After Jaques et al. 2019, who compare with what the sender did not do: a log has
    not tried that, so two seats that follow the same cue look like influence. `arena fork` tries it.

    >>> influence(log)[["sender", "reader", "acts", "bits"]].values.tolist()
    [['opener', 'responder', 9, 0.0]]
    """
    rng = np.random.default_rng(seed)
    rows = [
        {"sender": sender, "reader": reader, "acts": len(own), **_information(own, orders, rng)}
        for (sender, reader), own in _followed(log.turns).groupby(["sender", "reader"])
    ]
    table = pd.DataFrame(rows, columns=["sender", "reader", "acts", "bits", "p"])
    return table.sort_values("bits", ascending=False, ignore_index=True)


def _followed(turns: pd.DataFrame) -> pd.DataFrame:
    """A row per act and act of another seat before it, the last one of each since the reader's own: what and what.

    One that the reader has answered already is not counted again: the same chance would be held for evidence twice.
    """
    rows: list[tuple[Any, ...]] = []
    for _, match in turns.groupby(["run", "match"], sort=False):
        last: dict[str, tuple[str, int]] = {}
        for game, seat, action, turn in match[["game", "seat", "action", "turn"]].itertuples(index=False):
            own = last[seat][1] if seat in last else -1
            rows += [(who, seat, game, at, said, action) for who, (said, at) in last.items() if at > own]
            last = {seat: (action, turn)} | {who: had for who, had in last.items() if who != seat}
    return pd.DataFrame(rows, columns=["sender", "reader", "game", "turn", "cause", "effect"])


def _information(own: pd.DataFrame, orders: int, rng: np.random.Generator) -> dict[str, float]:
    cause, effect = pd.factorize(own["cause"])[0], pd.factorize(own["effect"])[0]
    strata = list(own.groupby(["game", "turn"]).indices.values())
    seen = _bits(cause, effect)
    drawn = []
    for _ in range(orders):
        mixed = cause.copy()
        for place in strata:
            mixed[place] = cause[rng.permutation(place)]
        drawn.append(_bits(mixed, effect))
    p = (1 + int(np.sum(np.array(drawn) >= seen - 1e-12))) / (orders + 1)
    return {"bits": round(max(0.0, seen - float(np.mean(drawn))), 6), "p": p}


def _bits(cause: Any, effect: Any) -> float:
    """Mutual information of two lists of codes."""
    joint = np.zeros((cause.max() + 1, effect.max() + 1))
    np.add.at(joint, (cause, effect), 1)
    joint /= joint.sum()
    apart = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    seen = joint > 0
    return float((joint[seen] * np.log2(joint[seen] / apart[seen])).sum())


def _networkx() -> Any:
    try:
        import networkx
    except ImportError:
        raise ConfigError("graphs need networkx: pip install 'arena-selfplay[analysis]'") from None
    return networkx
