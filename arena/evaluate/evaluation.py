"""Evaluation of a contender against opponents on the same deals from every seat, with intervals.

Each deal is played once per lineup: the contender at one seat, the opponent at all others (two seats: both orders). A
run's policies take only the seats that they had in the run, if it played the game. So the luck of deal and seat cancels
out. Intervals are over deals, except for shares of wins, draws and losses, which are over matches (Wilson). Deals
depend on the seed alone: every contender evaluated with the same seed plays the same deals.

A win is a payoff above all others; a draw is a shared highest payoff. A match ended by an illegal act is a loss for the
offender and a draw for the others, so that an opponent's mistake does not count as skill.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import games
from arena.errors import ConfigError
from arena.evaluate.casting import Casting
from arena.evaluate.played import MatchOutcome, read_outcome
from arena.play import making
from arena.play.contenders import Contender, ModelContender, play_one
from arena.play.match import Limits, MatchPlan
from arena.play.orchestrator import play_counting_failures
from arena.play.settings import GameSpec
from arena.records import MatchRecord
from arena.statistics import ANY, SHARE, Bounds, Interval, mean_ci, paired_ci, range_of, rate_ci
from games.abilities import Split
from games.contracts import Game, MatchId

IN_FLIGHT = 64
LIMITS = Limits(turns=1000, seconds=3600.0, turn_seconds=600.0)
Rate = Callable[[MatchRecord], Awaitable[Mapping[str, float]]]
"""Function that returns a reward model's scores of a finished match by seat."""
Lineup = Mapping[str, Contender]
"""Contender at each seat of a match."""


