"""Forks: a logged match up to a turn, then somebody else or another act; what comes of it, beside what came of it.

The deal is dealt again from its seed and the logged acts are put to the game, which must show every seat what the log
says it saw. From the fork on everybody plays with new chance, from the run's seed and the fork's number: in fork i the
players that stay draw alike in both arms (common random numbers), so differences are taken fork by fork. Chance that
the game draws itself stays that of the deal.
How somebody takes a seat of a match that has begun: `arena.play.joining`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agents.names import nearest
from arena.config.experiment import Experiment
from arena.config.kept import experiment_of
from arena.config.own_files import same_game, with_own_roles
from arena.errors import ConfigError, PlayError
from arena.evaluate.casting import Casting
from arena.evaluate.evaluation import IN_FLIGHT, LIMITS, make_game
from arena.evaluate.matrix import in_role
from arena.evaluate.specs import Contenders, kept_iterations
from arena.league.pool import version_of
from arena.parts.chance import number
from arena.play.contenders import HUMAN, Contender, EndpointContender, ModelContender, play_one
from arena.play.joining import Joining, Parting, first_difference
from arena.play.match import MatchPlan
from arena.play.orchestrator import play_all
from arena.play.settings import GameSpec
from arena.records import MatchRecord, Seating
from arena.statistics import ANY, Bounds, Interval, mean_ci, paired_ci, range_of
from arena.store.reader import RunReader
from games.contracts import UNREAD, MatchId

Figures = dict[str, list[float]]
"""A value for each fork: `payoff SEAT`, and what the game reports."""


@dataclass(frozen=True)
class Forked:
    """Outcomes of the forks of one match."""

    parting: Parting
    sat: Mapping[str, str]
    """By seat, who sits in the unchanged arm: those of the match, or the nearest of their versions that are kept."""
    others: Mapping[str, str]
    """By seat, who sits there instead in the forked arm."""
    logged: dict[str, float]
    """Outcome of the match itself, by figure."""
    unchanged: Figures
    """Outcomes of replays by those who stay; without values where there were none."""
    forked: Figures
    failed: dict[str, int] = field(default_factory=dict)
    """Attempts that failed, by reason; they were played again."""

    def bounds(self, figure: str) -> Bounds:
        """Return the bounds of a figure."""
        arms = (self.unchanged.get(figure, []), self.forked.get(figure, []))
        return ANY if figure.startswith("payoff ") else range_of(f"report.{figure}", [v for arm in arms for v in arm])

    def mean(self, arm: Figures, figure: str, level: float = 0.95) -> Interval:
        """The mean over forks of one of the arms."""
        return mean_ci(arm.get(figure, []), self.bounds(figure), level)

    def difference(self, figure: str) -> Interval:
        """Forked less unchanged, fork by fork; NaN where forks of the two do not have the figure alike."""
        one, two = self.unchanged.get(figure, []), self.forked.get(figure, [])
        return paired_ci(one, two, self.bounds(figure)) if len(one) == len(two) else Interval(*[float("nan")] * 3)

    def figures(self) -> list[str]:
        """All that were told, payoffs first."""
        return list(dict.fromkeys([*self.logged, *self.unchanged, *self.forked]))


async def fork(
    run: Path | str,
    match: str,
    turn: int,
    seats: Mapping[str, str] | None = None,
    act: str = "",
    n: int = 20,
    loader: Contenders | None = None,
    person: Contender | None = None,
    ended: Callable[[], None] = lambda: None,
) -> Forked:
    """Play a match of a run on from turn `turn` (from 0), `n` times with others at some `seats` or another `act`.

    And `n` times with those who sat there. ConfigError or StoreError, one line, where match, turn, seat or player are
    not to be had, or where the game no longer shows what the log says it did. `person` sits where `human` is named.
    """
    loader, others = loader or Contenders(), dict(seats or {})
    reader = RunReader(run)
    experiment = with_own_roles(reader.path, experiment_of(reader.path, trust=loader.trust), loader.trust)
    record = MatchRecord.from_json(reader.match(match))
    record = replace(record, game=same_game(record.game, experiment))
    parting = checked(Parting(record, turn, act), others)
    told: dict[str, None] = {}
    sat = {seat: _who(reader.path, experiment, held, told) for seat, held in record.seats.items()}
    for line in told:
        loader.note(line)
    if nobody := [seat for seat, name in (sat | others).items() if not name]:
        raise ConfigError(f"a person sat at {nobody[0]} of {match}: name who plays on, such as {nobody[0]}=random")
    arms = [sat, sat | others] if all(sat.values()) else [sat | others]
    names = dict.fromkeys(name for arm in arms for name in arm.values() if name != HUMAN)
    found = dict(zip(names, await loader.load(*names), strict=True))
    if person is not None:
        found[HUMAN] = person
    for seat, name in (sat | others).items():
        if name not in found:
            raise ConfigError(f"nobody can be asked to play {seat}: name somebody other than {HUMAN}")
        found[name].check(record.game, make_game(GameSpec(name=record.game, options=record.options)), seat)
    roles = {} if loader.role else _roles(experiment, record.game)
    tables = [
        {seat: _as(roles.get(seat), found[name], record.game, seat) for seat, name in arm.items()} for arm in arms
    ]
    played, failed = await _play(parting, tables, experiment.seed, n, ended)
    whole = [forks for forks in zip(*played, strict=True) if all(forks)]  # what failed in one arm has no partner
    if not whole:
        raise PlayError(f"no fork of {match} was finished: {max(failed, key=lambda why: failed[why], default='')}")
    figures = [_figures(records) for records in zip(*whole, strict=True)]
    unchanged = figures[0] if len(arms) > 1 else {}
    return Forked(parting, sat, others, _outcome(record), unchanged, figures[-1], dict(failed))


def checked(parting: Parting, others: Mapping[str, str]) -> Parting:
    """The parting, where it can be had; ConfigError for a turn or seat that is not there, or a game that changed."""
    record, turn = parting.match, parting.turn
    if not 0 <= turn < len(record.turns):
        raise ConfigError(f"{record.id} has turns 1 to {len(record.turns)}: it cannot be forked at {turn + 1}")
    for seat in others:
        if seat not in record.seats:
            known = ", ".join(record.seats)
            raise ConfigError(f"{record.id} has no seat '{seat}'{nearest(seat, record.seats)} (its seats: {known})")
    if not (others or parting.act):
        raise ConfigError("a fork needs something that is another: somebody at a seat, or an act")
    if parting.act and record.turns[turn].source in UNREAD:
        raise ConfigError(f"no game read turn {turn + 1} of {record.id}: fork it at another turn")
    if why := first_difference(parting, make_game(GameSpec(name=record.game, options=record.options))):
        raise ConfigError(f"{record.id} cannot be forked: {why}")
    return parting


def _who(run: Path, experiment: Experiment, held: Seating, told: dict[str, None]) -> str:
    """Return the spec of who sat at a seat, "" for a person; of weights that are gone, the nearest that are kept."""
    if held.kind != "model":
        return "" if held.kind == "human" else held.policy
    name, version = version_of(held.policy) or (held.policy, held.version)
    if not experiment.trained(name):
        return f"{run}:{name}"
    nearest_kept = min(kept_iterations(run), key=lambda iteration: (abs(iteration - version), -iteration))
    if nearest_kept != version:
        line = (
            f"{run} keeps no weights of {name} after iteration {version}: those of {nearest_kept} play in their place"
        )
        told.setdefault(line)
    return f"{run}@{nearest_kept}:{name}"


def _roles(experiment: Experiment, game: str) -> dict[str, str]:
    """The role in which the run plays the game, by seat."""
    tables = [table for table in experiment.all_tables() if table.game.name == game]
    return {seat: held.role for table in tables[:1] for seat, held in table.seats.items()}


def _as(role: str | None, who: Contender, game: str, seat: str) -> Contender:
    """The contender in the run's role where it has none of its own, so that it is asked in the same words."""
    bare = isinstance(who, ModelContender) and isinstance(who.cast, Casting) and who.cast.experiment is None
    return in_role(who, game, seat, role) if role and (bare or isinstance(who, EndpointContender)) else who


