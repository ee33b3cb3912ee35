"""Round-robin tournaments: every pair of players on the same deals in both orders, with payoffs, ratings and cycles.

All pairs share the deals, so the deal is the unit of intervals. In cooperative games, where all seats get the same
payoff, every player also plays with itself, and the payoffs show which players work well together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from math import comb
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from arena.errors import ConfigError, PlayError
from arena.evaluate.bradley_terry import elo_intervals
from arena.evaluate.evaluation import count_deals, make_game, play_lineups, require_playable
from arena.evaluate.played import MatchOutcome
from arena.play.contenders import Contender
from arena.play.settings import GameSpec
from arena.statistics import Interval, mean_ci

DRAWS = 1000
"""Number of bootstrap resamples of the deals."""


class Cycles(NamedTuple):
    """Two measures of how far the payoffs are from a ranking. Noise creates cycles, so both are biased upwards.

    Intervals are 95 % percentile intervals over resampled deals.
    """

    intransitive: Interval
    """Share of triples in which each player beats the next, as in rock-paper-scissors."""
    rotational: Interval
    """Share of the payoffs that no ranking explains: 0 for a ranking, 1 for rock-paper-scissors."""


@dataclass(frozen=True, kw_only=True)
class Standings:
    """Results of a tournament: payoffs of all pairs, standings of the players, and cycles."""

    game: GameSpec
    deals: int
    payoffs: pd.DataFrame
    """Mean payoff of row against (or with) column; NaN for pairs that did not meet."""
    table: pd.DataFrame
    """One row per player, by descending payoff: payoff with its interval (low, high). In competitive games also the
    score (share of wins, a draw counting half) and the Elo rating with its interval (elo, elo_low, elo_high)."""
    cycles: Cycles | None
    """None in cooperative games and with fewer than three players."""
    matches: int
    illegal: dict[str, int]
    """Number of matches that each player's illegal act ended."""
    failed: dict[str, int]
    """Failed attempts by reason; their deals were played again."""

    def to_json(self) -> dict[str, Any]:
        """Return the results as JSON values, the standings as a list by descending payoff, with null for NaN."""
        return {
            "game": self.game.name, "options": self.game.options, "deals": self.deals, "matches": self.matches,
            "standings": [
                {"contender": name, **_replace_nonfinite(row)} for name, row in self.table.to_dict("index").items()
            ],
            "payoffs": {str(name): _replace_nonfinite(row) for name, row in self.payoffs.to_dict("index").items()},
            "cycles": self.cycles and {name: list(share) for name, share in self.cycles._asdict().items()},
            "illegal": self.illegal, "failed": self.failed,
        }  # fmt: skip


def _replace_nonfinite(row: Mapping[Any, float]) -> dict[str, float | None]:
    return {str(name): float(value) if np.isfinite(value) else None for name, value in row.items()}


@dataclass(frozen=True)
class PairMatches:
    """Matches of a pair of players, `a` and `b` (indices), on the same deals in both orders; `a` may equal `b`."""

    a: int
    b: int
    orders: Sequence[Sequence[MatchOutcome]]
    """Matches by order and deal: `a` has the first seat in the first order, `b` in the second, if there is one."""
    seats: tuple[str, ...]

    def by_deal(self, value: Callable[[MatchOutcome, str], float], player: int) -> np.ndarray:
        """Return the mean over orders, for each deal, of `value(match, seat)` at the seat of this player (an index)."""
        own = self.seats if player == self.a else self.seats[::-1]
        rows = [[value(p, seat) for p in row] for row, seat in zip(self.orders, own, strict=False)]
        return np.mean(rows, axis=0)  # type: ignore[no-any-return]


async def play_tournament(
    contenders: Sequence[Contender],
    game: GameSpec,
    matches: int,
    seed: int,
    on_finish: Callable[[], None] = lambda: None,
) -> Standings:
    """Play at least `matches` matches per pair and return the standings.

    `on_finish` is called after each finished match. Raises ConfigError for a repeated name, fewer than two players, a
    game without exactly two seats, or a player that cannot play. Raises PlayError if matches of a pair keep failing.
    """
    names = [contender.name for contender in contenders]
    for name, count in Counter(names).items():
        if count > 1:
            raise ConfigError(f"'{name}' is named twice: name each contender once")
    if len(names) < 2:
        raise ConfigError("a tournament needs at least two contenders")
    sample = make_game(game)
    seats, cooperative = tuple(sample.possible_agents), sample.cooperative
    if len(seats) != 2:
        raise ConfigError(f"a tournament is for games of two seats, {game.name} has {len(seats)}: use arena eval")
    require_playable(contenders, game)
    deals, meetings, failed = count_deals(matches, 2), [], Counter[str]()
    pairs = (combinations_with_replacement if cooperative else combinations)(range(len(names)), 2)
    for a, b in pairs:
        tables = [
            dict(zip(seats, (contenders[i], contenders[j]), strict=True)) for i, j in dict.fromkeys([(a, b), (b, a)])
        ]
        outcomes, faults = await play_lineups(tables, game, deals, seed, on_finish)
        complete = [[p for p in row if p] for row in outcomes]
        if any(len(row) < deals for row in complete):
            reason = faults.most_common(1)[0][0]
            raise PlayError(f"matches of {names[a]} with {names[b]} keep failing: {reason}")
        meetings.append(PairMatches(a, b, complete, seats))
        failed += faults
    return compute_standings(names, game, meetings, deals, seed, cooperative, failed)


