"""Best-of-N evaluation: play each deal several times and select one of the matches by a rule.

All rules select from the same matches, so their differences are paired by deal. All intervals are over deals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from arena.errors import ConfigError, PlayError
from arena.evaluate.evaluation import IN_FLIGHT, find_own_seats, interval_to_json, make_game
from arena.evaluate.sampled import Decoding, Scorer, require_success, sample_matches, with_decoding
from arena.evaluate.selection import FIGURES, Figure, Rule, Sample, average_results, estimate_best_of, list_curve_sizes
from arena.play.contenders import Contender
from arena.play.settings import GameSpec
from arena.statistics import ANY, SHARE, Bounds, Interval, mean_ci, paired_ci, range_of
from games.abilities import Judged, Stoppable

MEAN = "mean"
"""Name of the row for a single match."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Results of one way to obtain a match per deal: a single match, a selection rule, or a decoding option."""

    name: str
    matches: int
    """Matches played per deal."""
    values: Mapping[Figure, list[float]]
    """Expected results by figure, one value per deal."""
    tokens: float
    """Mean number of tokens that the contender sampled per deal."""
    turns: float
    """Mean number of the contender's acts per deal."""


@dataclass(frozen=True, kw_only=True)
class BestOf:
    """Result of a best-of-N evaluation, which selects one of `n` matches per deal."""

    game: GameSpec
    contender: str
    seat: str
    """Seat that gives the answer."""
    n: int
    rows: Sequence[Row]
    """Results by method. The first row, `mean`, is a single match."""
    curves: Mapping[str, Mapping[int, list[float]]]
    """Expected success by rule and number of matches, one value per deal."""
    missing: int = 0
    """Number of deals left out because a match kept failing."""
    failed: Mapping[str, int] = field(default_factory=dict)
    """Number of failed attempts by reason. Failed matches were retried, and each match counts once."""

    def mean(self, row: Row, figure: Figure) -> Interval:
        """Return the row's mean over deals, with its interval."""
        return mean_ci(row.values[figure], self._bounds(figure))

    def difference(self, row: Row, figure: Figure) -> Interval:
        """Return the row's mean minus that of a single match, paired by deal, with its interval."""
        return paired_ci(self.rows[0].values[figure], row.values[figure], self._bounds(figure))

    def _bounds(self, figure: Figure) -> Bounds:
        values = [value for row in self.rows for value in row.values[figure]]
        return SHARE if figure == "success" else ANY if figure == "payoff" else range_of(figure, values)

    def to_json(self) -> dict[str, Any]:
        """Return the rows and the success by number of matches as JSON values. Intervals are [estimate, low, high]."""
        rows = [
            {"by": row.name, "matches": row.matches, "tokens": row.tokens, "turns": row.turns}
            | {figure: interval_to_json(self.mean(row, figure)) for figure in FIGURES}
            | {"against_mean": {figure: interval_to_json(self.difference(row, figure)) for figure in FIGURES}}
            for row in self.rows
        ]
        success = {
            rule: {str(k): interval_to_json(mean_ci(values, SHARE)) for k, values in curve.items()}
            for rule, curve in self.curves.items()
        }
        return {
            "game": self.game.name, "options": self.game.options, "contender": self.contender, "seat": self.seat,
            "best_of": self.n, "deals": len(self.rows[0].values["success"]), "rows": rows,
            "success_by_matches": success, "missing": self.missing, "failed": dict(self.failed),
        }  # fmt: skip


def find_answering_seat(contender: Contender, spec: GameSpec) -> str:
    """Return the contender's only seat in the game, ignoring the judge seat.

    Raises ConfigError if the contender does not have exactly one, or if the game reports no success.
    """
    game = make_game(spec)
    seats, judge_seat = tuple(game.possible_agents), game.judge_seat if isinstance(game, Judged) else ""
    if isinstance(game, Stoppable):  # a match stopped after the deal already reports all figures
        game.reset(seed=0)
        game.stop("stopped")
        require_success(game.report(), spec.name)
    own_seats = [seat for seat in find_own_seats(contender, spec.name, seats) if seat != judge_seat]
    if len(own_seats) != 1:
        raise ConfigError(
            f"--best-of selects one seat's answer, and {contender.name} has {len(own_seats)} seats in {spec.name} "
            f"({', '.join(own_seats)}): name one policy of a run that trains them separately, as RUN:POLICY"
        )
    return own_seats[0]


