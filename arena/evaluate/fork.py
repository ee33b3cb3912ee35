"""Forks: counterfactual continuations of a logged match from a turn, with other players or another act.

The match is replayed from its seed with the logged acts, and the game must show every seat what the log says it saw.
After the fork all players draw from the run's seed and the fork's number. In fork i the unchanged players use the same
random numbers in both arms (common random numbers), so differences are paired by fork. The game's own chance stays that
of the deal. Joining a match in progress: `arena.play.joining`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from arena.config.experiment import Experiment
from arena.config.own_files import resolve_game_name, with_own_roles
from arena.config.saved_config import load_experiment
from arena.errors import ConfigError, PlayError
from arena.evaluate.casting import Casting
from arena.evaluate.evaluation import IN_FLIGHT, LIMITS, make_game
from arena.evaluate.matrix import with_role
from arena.evaluate.specs import ContenderLoader, list_iterations
from arena.league.pool import parse_version
from arena.parts.chance import number
from arena.play.contenders import HUMAN, Contender, EndpointContender, ModelContender, play_one
from arena.play.joining import ForkPoint, JoiningContender, find_difference
from arena.play.match import MatchPlan
from arena.play.orchestrator import play_counting_failures
from arena.play.settings import GameSpec
from arena.records import MatchRecord, Seating
from arena.statistics import ANY, Bounds, Interval, mean_ci, paired_ci, range_of
from arena.store.reader import RunReader
from games.contracts import UNREAD, MatchId
from games.names import nearest

Figures = dict[str, list[float]]
"""One value per fork, by figure: `payoff SEAT` and the numbers of the game's report."""


@dataclass(frozen=True, kw_only=True)
class ForkResults:
    """Outcomes of a match's forks: continued by the same players (unchanged), and with the change (forked)."""

    fork_point: ForkPoint
    original_players: Mapping[str, str]
    """Players of the unchanged forks by seat: those of the match, or their nearest available versions; "" if a person
    sat there."""
    new_players: Mapping[str, str]
    """Players that replace them in the changed forks, by seat."""
    logged: dict[str, float]
    """Outcome of the logged match, by figure."""
    unchanged: Figures
    """Outcomes of the forks by the same players; {} if a person sat at a seat."""
    forked: Figures
    failed: dict[str, int] = field(default_factory=dict)
    """Failed attempts by reason; they were played again."""

    def bounds(self, figure: str) -> Bounds:
        """Return the minimum and maximum that a figure can have, for its interval."""
        arms = (self.unchanged.get(figure, []), self.forked.get(figure, []))
        return ANY if figure.startswith("payoff ") else range_of(f"report.{figure}", [v for arm in arms for v in arm])

    def mean(self, arm: Figures, figure: str, level: float = 0.95) -> Interval:
        """Return a figure's mean, with its interval, over the forks of `arm`: `self.unchanged` or `self.forked`."""
        return mean_ci(arm.get(figure, []), self.bounds(figure), level)

    def difference(self, figure: str) -> Interval:
        """Return the mean of forked minus unchanged, paired by fork, with its interval.

        NaN if their numbers of values differ.
        """
        one, two = self.unchanged.get(figure, []), self.forked.get(figure, [])
        return paired_ci(one, two, self.bounds(figure)) if len(one) == len(two) else Interval(*[float("nan")] * 3)

    def figures(self) -> list[str]:
        """Return the names of all figures: payoffs (`payoff SEAT`), then numbers of the game's report."""
        return list(dict.fromkeys([*self.logged, *self.unchanged, *self.forked]))