def count_pairs(contenders: int, game: GameSpec) -> int:
    """Return the number of pairs of players that meet. In cooperative games each player also meets itself."""
    return contenders * (contenders + (1 if make_game(game).cooperative else -1)) // 2


def compute_standings(
    names: Sequence[str], game: GameSpec, meetings: Sequence[PairMatches], deals: int, seed: int, cooperative: bool,
    failed: Counter[str],
) -> Standings:  # fmt: skip
    """Compute payoffs, ratings and cycles from the matches of all pairs. `seed` seeds the resampling of deals."""
    n = len(names)
    payoff_nnd, score_nnd = np.full((n, n, deals), np.nan), np.full((n, n, deals), 0.5)
    for m in meetings:
        for i, j in ((m.a, m.b), (m.b, m.a)):
            payoff_nnd[i, j] = m.by_deal(lambda p, seat: p.payoff([seat]), i)
            score_nnd[i, j] = m.by_deal(lambda p, seat: p.score([seat]), i)
    own = [mean_ci(np.nanmean(row, axis=0).tolist()) for row in payoff_nnd]
    columns: dict[str, Any] = {
        "payoff": [ci.estimate for ci in own],
        "low": [ci.low for ci in own],
        "high": [ci.high for ci in own],
    }
    cycles = None
    if not cooperative:
        others = ~np.eye(n, dtype=bool)
        columns["score"] = [float(score_nnd[i][others[i]].mean()) for i in range(n)]
        columns["elo"], columns["elo_low"], columns["elo_high"] = elo_intervals(score_nnd, games=2)
        cycles = find_cycles(np.nan_to_num(payoff_nnd), np.random.default_rng((seed, deals))) if n > 2 else None
    table = pd.DataFrame(columns, index=pd.Index(names, name="contender"))
    illegal = Counter(
        names[m.a if m.seats.index(p.offender) == order else m.b]
        for m in meetings for order, row in enumerate(m.orders) for p in row if p.offender
    )  # fmt: skip
    return Standings(
        game=game,
        deals=deals,
        payoffs=pd.DataFrame(payoff_nnd.mean(-1), index=pd.Index(names), columns=pd.Index(names)),
        table=table.sort_values("payoff", ascending=False),
        cycles=cycles,
        matches=sum(len(row) for m in meetings for row in m.orders),
        illegal=dict(illegal),
        failed=dict(failed),
    )


def find_cycles(payoff: np.ndarray, rng: np.random.Generator) -> Cycles:
    """Measure the cycles in payoffs [n, n, deals] of row against column. `rng` resamples deals for the intervals."""
    deals = payoff.shape[-1]
    # Every pair uses the same resampled deals.
    weights_bd = rng.multinomial(deals, np.full(deals, 1 / deals), size=DRAWS) / deals
    resampled_bnn = np.moveaxis(payoff @ weights_bd.T, -1, 0)

    def measure(share: Callable[[np.ndarray], np.ndarray]) -> Interval:
        low, high = np.percentile(share(resampled_bnn), [2.5, 97.5])
        return Interval(float(share(payoff.mean(-1))), float(low), float(high))

    return Cycles(measure(intransitive_share), measure(rotational_share))


def intransitive_share(payoffs: np.ndarray) -> np.ndarray:
    """Return the share of player triples that are cycles, for payoffs [..., n, n] with n > 2."""
    beats = (antisymmetric(payoffs) > 1e-12).astype(float)
    closed_paths = np.trace(beats @ beats @ beats, axis1=-2, axis2=-1)  # each cycle has three starting points
    return np.asarray(closed_paths / 3 / comb(payoffs.shape[-1], 3))


def rotational_share(payoffs: np.ndarray) -> np.ndarray:
    """Return the share of the payoffs [..., n, n] that no ranking explains: |R|² / |A|²; 0 if no player beats another.

    A = T + R is the Hodge decomposition of the antisymmetric payoffs (Balduzzi et al. 2018, "Re-evaluating
    Evaluation"): T[i, j] = f[i] - f[j], with f the row means, is the part that ratings explain. R is orthogonal to it.
    """
    a = antisymmetric(payoffs)
    f = a.mean(-1)
    rest = a - (f[..., :, None] - f[..., None, :])
    total = (a**2).sum((-1, -2))
    return np.where(total > 0, (rest**2).sum((-1, -2)) / np.where(total > 0, total, 1.0), 0.0)


def antisymmetric(payoffs: np.ndarray) -> np.ndarray:
    """Return half the difference [..., n, n] between the payoffs of row and column in their matches."""
    return np.asarray((payoffs - np.swapaxes(payoffs, -1, -2)) / 2)
