"""A round robin: every pair of contenders on the same deals in both orders, and what follows from it.

Deals are shared by all pairs, so the unit of intervals is the deal, never single matches. In games
where all are paid the same there is nothing to win: then everybody also plays with itself, and the payoffs say who
works with whom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np
import pandas as pd
from openskill.models import PlackettLuce

from arena.errors import ConfigError, PlayError
from arena.evaluate.alpha_rank import alpha_rank
from arena.evaluate.bradley_terry import elo_intervals
from arena.evaluate.evaluation import Played, check, deals_for, make_game, play
from arena.evaluate.transitivity import Transitivity, transitivity
from arena.play.contenders import Contender
from arena.play.settings import GameSpec
from arena.statistics import mean_ci

DRAWS = 1000
"""Resampled tournaments."""


@dataclass(frozen=True)
class Standings:
    """Results of a tournament: payoffs, ratings, α-rank, cycles."""

    game: GameSpec
    deals: int
    payoffs: pd.DataFrame
    """Mean payoff of row against (or with) column; NaN where they did not meet."""
    table: pd.DataFrame
    """A row per contender, the best paid first: payoff, its interval (low, high), and where there is something to win
    score, elo, its interval, openskill's mu and sigma, and alpha_rank (NaN where that cannot be computed). Score,
    elo and mu count wins, however large; payoff and alpha_rank count what was won."""
    transitivity: Transitivity | None
    """None where all are paid the same, or fewer than three play."""
    matches: int
    illegal: dict[str, int]
    """Matches that an illegal act ended, by its author."""
    failed: dict[str, int]
    """Failed attempts by reason; their deals were played again."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, null where there is none."""
        rows = [{"contender": name, **_finite(row)} for name, row in self.table.to_dict("index").items()]
        report = self.transitivity
        return {
            "game": self.game.name, "options": self.game.options, "deals": self.deals, "matches": self.matches,
            "standings": rows,
            "payoffs": {str(name): _finite(row) for name, row in self.payoffs.to_dict("index").items()},
            "transitivity": report and {
                "cycles": [{"names": list(c.names), "probability": c.probability} for c in report.cycles],
                "intransitive": list(report.intransitive), "rotational": list(report.rotational),
            },
            "illegal": self.illegal, "failed": self.failed,
        }  # fmt: skip


def _finite(row: Mapping[Any, float]) -> dict[str, float | None]:
    return {str(name): float(value) if np.isfinite(value) else None for name, value in row.items()}


@dataclass(frozen=True)
class Meeting:
    """Two contenders' matches on the same deals, or one's with itself."""

    a: int
    b: int
    orders: Sequence[Sequence[Played]]
    """By order, then by deal: in the first order `a` has the first seat, in the second, if any, `b` has."""
    seats: tuple[str, ...]

    def by_deal(self, value: Callable[[Played, str], float], who: int) -> np.ndarray:
        """The mean over the orders of a value of `who`'s seat, by deal."""
        own = self.seats if who == self.a else self.seats[::-1]
        rows = [[value(p, seat) for p in row] for row, seat in zip(self.orders, own, strict=False)]
        return np.mean(rows, axis=0)  # type: ignore[no-any-return]


async def tournament(
    contenders: Sequence[Contender], game: GameSpec, matches: int, seed: int, ended: Callable[[], None] = lambda: None
) -> Standings:
    """Every pair plays at least `matches` matches; `ended` is called with each. ConfigError where it cannot be held."""
    names = [contender.name for contender in contenders]
    for name, count in Counter(names).items():
        if count > 1:
            raise ConfigError(f"'{name}' is named twice: everybody enters once")
    if len(names) < 2:
        raise ConfigError("a tournament needs at least two contenders")
    sample = make_game(game)
    seats, together = tuple(sample.possible_agents), sample.cooperative
    if len(seats) != 2:
        raise ConfigError(f"a tournament is for games of two seats, {game.name} has {len(seats)}: use arena eval")
    check(contenders, game)
    deals, meetings, failed = deals_for(matches, 2), [], Counter[str]()
    pairs = (combinations_with_replacement if together else combinations)(range(len(names)), 2)
    for a, b in pairs:
        tables = [
            dict(zip(seats, (contenders[i], contenders[j]), strict=True)) for i, j in dict.fromkeys([(a, b), (b, a)])
        ]
        played, faults = await play(tables, game, deals, seed, ended)
        complete = [[p for p in row if p] for row in played]
        if any(len(row) < deals for row in complete):
            why = faults.most_common(1)[0][0]
            raise PlayError(f"matches of {names[a]} with {names[b]} keep failing: {why}")
        meetings.append(Meeting(a, b, complete, seats))
        failed += faults
    return standings(names, game, meetings, deals, seed, together, failed)