async def fork(
    run: Path | str,
    match: str,
    turn: int,
    seats: Mapping[str, str] | None = None,
    act: str = "",
    n: int = 20,
    loader: ContenderLoader | None = None,
    person: Contender | None = None,
    on_finish: Callable[[], None] = lambda: None,
) -> ForkResults:
    """Continue a run's match from turn `turn` (from 0), `n` times with the changes and `n` times without.

    Changes are other players at some `seats` (spec by seat) or another `act` at that turn. `person` plays the seats
    named `human`. `on_finish` is called after each finished match. Raises ConfigError or StoreError if match, turn,
    seat or player do not exist, or if the game no longer shows what the log says; PlayError if every fork failed.
    """
    loader, new_players = loader or ContenderLoader(), dict(seats or {})
    reader = RunReader(run)
    experiment = with_own_roles(reader.path, load_experiment(reader.path, trust=loader.trust), loader.trust)
    record = MatchRecord.from_json(reader.match(match))
    record = replace(record, game=resolve_game_name(record.game, experiment))
    fork_point = require_forkable(ForkPoint(record, turn, act), new_players)
    notes: dict[str, None] = {}
    original_players = {name: _find_spec(reader.path, experiment, seat, notes) for name, seat in record.seats.items()}
    for line in notes:
        loader.note(line)
    changed = original_players | new_players
    if empty := [seat for seat, name in changed.items() if not name]:
        raise ConfigError(f"a person sat at {empty[0]} of {match}: name another player, such as {empty[0]}=random")
    arms = [original_players, changed] if all(original_players.values()) else [changed]
    names = dict.fromkeys(name for arm in arms for name in arm.values() if name != HUMAN)
    players = dict(zip(names, await loader.load(*names), strict=True)) | ({HUMAN: person} if person else {})
    _check_players(changed, players, record)
    roles = {} if loader.role else _find_roles(experiment, record.game)
    tables = [
        {seat: _with_run_role(roles.get(seat), players[name], record.game, seat) for seat, name in arm.items()}
        for arm in arms
    ]
    records_by_arm, failed = await _play(fork_point, tables, experiment.seed, n, on_finish)
    # a fork that failed in one arm has no pair
    pairs = [forks for forks in zip(*records_by_arm, strict=True) if all(forks)]
    if not pairs:
        raise PlayError(f"no fork of {match} was finished: {max(failed, key=failed.__getitem__, default='')}")
    figures = [_collect_figures(records) for records in zip(*pairs, strict=True)]
    return ForkResults(
        fork_point=fork_point, original_players=original_players, new_players=new_players,
        logged=_list_outcomes(record), forked=figures[-1], unchanged=figures[0] if len(arms) > 1 else {},
        failed=dict(failed),
    )  # fmt: skip


def _check_players(changed: Mapping[str, str], players: Mapping[str, Contender], record: MatchRecord) -> None:
    """Raise ConfigError if a seat's player is missing or cannot take the seat."""
    for seat, name in changed.items():
        if name not in players:
            raise ConfigError(f"no person is here to play {seat}: name another player than {HUMAN}")
        players[name].check(record.game, make_game(GameSpec(name=record.game, options=record.options)), seat)


def require_forkable(fork_point: ForkPoint, new_players: Mapping[str, str]) -> ForkPoint:
    """Return the fork point unchanged. Raises ConfigError for an unknown turn or seat, no change, or a changed game."""
    record, turn = fork_point.match, fork_point.turn
    if not 0 <= turn < len(record.turns):
        raise ConfigError(f"{record.id} has turns 1 to {len(record.turns)}: it cannot be forked at {turn + 1}")
    for seat in new_players:
        if seat not in record.seats:
            known = ", ".join(record.seats)
            raise ConfigError(f"{record.id} has no seat '{seat}'{nearest(seat, record.seats)} (its seats: {known})")
    if not (new_players or fork_point.act):
        raise ConfigError("a fork needs a change: another player at a seat, or another act")
    if fork_point.act and record.turns[turn].source in UNREAD:
        raise ConfigError(f"no game read turn {turn + 1} of {record.id}: fork it at another turn")
    if difference := find_difference(fork_point, make_game(GameSpec(name=record.game, options=record.options))):
        raise ConfigError(f"{record.id} cannot be forked: {difference}")
    return fork_point