def seat_contenders(
    contender: Contender, spec: GameSpec, seat: str, others: Contender | None, judge: Contender | None, judge_seat: str
) -> dict[str, Contender]:
    """Return the contenders by seat: the contender at `seat`, the judge at `judge_seat`, `others` at all other seats.

    Raises ConfigError if a contender cannot play its seat, or if a seat has no contender.
    """
    game, lineup = make_game(spec), dict[str, Contender]()
    for name in game.possible_agents:
        player = contender if name == seat else judge if judge and name == judge_seat else others
        if player is None:
            raise ConfigError(f"who plays {name} of {spec.name}? Name one contender: --against random")
        player.check(spec.name, game, name)
        lineup[name] = player
    return lineup


async def play_best_of(
    lineup: Mapping[str, Contender], seat: str, spec: GameSpec, *, n: int, deals: int, seed: int,
    rules: Sequence[Rule], decodings: Sequence[Decoding] = (), scorers: Mapping[str, Scorer] | None = None,
    on_finish: Callable[[], None] = lambda: None, in_flight: int = IN_FLIGHT,
) -> BestOf:  # fmt: skip
    """Play each deal `n` times, and once with each decoding option. Returns the results of each rule and option.

    `scorers` must contain those of the rules `p_yes` and `reward_model` that are among `rules`. Calls `on_finish`
    after each finished match. Leaves out deals with a match that keeps failing. Raises PlayError if most matches fail,
    or no deal is complete.
    """
    samples_by_deal, failed = await sample_matches(
        lineup, seat, spec, deals, n, seed, scorers or {}, on_finish, in_flight
    )
    single: dict[str, list[list[Sample]]] = {}
    for decoding in decodings:
        table = {**lineup, seat: with_decoding(lineup[seat], decoding, n)}
        single[decoding], more_failures = await sample_matches(
            table, seat, spec, deals, 1, seed, {}, on_finish, in_flight
        )
        failed += more_failures
    complete = [
        d for d in range(deals) if len(samples_by_deal[d]) == n and all(samples[d] for samples in single.values())
    ]
    if not complete:
        raise PlayError(
            f"every deal has a match that kept failing: {max(failed, key=lambda reason: failed[reason], default='')}"
        )
    by_deal = [samples_by_deal[d] for d in complete]
    curves = {rule: _estimate_curve(by_deal, rule, seed) for rule in rules}
    rows = [replace(_make_row(MEAN, by_deal, [average_results(samples) for samples in by_deal], 1 / n), matches=1)]
    rows += [_make_row(rule, by_deal, curves[rule][n]) for rule in rules]
    for name, matches in single.items():
        decoded = [matches[d] for d in complete]
        rows.append(_make_row(name, decoded, [average_results(samples) for samples in decoded]))
    return BestOf(
        game=spec, contender=lineup[seat].name, seat=seat, n=n, rows=rows, failed=dict(failed),
        curves={rule: {k: [v["success"] for v in values] for k, values in c.items()} for rule, c in curves.items()},
        missing=deals - len(complete),
    )  # fmt: skip


def _estimate_curve(deals: Sequence[Sequence[Sample]], rule: Rule, seed: int) -> dict[int, list[dict[Figure, float]]]:
    """Return the rule's expected results by number of matches, one per deal."""
    return {
        k: [estimate_best_of(samples, rule, k, (seed, d, k)) for d, samples in enumerate(deals)]
        for k in list_curve_sizes(len(deals[0]))
    }


def _make_row(
    name: str, deals: Sequence[Sequence[Sample]], values: Sequence[Mapping[Figure, float]], share: float = 1
) -> Row:
    """Return the row of these results. Its tokens and turns are the sums over a deal's matches, times `share`."""
    return Row(
        name=name,
        matches=len(deals[0]),
        values={figure: [value[figure] for value in values] for figure in FIGURES},
        tokens=share * float(np.mean([sum(s.tokens for s in samples) for samples in deals])),
        turns=share * float(np.mean([sum(s.turns for s in samples) for samples in deals])),
    )