def pair_count(contenders: int, game: GameSpec) -> int:
    """Return the number of pairs that meet."""
    return contenders * (contenders + (1 if make_game(game).cooperative else -1)) // 2


def standings(
    names: Sequence[str], game: GameSpec, meetings: Sequence[Meeting], deals: int, seed: int, together: bool,
    failed: Counter[str],
) -> Standings:  # fmt: skip
    """The tables of all meetings."""
    n = len(names)
    payoff, score = np.full((n, n, deals), np.nan), np.full((n, n, deals), 0.5)
    for m in meetings:
        for i, j in ((m.a, m.b), (m.b, m.a)):
            payoff[i, j] = m.by_deal(lambda p, seat: p.payoff([seat]), i)
            score[i, j] = m.by_deal(lambda p, seat: p.score([seat]), i)
    own = [mean_ci(np.nanmean(payoff[i], axis=0).tolist()) for i in range(n)]
    others = ~np.eye(n, dtype=bool)
    columns: dict[str, Any] = {
        "payoff": [c.estimate for c in own],
        "low": [c.low for c in own],
        "high": [c.high for c in own],
    }
    report = None
    if not together:
        columns["score"] = [float(score[i][others[i]].mean()) for i in range(n)]
        columns |= _ratings(payoff, score, names, meetings)
        report = _report(names, payoff, np.random.default_rng((seed, deals))) if n > 2 else None
    table = pd.DataFrame(columns, index=pd.Index(names, name="contender"))
    offenders = Counter(
        names[m.a if (m.seats.index(p.offender) == order) else m.b]
        for m in meetings for order, row in enumerate(m.orders) for p in row if p.offender
    )  # fmt: skip
    return Standings(
        game=game,
        deals=deals,
        payoffs=pd.DataFrame(payoff.mean(-1), index=pd.Index(names), columns=pd.Index(names)),
        table=table.sort_values("payoff", ascending=False),
        transitivity=report,
        matches=sum(len(row) for m in meetings for row in m.orders),
        illegal=dict(offenders),
        failed=dict(failed),
    )


def _resampled(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Means over resampled deals of values [n, n, deals]: [DRAWS, n, n]; the same deals for every pair."""
    deals = values.shape[-1]
    weights = rng.multinomial(deals, np.full(deals, 1 / deals), size=DRAWS) / deals
    return np.moveaxis(values @ weights.T, -1, 0)


def _ratings(
    payoff: np.ndarray, score: np.ndarray, names: Sequence[str], meetings: Sequence[Meeting]
) -> dict[str, Any]:
    """Columns: elo by Bradley and Terry with its interval, openskill's rating, α-rank's mass."""
    deals = score.shape[-1]
    off = ~np.eye(len(names), dtype=bool)
    elo, low, high = elo_intervals(score, games=2)  # a deal is played in both orders
    model = PlackettLuce()
    rated = {name: model.rating(name=name) for name in names}
    for deal in range(deals):  # in turn, so that nobody's matches come last
        for m in meetings:
            for order, row in enumerate(m.orders):
                sides = [names[m.a], names[m.b]][:: 1 if order == 0 else -1]
                scores = [row[deal].score([seat]) for seat in m.seats]
                new = model.rate([[rated[side]] for side in sides], scores=scores)
                rated |= {side: team[0] for side, team in zip(sides, new, strict=True)}
    try:
        mass = alpha_rank(np.where(off, np.nan_to_num(payoff.mean(-1)), 0.0))
    except ImportError:
        mass = np.full(len(names), np.nan)
    return {
        "elo": elo, "elo_low": low, "elo_high": high,
        "mu": [rated[name].mu for name in names], "sigma": [rated[name].sigma for name in names],
        "alpha_rank": mass,
    }  # fmt: skip


def _report(names: Sequence[str], payoff: np.ndarray, rng: np.random.Generator) -> Transitivity:
    filled = np.nan_to_num(payoff)
    return transitivity(names, filled.mean(-1), _resampled(filled, rng))
