"""Evaluation of a contender against a panel: its payoffs from every seat against every member, on the same deals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from arena.config.experiment import Experiment
from arena.errors import ConfigError
from arena.evaluate import specs
from arena.evaluate.best_play import BestPlay, compute_best_play
from arena.evaluate.casting import Casting
from arena.evaluate.evaluation import (
    IN_FLIGHT,
    Lineup,
    draw_deal_seeds,
    find_own_seats,
    make_game,
    play_lineups,
    with_split,
)
from arena.evaluate.played import MatchOutcome
from arena.panels.settings import RUN_WEIGHTS, Panel
from arena.play.contenders import Contender, ScriptedContender
from arena.play.settings import GameSpec
from arena.store.evaluations import Cell, Deals, Evaluation

MAX_MATCHES = 10**6
"""Maximum number of matches of one evaluation, which are all planned in memory."""


class Pairing(NamedTuple):
    """Lineup of a panel evaluation: the evaluated contender at `seat`, the panel member at all others."""

    member: Contender
    seat: str
    lineup: Lineup


@dataclass(frozen=True)
class PanelPlan:
    """Planned evaluation of one contender against a panel: `check` it, then `play` it."""

    contender: Contender
    panel: Panel
    game: GameSpec
    members: Sequence[Contender]

    @property
    def pairings(self) -> list[Pairing]:
        """Lineups of the evaluation, member by member: each member is met from every seat of the contender."""
        seats = tuple(make_game(self.game).possible_agents)
        return [
            Pairing(member, own_seat, {seat: self.contender if seat == own_seat else member for seat in seats})
            for member in self.members
            for own_seat in find_own_seats(self.contender, self.game.name, seats)
        ]

    @property
    def matches(self) -> int:
        """Number of matches to play."""
        return len(self.pairings) * self.panel.deals

    @property
    def key(self) -> str:
        """Hash of panel settings, members and seats (`Evaluation.key`); evaluations with equal keys are comparable."""
        pairs = [(pairing.member.name, pairing.seat) for pairing in self.pairings]
        return _hash_settings(self.panel, self.game, pairs)

    def check(self) -> None:
        """Raise ConfigError if a player cannot play its seat, or if there are more than `MAX_MATCHES` matches."""
        game = make_game(self.game)
        check_size(self.panel, self.game, len(self.pairings) // len(self.members))
        for pairing in self.pairings:
            for seat, holder in pairing.lineup.items():
                holder.check(self.game.name, game, seat)

    async def play(
        self,
        on_finish: Callable[[], None] = lambda: None,
        in_flight: int = IN_FLIGHT,
        best: BestPlay | None = None,
        iteration: int | None = None,
    ) -> Evaluation:
        """Play all matches and return the evaluation, with the payoffs of every deal.

        `on_finish` is called after each finished match. `best` has the payoffs of best play if they are known already;
        otherwise they are computed. `iteration` is stored in the result. A match that keeps failing has no payoff.
        Raises PlayError if most matches fail.
        """
        started, pairings, panel = perf_counter(), self.pairings, self.panel
        lineups = [pairing.lineup for pairing in pairings]
        outcomes, failed = await play_lineups(lineups, self.game, panel.deals, panel.seed, on_finish, in_flight)
        known = self.best_play() if best is None else best
        return Evaluation(
            iteration=iteration,
            contender=self.contender.name,
            panel=panel.panel,
            key=self.key,
            game=self.game.name,
            options=dict(self.game.options),
            seed=panel.seed,
            deals=panel.deals,
            cells=[
                _make_cell(pairing, row, known.responses.get((pairing.member.name, pairing.seat)))
                for pairing, row in zip(pairings, outcomes, strict=True)
            ],
            best_against_mixture=dict(known.against_mixture),
            failed=dict(failed),
            seconds=perf_counter() - started,
        )

    def best_play(self) -> BestPlay:
        """Compute the payoffs of best play on the panel's deals, where members and game allow it."""
        pairs = [(pairing.member, pairing.seat) for pairing in self.pairings]
        return compute_best_play(pairs, self.game, draw_deal_seeds(self.panel.seed, self.panel.deals))


def _make_cell(pairing: Pairing, row: Sequence[MatchOutcome | None], best: Deals | None) -> Cell:
    seat = pairing.seat
    has_deals = any(p and "deal" in p.report for p in row)
    return Cell(
        member=pairing.member.name,
        seat=seat,
        payoff=[p.payoffs[seat] if p else None for p in row],
        valid=[1 - p.invalid[seat] / p.acts[seat] if p and p.acts[seat] else None for p in row],
        deal=[float(p.report["deal"]) if p and "deal" in p.report else None for p in row] if has_deals else None,
        best_response=best,
    )