@dataclass(kw_only=True)
class Result:
    """Results of a contender in a game against one opponent, or alone in a game of one seat."""

    game: GameSpec
    contender: str
    against: str
    """Name of the opponent; "" for a game of one seat."""
    seats: tuple[str, ...]
    matches: int
    figures: dict[str, list[float]]
    """Values of each figure, one per deal, NaN if unknown. Figures are payoff, invalid (share of the contender's acts),
    win, turns, `learned` (a reward model's score), and the numbers of the game's report."""
    scored: dict[str, int] | None
    """Number of matches by outcome: win, draw, loss. None if there is no winner: one seat, a cooperative game,
    self-play, or seats that are not rivals."""
    illegal: dict[str, int]
    """Number of matches ended by an illegal act of the contender (`own`) or an opponent (`other`)."""
    ended: dict[str, int]
    """Number of matches by the reason of their end."""
    failed: dict[str, int] = field(default_factory=dict)
    """Number of failed attempts by reason. Their matches were retried."""
    ranges: dict[str, Bounds] = field(default_factory=dict)
    """Smallest and largest possible value of each figure, for its interval."""
    by_seat: dict[str, list[float]] = field(default_factory=dict)
    """Payoffs of the contender, one per deal, by its seat; NaN if unknown."""

    def rate(self, outcome: str) -> Interval:
        """Return the share of matches with this outcome (win, draw, loss), with interval; NaN if `scored` is None."""
        return rate_ci(self.scored[outcome], self.matches) if self.scored else Interval(*[math.nan] * 3)

    def mean(self, figure: str) -> Interval:
        """Return the figure's mean over the deals where it is known, with its interval."""
        known = [value for value in self.figures[figure] if not math.isnan(value)]
        return mean_ci(known, self.ranges.get(figure, ANY))

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON. Each figure is its mean over deals as [estimate, low, high], with null for NaN."""
        return {
            "game": self.game.name, "options": self.game.options, "contender": self.contender,
            "against": self.against or None, "matches": self.matches, "deals": len(self.figures["payoff"]),
            "scored": self.scored and {name: [n, interval_to_json(self.rate(name))] for name, n in self.scored.items()},
            "figures": {name: interval_to_json(self.mean(name)) for name in self.figures},
            "payoff_by_seat": {
                s: interval_to_json(mean_ci([v for v in payoffs if v == v])) for s, payoffs in self.by_seat.items()
            },
            "illegal": self.illegal, "ended": self.ended, "failed": self.failed,
        }  # fmt: skip


def interval_to_json(interval: Interval) -> list[float | None]:
    """Return an interval as a JSON list [estimate, low, high], with null for NaN."""
    return [value if math.isfinite(value) else None for value in interval]


def compute_change(before: Result, after: Result, figure: str) -> Interval:
    """Return the figure's mean change, after minus before, paired by deal, with its interval.

    Both results must have the same deals. Deals without a value in both are left out.
    """
    pairs = zip(before.figures[figure], after.figures[figure], strict=True)
    known = [pair for pair in pairs if not math.isnan(sum(pair))]
    has_same_range = before.ranges.get(figure) == after.ranges.get(figure)
    old, new = [a for a, _ in known], [b for _, b in known]
    return paired_ci(old, new, before.ranges.get(figure, ANY) if has_same_range else ANY)


def make_game(spec: GameSpec) -> Game:
    """Create the game. Raises ConfigError for an unknown name, with the nearest one, or an invalid option."""
    if complaint := games.find_problem(spec.name):
        raise ConfigError(f"{complaint} (arena list games)")
    try:
        return making.make_game(spec.name, spec.options)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{spec.name}: {error}") from None


def with_split(spec: GameSpec, split: str = "") -> GameSpec:
    """Return the game's settings with the option `split` set, which selects the hidden entities of its deals.

    The value is `split`, else that in the game's options, else `test`, whose entities do not occur in `train`. A game
    without splits stays unchanged. Raises ConfigError for a `split` that the game does not have.
    """
    if not isinstance(make_game(spec), Split):
        if split:
            raise ConfigError(f"--split {split}: {spec.name} has no splits: leave it out")
        return spec
    split_name = split or spec.options.get("split", "test")
    split_spec = GameSpec(name=spec.name, options={**spec.options, "split": split_name})
    make_game(split_spec)
    return split_spec


def require_playable(contenders: Sequence[Contender], spec: GameSpec) -> None:
    """Raise ConfigError unless every contender can play every seat of the game."""
    game = make_game(spec)
    for contender in contenders:
        for seat in game.possible_agents:
            contender.check(spec.name, game, seat)


def check_lineups(contender: Contender, opponents: Sequence[Contender], spec: GameSpec) -> None:
    """Raise ConfigError if the contender or an opponent cannot play one of its seats in this evaluation."""
    game = make_game(spec)
    for _, tables in _list_meetings(contender, opponents, spec):
        for table in tables:
            for seat, player in table.items():
                player.check(spec.name, game, seat)


async def evaluate(
    contender: Contender,
    opponents: Sequence[Contender],
    game: GameSpec,
    matches: int,
    seed: int,
    on_finish: Callable[[], None] = lambda: None,
    rate: Rate | None = None,
) -> list[Result]:
    """Play at least `matches` matches with each opponent and return one result per opponent.

    A game of one seat gives one result. `on_finish` is called after each finished match. With `rate`, results have the
    figure `learned`. Matches that keep failing are left out; failed attempts are counted in `failed`. Raises
    ConfigError if a player cannot take its seat, and PlayError if most matches fail.
    """
    check_lineups(contender, opponents, game)
    meetings = _list_meetings(contender, opponents, game)
    return [
        await _evaluate_against(contender, other, tables, game, matches, seed, on_finish, rate)
        for other, tables in meetings
    ]


def count_matches(contender: Contender, opponents: Sequence[Contender], game: GameSpec, matches: int) -> int:
    """Return the number of matches that `evaluate` plays with these arguments: one per deal and lineup."""
    return sum(
        count_deals(matches, len(tables)) * len(tables) for _, tables in _list_meetings(contender, opponents, game)
    )


def _list_meetings(
    contender: Contender, opponents: Sequence[Contender], spec: GameSpec
) -> list[tuple[Contender, list[dict[str, Contender]]]]:
    """Return each opponent with its lineups (contender by seat); in a game of one seat, the contender with its own."""
    seats = tuple(make_game(spec).possible_agents)
    others = opponents if len(seats) > 1 else [contender]
    return [(other, list_lineups(contender, other, spec.name, seats)) for other in others]


def count_deals(matches: int, lineups: int) -> int:
    """Return the smallest number of deals that gives at least `matches` matches, one per deal and lineup."""
    return -(-matches // lineups)


def list_lineups(contender: Contender, other: Contender, game: str, seats: Sequence[str]) -> list[dict[str, Contender]]:
    """Return a lineup (contender by seat) for each of the contender's own seats, with `other` at all other seats.

    In self-play there is one lineup.
    """
    own_seats = seats[:1] if contender.name == other.name else find_own_seats(contender, game, seats)
    return [{seat: contender if seat == own_seat else other for seat in seats} for own_seat in own_seats]


def find_own_seats(contender: Contender, game: str, seats: Sequence[str]) -> Sequence[str]:
    """Return the seats that the contender had in its run of this game; all if it has no such run."""
    cast = contender.cast if isinstance(contender, ModelContender) else None
    return cast.seats_in_run(game, seats) if isinstance(cast, Casting) else seats


async def _evaluate_against(
    contender: Contender, other: Contender, tables: Sequence[Lineup], spec: GameSpec, matches: int, seed: int,
    on_finish: Callable[[], None], rate: Rate | None = None,
) -> Result:  # fmt: skip
    seats = tuple(tables[0])
    outcomes_by_table, failed = await play_lineups(
        tables, spec, count_deals(matches, len(tables)), seed, on_finish, rate=rate
    )
    own_seats = [[s for s in seats if table[s].name == contender.name] for table in tables]
    flat = [(p, own) for row, own in zip(outcomes_by_table, own_seats, strict=True) for p in row if p]
    game = make_game(spec)
    scored = contender.name != other.name and not game.cooperative and game.rivals
    outcomes = Counter(p.score(own) for p, own in flat)
    is_own_offence = [p.offender in own for p, own in flat if p.offender]
    figures, ranges = _average_figures(outcomes_by_table, own_seats, scored)
    return Result(
        game=spec,
        contender=contender.name,
        against=other.name if len(seats) > 1 else "",
        seats=seats,
        matches=len(flat),
        figures=figures,
        scored={"win": outcomes[1.0], "draw": outcomes[0.5], "loss": outcomes[0.0]} if scored else None,
        illegal={"own": sum(is_own_offence), "other": len(is_own_offence) - sum(is_own_offence)},
        ended=dict(Counter(str(p.report["ended"]) for p, _ in flat)),
        failed=dict(failed),
        ranges=ranges,
        by_seat=_payoffs_by_seat(outcomes_by_table, own_seats),
    )


def _payoffs_by_seat(outcomes: list[list[MatchOutcome | None]], own_seats: list[list[str]]) -> dict[str, list[float]]:
    """Return the contender's payoffs per deal by its seat, NaN for a missing match. In self-play it has every seat."""
    pairs = [(row, seat) for row, own in zip(outcomes, own_seats, strict=True) for seat in own]
    return {seat: [p.payoffs[seat] if p else math.nan for p in row] for row, seat in pairs}


