"""Evaluation: a contender against others on the same deals from every seat, with intervals.

A deal is played once with the contender at each seat and the opponent at all the others (two seats: both orders),
from the same seed; a run's policies, in a game of the run, at the seats only that they took there. So luck of the deal
and of the seat cancels out, deals are independent of each other, and the deal is the unit of every interval but those
of wins, draws and losses, which count matches (Wilson's). The deals depend on the seed alone: every contender evaluated
with the same seed plays the same ones.

A win is a payoff above everybody else's, a draw a share in the highest one. A match that an illegal act ended is
lost by its author and, lest others' blunders look like skill, a draw to the others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import games
from arena.errors import ConfigError
from arena.evaluate.casting import Casting
from arena.play.contenders import Contender, ModelContender, play_one
from arena.play.match import Limits, MatchPlan
from arena.play.orchestrator import play_all
from arena.play.settings import GameSpec
from arena.records import MatchRecord
from arena.statistics import ANY, SHARE, Bounds, Interval, mean_ci, paired_ci, range_of, rate_ci
from games.abilities import Split
from games.contracts import UNREAD, Game, MatchId

IN_FLIGHT = 64
LIMITS = Limits(turns=1000, seconds=3600.0, turn_seconds=600.0)
Lineup = Mapping[str, Contender]
"""Contender at each seat."""


@dataclass(frozen=True)
class Played:
    """Outcome of a finished match: payoffs, report and acts by seat."""

    payoffs: Mapping[str, float]
    """By seat, like all that follows."""
    acts: Mapping[str, int]
    invalid: Mapping[str, int]
    offender: str
    """The seat whose illegal act ended the match, if one did."""
    report: Mapping[str, float | bool | str]

    def score(self, seats: Sequence[str]) -> float:
        """Score of the holder of these seats: 1 for a win, 0.5 for a draw, 0 for a loss."""
        if self.offender:
            return 0.0 if self.offender in seats else 0.5
        best = max(self.payoffs.values())
        winners = [seat for seat, payoff in self.payoffs.items() if payoff == best]
        if not set(winners) & set(seats):
            return 0.0
        return 1.0 if len(winners) == 1 else 0.5

    def payoff(self, seats: Sequence[str]) -> float:
        """The mean payoff of these seats."""
        return float(np.mean([self.payoffs[seat] for seat in seats]))


@dataclass
class Result:
    """Results of a contender in a game against one opponent, or alone."""

    game: GameSpec
    contender: str
    against: str
    """"" for a game of one seat."""
    seats: tuple[str, ...]
    matches: int
    figures: dict[str, list[float]]
    """A value per deal, NaN where there is none: payoff, invalid (share of the contender's acts), turns, the game's."""
    scored: dict[str, int] | None
    """Matches by outcome: win, draw, loss; None where nobody can win: one seat, the same payoffs, itself, or seats that
    are no rivals."""
    illegal: dict[str, int]
    """Matches that were ended by an illegal act of `own` or of `other`."""
    ended: dict[str, int]
    """Matches by why they ended."""
    failed: dict[str, int] = field(default_factory=dict)
    """Failed attempts by reason; their deals were played again and count once."""
    ranges: dict[str, Bounds] = field(default_factory=dict)
    """By figure, what it can be at least and at most."""
    by_seat: dict[str, list[float]] = field(default_factory=dict)
    """The contender's payoff at each seat that it took, a value per deal, NaN where there is none."""

    def rate(self, outcome: str) -> Interval:
        """The share of matches with this outcome."""
        return rate_ci(self.scored[outcome], self.matches) if self.scored else Interval(*[math.nan] * 3)

    def mean(self, figure: str) -> Interval:
        """The mean over deals."""
        known = [value for value in self.figures[figure] if not math.isnan(value)]
        return mean_ci(known, self.ranges.get(figure, ANY))

    def to_json(self) -> dict[str, Any]:
        """Plain values: every interval as [estimate, low, high], null where the data cannot say."""
        return {
            "game": self.game.name, "options": self.game.options, "contender": self.contender,
            "against": self.against or None, "matches": self.matches, "deals": len(self.figures["payoff"]),
            "scored": self.scored and {name: [n, plain(self.rate(name))] for name, n in self.scored.items()},
            "figures": {name: plain(self.mean(name)) for name in self.figures},
            "payoff_by_seat": {s: plain(mean_ci([v for v in paid if v == v])) for s, paid in self.by_seat.items()},
            "illegal": self.illegal, "ended": self.ended, "failed": self.failed,
        }  # fmt: skip


def plain(interval: Interval) -> list[float | None]:
    """An interval for JSON."""
    return [value if math.isfinite(value) else None for value in interval]


def change(before: Result, after: Result, figure: str) -> Interval:
    """The mean difference, after less before, deal by deal: both must have played the same deals."""
    pairs = zip(before.figures[figure], after.figures[figure], strict=True)
    known = [pair for pair in pairs if not math.isnan(sum(pair))]
    same = before.ranges.get(figure) == after.ranges.get(figure)
    old, new = [a for a, _ in known], [b for _, b in known]
    return paired_ci(old, new, before.ranges.get(figure, ANY) if same else ANY)


def make_game(spec: GameSpec) -> Game:
    """The game; ConfigError with the nearest name, or for an option that it does not take."""
    if complaint := games.complaint(spec.name):
        raise ConfigError(f"{complaint} (arena list games)")
    try:
        return games.make(spec.name, **spec.options)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{spec.name}: {error}") from None


def on_split(spec: GameSpec, asked: str = "") -> GameSpec:
    """The game with hidden entities of this split only; unless asked otherwise, of the one that its options name, or
    of `test`, whom learners of `train` never met. ConfigError where a game without splits is asked for one."""
    if not isinstance(make_game(spec), Split):
        if asked:
            raise ConfigError(f"--split {asked}: {spec.name} has no splits: leave it out")
        return spec
    split = asked or spec.options.get("split", "test")
    split_spec = GameSpec(name=spec.name, options={**spec.options, "split": split})
    make_game(split_spec)
    return split_spec


def require_playable(contenders: Sequence[Contender], spec: GameSpec) -> None:
    """ConfigError when one of them cannot play some seat of the game."""
    game = make_game(spec)
    for contender in contenders:
        for seat in game.possible_agents:
            contender.check(spec.name, game, seat)


def check_met(contender: Contender, opponents: Sequence[Contender], spec: GameSpec) -> None:
    """ConfigError when somebody cannot play a seat that an evaluation gives them."""
    game = make_game(spec)
    for _, tables in _meetings(contender, opponents, spec):
        for table in tables:
            for seat, who in table.items():
                who.check(spec.name, game, seat)


async def evaluate(
    contender: Contender,
    opponents: Sequence[Contender],
    game: GameSpec,
    matches: int,
    seed: int,
    ended: Callable[[], None] = lambda: None,
) -> list[Result]:
    """A result per opponent, after at least `matches` matches with each; `ended` is called with every finished match.

    In a game of one seat nobody is met and there is one result. A match that keeps failing is left out and told;
    PlayError when most of them do.
    """
    check_met(contender, opponents, game)
    met = _meetings(contender, opponents, game)
    return [await _result(contender, other, tables, game, matches, seed, ended) for other, tables in met]


def matches_of(contender: Contender, opponents: Sequence[Contender], game: GameSpec, matches: int) -> int:
    """Return the number of matches of an evaluation: every deal once in each lineup."""
    return sum(deals_for(matches, len(tables)) * len(tables) for _, tables in _meetings(contender, opponents, game))


def _meetings(
    contender: Contender, opponents: Sequence[Contender], spec: GameSpec
) -> list[tuple[Contender, list[dict[str, Contender]]]]:
    """Every opponent, and the lineups with it; in a game of one seat the contender alone."""
    seats = tuple(make_game(spec).possible_agents)
    others = opponents if len(seats) > 1 else [contender]
    return [(other, lineups(contender, other, spec.name, seats)) for other in others]


def deals_for(matches: int, lineups: int) -> int:
    """Return how many deals make at least so many matches."""
    return -(-matches // lineups)


def lineups(contender: Contender, other: Contender, game: str, seats: Sequence[str]) -> list[dict[str, Contender]]:
    """Seatings to play: the contender at each of its seats in turn, the other everywhere else; with itself, one."""
    own = seats[:1] if contender.name == other.name else own_seats(contender, game, seats)
    return [{seat: contender if seat == mine else other for seat in seats} for mine in own]


def own_seats(contender: Contender, game: str, seats: Sequence[str]) -> Sequence[str]:
    """Return the seats at which it is judged: of a run's policies those that they learned, of everybody else all."""
    cast = contender.cast if isinstance(contender, ModelContender) else None
    return cast.took(game, seats) if isinstance(cast, Casting) else seats


async def _result(
    contender: Contender, other: Contender, tables: Sequence[Lineup], spec: GameSpec, matches: int, seed: int,
    ended: Callable[[], None],
) -> Result:  # fmt: skip
    seats = tuple(tables[0])
    played, failed = await play(tables, spec, deals_for(matches, len(tables)), seed, ended)
    held = [[s for s in seats if table[s].name == contender.name] for table in tables]
    flat = [(p, own) for row, own in zip(played, held, strict=True) for p in row if p]
    game = make_game(spec)
    scored = contender.name != other.name and not game.cooperative and game.rivals
    outcomes = Counter(p.score(own) for p, own in flat)
    offended = [p.offender in own for p, own in flat if p.offender]
    figures, ranges = _figures(played, held, scored)
    return Result(
        game=spec,
        contender=contender.name,
        against=other.name if len(seats) > 1 else "",
        seats=seats,
        matches=len(flat),
        figures=figures,
        scored={"win": outcomes[1.0], "draw": outcomes[0.5], "loss": outcomes[0.0]} if scored else None,
        illegal={"own": sum(offended), "other": len(offended) - sum(offended)},
        ended=dict(Counter(str(p.report["ended"]) for p, _ in flat)),
        failed=dict(failed),
        ranges=ranges,
        by_seat=_by_seat(played, held),
    )


def _by_seat(played: list[list[Played | None]], held: list[list[str]]) -> dict[str, list[float]]:
    """Payoff at each seat, deal by deal; a contender that plays with itself holds all seats at once."""
    pairs = [(row, seat) for row, own in zip(played, held, strict=True) for seat in own]
    return {seat: [p.payoffs[seat] if p else math.nan for p in row] for row, seat in pairs}


def _figures(
    played: list[list[Played | None]], held: list[list[str]], scored: bool
) -> tuple[dict[str, list[float]], dict[str, Bounds]]:
    """Every figure's mean over the matches of each deal, NaN for a deal of which a match is missing; and its range."""

    def measured(p: Played, own: Sequence[str]) -> dict[str, float | bool]:
        acts = sum(p.acts[seat] for seat in own)
        figures = {"payoff": p.payoff(own), "invalid": sum(p.invalid[s] for s in own) / acts if acts else math.nan}
        figures |= {"win": p.score(own) == 1} if scored else {}
        figures |= {"turns": float(sum(p.acts.values()))}
        return figures | {n: v for n, v in p.report.items() if n not in figures and not isinstance(v, str)}

    by_deal = zip(*played, strict=True)
    deals = [[measured(p, own) for p, own in zip(row, held, strict=True) if p] if all(row) else [] for row in by_deal]
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


def deal_seeds(seed: int, deals: int) -> list[int]:
    """The seeds of an evaluation's deals; those of a run come from its iteration, too, and are others."""
    place = (seed, int.from_bytes(b"deals", "big"))
    return [int(each) for each in np.random.SeedSequence(place).generate_state(deals, np.uint64)]


async def play(
    tables: Sequence[Lineup], spec: GameSpec, deals: int, seed: int, ended: Callable[[], None] = lambda: None,
    in_flight: int = IN_FLIGHT,
) -> tuple[list[list[Played | None]], Counter[str]]:  # fmt: skip
    """Every lineup plays the same deals: by lineup and deal what was played, None for a match that kept failing;
    and failed attempts by reason."""
    seeds = deal_seeds(seed, deals)
    plans = [
        MatchPlan(
            MatchId(i, deal), spec.name, dict(spec.options), seeds[deal],
            {seat: who.seating(spec.name, seat) for seat, who in table.items()},
        )
        for deal in range(deals)  # a deal's matches side by side: what they open with is computed once
        for i, table in enumerate(tables)
    ]  # fmt: skip
    played: dict[tuple[int, int], Played] = {}
    failed: Counter[str] = Counter()

    async def one(plan: MatchPlan) -> MatchRecord:
        table, deal = plan.identity.iteration, plan.identity.deal
        record = await play_one(plan, tables[table], seed, LIMITS)
        if record.status == "finished":
            played[table, deal] = _played(record)
        return replace(record, turns=(), streams={})  # nobody needs them any more

    def note(record: MatchRecord) -> None:
        if record.status == "failed":
            failed[record.reason] += 1
        else:
            ended()

    await play_all(plans, one, note, in_flight)
    return [[played.get((i, deal)) for deal in range(deals)] for i in range(len(tables))], failed


def _played(record: MatchRecord) -> Played:
    acts = Counter(turn.seat for turn in record.turns if turn.source not in UNREAD)
    invalid = Counter(turn.seat for turn in record.turns if not turn.valid)
    last = record.turns[-1] if record.turns else None
    offender = last.seat if last and not last.valid and record.report["ended"] == "illegal" else ""
    return Played(record.payoffs, acts, invalid, offender, record.report)