def _hash_settings(panel: Panel, game: GameSpec, pairs: Sequence[tuple[str, str]]) -> str:
    settings = [panel.panel, game.name, game.options, panel.deals, panel.seed, pairs]
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:16]


# -- checks before play -----------------------------------------------------------------------


def resolve_panel_game(panel: Panel, experiment: Experiment | None) -> GameSpec:
    """Return the game with the panel's options, else those of the evaluated run, on the `test` split if it has one.

    Raises ConfigError for an unknown game or option, or a game without a second seat.
    """
    options = panel.game.options
    if options is None:
        tables = experiment.all_tables() if experiment else []
        trained = [table.game.options for table in tables if table.game.name == panel.game.name]
        options = {key: value for own in trained[:1] for key, value in own.items() if key != "split"}
    spec = with_split(GameSpec(name=panel.game.name, options=options))
    if len(make_game(spec).possible_agents) < 2:
        raise ConfigError(f"panel {panel.panel}: {spec.name} has one seat, and a panel needs a seat for its members")
    return spec


def check_size(panel: Panel, game: GameSpec, seats: int) -> None:
    """Raise ConfigError if the panel with this number of evaluated `seats` has more than `MAX_MATCHES` matches."""
    matches = len(panel.members) * seats * panel.deals
    if matches > MAX_MATCHES:
        raise ConfigError(
            f"panel {panel.panel}: {len(panel.members)} members, {seats} seats of {game.name} and {panel.deals:,} "
            f"deals are {matches:,} matches: at most {MAX_MATCHES:,}; take fewer deals"
        )


def check_members(panel: Panel, game: GameSpec, own: Sequence[str]) -> None:
    """Check that every member exists and can play the seats opposite to those in `own`, without loading weights.

    Raises ConfigError, StoreError or WeightsError.
    """
    check_size(panel, game, len(own))
    example = make_game(game)
    opponent_seats = [seat for seat in example.possible_agents if any(seat != own_seat for own_seat in own)]
    for member in panel.members:
        source = specs.read_spec(member)
        for seat in opponent_seats:
            if source.kind == "brain":
                ScriptedContender(member).check(game.name, example, seat)
            elif source.kind == "weights":
                _cast_without_weights(source)(game.name, seat)


def _cast_without_weights(source: specs.ParsedSpec) -> Casting:
    """Return the assignment of a source's policies to seats, with tokenizers but without weights."""
    policies = {name: source.load_policy(name, f"{source.spec}/{name}") for name in source.folders}
    return Casting(name=source.spec, policies=policies, experiment=source.experiment)


class TrainingOpponents(NamedTuple):
    """Names of the policies that a run's learners played against or imitated in training."""

    opponents: frozenset[str] = frozenset()
    """Names of the opponents that the learners played against."""
    demonstrators: frozenset[str] = frozenset()
    """Names of the policies whose demonstrations the learners imitated."""

    def with_own(self, run: Path, members: Iterable[str]) -> TrainingOpponents:
        """Return a copy that also names those of the panel's `members` that are earlier weights of the run itself."""
        run_path = run.resolve()
        own_members = {
            m for m in members if (match := RUN_WEIGHTS.fullmatch(m)) and Path(match["path"]).resolve() == run_path
        }
        return self._replace(opponents=self.opponents | own_members)


def find_training_opponents(experiment: Experiment | None) -> TrainingOpponents:
    """Return a run's opponents (without its own past versions) and demonstrators by the names of panel members."""
    if experiment is None:
        return TrainingOpponents()
    tables = [table for table in experiment.all_tables()]
    learner_tables = [
        t.seats.values() for t in tables if any(experiment.trained(seat.policy) for seat in t.seats.values())
    ]
    opponents = {seat.policy for seats in learner_tables for seat in seats if not experiment.trained(seat.policy)}
    if experiment.league:
        opponents |= {
            opponent.policy for opponent in experiment.league.opponents if opponent.policy and opponent.weight
        }
    frozen = {name: spec.model for name, spec in experiment.policies.items() if not spec.train}
    imitated = [spec.imitate for spec in experiment.policies.values() if spec.imitate and spec.train]
    demonstrators = {script for spec in imitated for script in (*spec.scripted, *spec.against)}
    demonstrators |= set(experiment.learn.demonstrations.scripted) if experiment.learn.demonstrations else set()
    return TrainingOpponents(frozenset(frozen.get(name, name) for name in opponents), frozenset(demonstrators))