def _average_figures(
    outcomes: list[list[MatchOutcome | None]], own_seats: list[list[str]], scored: bool
) -> tuple[dict[str, list[float]], dict[str, Bounds]]:
    """Return, by figure, its mean over each deal's matches (NaN if one is missing), and its range."""

    by_deal = zip(*outcomes, strict=True)
    deals = [
        [p.figures(own, scored) for p, own in zip(row, own_seats, strict=True) if p] if all(row) else []
        for row in by_deal
    ]
    by_match = [figures for row in deals for figures in row]
    ranges = {
        name: SHARE if name == "invalid" else range_of(name, [row[name] for row in by_match if name in row])
        for name in dict.fromkeys(name for row in by_match for name in row)
    }
    return {
        name: [_mean([figures[name] for figures in row if name in figures]) for row in deals] for name in ranges
    }, ranges


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


# -- playing -----------------------------------------------------------------------------------------------


def draw_deal_seeds(seed: int, deals: int) -> list[int]:
    """Return the seeds of an evaluation's deals. They differ from training seeds, which depend on the iteration."""
    entropy = (seed, int.from_bytes(b"deals", "big"))
    return [int(each) for each in np.random.SeedSequence(entropy).generate_state(deals, np.uint64)]


async def play_lineups(
    lineups: Sequence[Lineup], spec: GameSpec, deals: int, seed: int, on_finish: Callable[[], None] = lambda: None,
    in_flight: int = IN_FLIGHT, rate: Rate | None = None,
) -> tuple[list[list[MatchOutcome | None]], Counter[str]]:  # fmt: skip
    """Play the same deals with every lineup (contender by seat), `in_flight` matches at once.

    Returns the outcomes by lineup and deal (None for a match that kept failing) and the failed attempts by reason.
    `on_finish` is called after each finished match, and `rate` scores it. Raises PlayError if more matches keep failing
    than finish.
    """
    seeds = draw_deal_seeds(seed, deals)
    plans = [
        MatchPlan(
            identity=MatchId(i, deal), game=spec.name, options=dict(spec.options), seed=seeds[deal],
            seats={seat: player.seating(spec.name, seat) for seat, player in lineup.items()},
        )
        for deal in range(deals)  # matches of a deal run together and share their cached prefix
        for i, lineup in enumerate(lineups)
    ]  # fmt: skip
    outcomes: dict[tuple[int, int], MatchOutcome] = {}

    async def play_plan(plan: MatchPlan) -> MatchRecord:
        i, deal = plan.identity.iteration, plan.identity.deal
        record = await play_one(plan, lineups[i], seed, LIMITS)
        if record.status == "finished":
            outcomes[i, deal] = read_outcome(record, await rate(record) if rate else {})
        return replace(record, turns=(), streams={})  # frees memory

    failed = await play_counting_failures(plans, play_plan, on_finish, in_flight)
    return [[outcomes.get((i, deal)) for deal in range(deals)] for i in range(len(lineups))], failed