# -- playing -----------------------------------------------------------------------------------------------


async def _play(
    parting: Parting, tables: Sequence[Mapping[str, Contender]], seed: int, n: int, ended: Callable[[], None]
) -> tuple[list[list[MatchRecord | None]], Counter[str]]:
    """Play the forks: records by table and fork, None for one that kept failing; and failed attempts by reason.

    Only the last table begins with the act that is another.
    """
    record, failed = parting.match, Counter[str]()
    played: list[list[MatchRecord | None]] = [[None] * n for _ in tables]
    plans = [
        MatchPlan(
            MatchId(table, i), record.game, record.options, record.seed,
            {seat: who.seating(record.game, seat) for seat, who in tables[table].items()},
            draws=(number("fork"), parting.turn, i),
            source="patched" if parting.act and table == len(tables) - 1 else "branched",
        )
        for table in range(len(tables))
        for i in range(n)
    ]  # fmt: skip

    async def one(plan: MatchPlan) -> MatchRecord:
        table, i = plan.identity.iteration, plan.identity.deal
        at = parting if table == len(tables) - 1 else replace(parting, act="")
        joining = {seat: Joining(who, at) for seat, who in tables[table].items()}
        ending = await play_one(plan, joining, seed, LIMITS)
        if ending.status == "finished":
            played[table][i] = replace(ending, turns=(), streams={})
        return replace(ending, turns=(), streams={})

    def note(ending: MatchRecord) -> None:
        if ending.status == "failed":
            failed[ending.reason] += 1
        else:
            ended()

    person = any(who.name == HUMAN for table in tables for who in table.values())
    await play_all(plans, one, note, 1 if person else IN_FLIGHT)  # a person plays one match after the other
    return played, failed


def _outcome(record: MatchRecord) -> dict[str, float]:
    """A match's payoffs, and what else its game says in numbers."""
    report = {name: float(value) for name, value in record.report.items() if not isinstance(value, str)}
    return {f"payoff {seat}": value for seat, value in record.payoffs.items()} | report


def _figures(records: Sequence[MatchRecord | None]) -> Figures:
    """A value per fork that ended, for each figure that all of them have."""
    told = [_outcome(record) for record in records if record]
    return {name: [one[name] for one in told] for name in (told[0] if told else ()) if all(name in one for one in told)}