def _find_spec(run: Path, experiment: Experiment, seating: Seating, notes: dict[str, None]) -> str:
    """Return the spec of a logged seat's player, such as `RUN@12:POLICY` or `random`; "" for a person.

    For deleted weights it is the nearest available version, and a message is added to `notes`.
    """
    if seating.kind != "model":
        return "" if seating.kind == "human" else seating.policy
    name, version = parse_version(seating.policy) or (seating.policy, seating.version)
    if not experiment.trained(name):
        return f"{run}:{name}"
    closest = min(list_iterations(run), key=lambda iteration: (abs(iteration - version), -iteration))
    if closest != version:
        line = f"{run} keeps no weights of {name} after iteration {version}: those of {closest} play in their place"
        notes.setdefault(line)
    return f"{run}@{closest}:{name}"


def _find_roles(experiment: Experiment, game: str) -> dict[str, str]:
    """Return the role of each seat at the run's first table of this game."""
    tables = [table for table in experiment.all_tables() if table.game.name == game]
    return {seat: seat_spec.role for table in tables[:1] for seat, seat_spec in table.seats.items()}


def _with_run_role(role: str | None, contender: Contender, game: str, seat: str) -> Contender:
    """Return the contender in the run's role of the seat, for the same prompts, unless it has roles of its own."""
    cast = contender.cast if isinstance(contender, ModelContender) else None
    is_bare = isinstance(cast, Casting) and cast.experiment is None
    needs_role = role and (is_bare or isinstance(contender, EndpointContender))
    return with_role(contender, game, seat, role) if role and needs_role else contender


# -- playing -----------------------------------------------------------------------------------------------


async def _play(
    fork_point: ForkPoint, tables: Sequence[Mapping[str, Contender]], seed: int, n: int, on_finish: Callable[[], None]
) -> tuple[list[list[MatchRecord | None]], Counter[str]]:
    """Play `n` forks with each lineup (contender by seat) in `tables`.

    Returns the records by lineup and fork (None for a fork that kept failing) and the failed attempts by reason. Only
    the last lineup starts with the replaced act.
    """
    record = fork_point.match
    records: list[list[MatchRecord | None]] = [[None] * n for _ in tables]
    plans = [
        MatchPlan(
            identity=MatchId(table, i), game=record.game, options=record.options, seed=record.seed,
            seats={seat: player.seating(record.game, seat) for seat, player in tables[table].items()},
            draws=(number("fork"), fork_point.turn, i),
            source="patched" if fork_point.act and table == len(tables) - 1 else "branched",
        )
        for table in range(len(tables))
        for i in range(n)
    ]  # fmt: skip

    async def play_plan(plan: MatchPlan) -> MatchRecord:
        table, i = plan.identity.iteration, plan.identity.deal
        start = fork_point if table == len(tables) - 1 else replace(fork_point, act="")
        joining = {seat: JoiningContender(player, start) for seat, player in tables[table].items()}
        ending = await play_one(plan, joining, seed, LIMITS)
        if ending.status == "finished":
            records[table][i] = replace(ending, turns=(), streams={})
        return replace(ending, turns=(), streams={})

    person = any(player.name == HUMAN for table in tables for player in table.values())
    # A person plays one match at a time.
    return records, await play_counting_failures(plans, play_plan, on_finish, 1 if person else IN_FLIGHT)


def _list_outcomes(record: MatchRecord) -> dict[str, float]:
    """Return a match's payoffs, as `payoff SEAT`, and the numbers of its report."""
    report = {name: float(value) for name, value in record.report.items() if not isinstance(value, str)}
    return {f"payoff {seat}": value for seat, value in record.payoffs.items()} | report


def _collect_figures(records: Sequence[MatchRecord | None]) -> Figures:
    """Return, for each figure that all finished forks have, one value per fork."""
    outcomes = [_list_outcomes(record) for record in records if record]
    names = [name for name in (outcomes[0] if outcomes else ()) if all(name in one for one in outcomes)]
    return {name: [one[name] for one in outcomes] for name in names}
