"""A panel plays: what a contender earns from every seat against every member, on the same deals for everybody."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from agents.policy import Policy
from arena.config.experiment import Experiment
from arena.errors import ConfigError
from arena.evaluate import specs
from arena.evaluate.best_play import BestPlay, best_play
from arena.evaluate.casting import Casting
from arena.evaluate.evaluation import IN_FLIGHT, Lineup, Played, deal_seeds, make_game, on_split, own_seats, play
from arena.panels.settings import RUN_WEIGHTS, Panel
from arena.play.contenders import Contender, ScriptedContender
from arena.play.settings import GameSpec
from arena.store.evaluations import Cell, Deals, Evaluation

MOST = 10**6
"""Matches of one evaluation: all of them are planned at once."""


class Place(NamedTuple):
    """A member, and the seat from which it is met."""

    member: Contender
    seat: str
    lineup: Lineup


@dataclass(frozen=True)
class Sitting:
    """Evaluation of one contender against a panel, ready to be played."""

    who: Contender
    panel: Panel
    game: GameSpec
    members: Sequence[Contender]

    @property
    def places(self) -> list[Place]:
        """Every member from every seat that the contender is judged at, member by member."""
        seats = tuple(make_game(self.game).possible_agents)
        return [
            Place(member, mine, {seat: self.who if seat == mine else member for seat in seats})
            for member in self.members
            for mine in own_seats(self.who, self.game.name, seats)
        ]

    @property
    def matches(self) -> int:
        """Return the number of matches that are played."""
        return len(self.places) * self.panel.deals

    @property
    def key(self) -> str:
        """Key of what is played, the same for every contender: see `Evaluation.key`."""
        met = [(place.member.name, place.seat) for place in self.places]
        return _key(self.panel, self.game, met)

    def check(self) -> None:
        """ConfigError where somebody cannot play a seat that is theirs, or where it would be too much."""
        game = make_game(self.game)
        check_size(self.panel, self.game, len(self.places) // len(self.members))
        for place in self.places:
            for seat, holder in place.lineup.items():
                holder.check(self.game.name, game, seat)

    async def play(
        self,
        ended: Callable[[], None] = lambda: None,
        in_flight: int = IN_FLIGHT,
        best: BestPlay | None = None,
        iteration: int | None = None,
    ) -> Evaluation:
        """Plays all matches and says what came of each; `best` is what best play earns, where it is known already.

        A match that keeps failing has no value; PlayError when most of them do.
        """
        started, places, panel = perf_counter(), self.places, self.panel
        played, failed = await play([p.lineup for p in places], self.game, panel.deals, panel.seed, ended, in_flight)
        known = self.best_play() if best is None else best
        return Evaluation(
            iteration=iteration,
            contender=self.who.name,
            panel=panel.panel,
            key=self.key,
            game=self.game.name,
            options=dict(self.game.options),
            seed=panel.seed,
            deals=panel.deals,
            cells=[
                _cell(place, row, known.responses.get((place.member.name, place.seat)))
                for place, row in zip(places, played, strict=True)
            ],
            best_against_mixture=dict(known.against_mixture),
            failed=dict(failed),
            seconds=perf_counter() - started,
        )

    def best_play(self) -> BestPlay:
        """The payoff of best play on these deals, where the members and the game let theory say."""
        met = [(place.member, place.seat) for place in self.places]
        return best_play(met, self.game, deal_seeds(self.panel.seed, self.panel.deals))


def _cell(place: Place, row: Sequence[Played | None], best: Deals | None) -> Cell:
    seat = place.seat
    tells = any(p and "deal" in p.report for p in row)
    return Cell(
        member=place.member.name,
        seat=seat,
        payoff=[p.payoffs[seat] if p else None for p in row],
        valid=[1 - p.invalid[seat] / p.acts[seat] if p and p.acts[seat] else None for p in row],
        deal=[float(p.report["deal"]) if p and "deal" in p.report else None for p in row] if tells else None,
        best_response=best,
    )


def _key(panel: Panel, game: GameSpec, met: Sequence[tuple[str, str]]) -> str:
    said = [panel.panel, game.name, game.options, panel.deals, panel.seed, met]
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:16]


# -- what a panel plays, and who can -----------------------------------------------------------------------


def panel_game(panel: Panel, experiment: Experiment | None) -> GameSpec:
    """The game with the panel's own options, else with those of the run that is judged; of splits, the `test` one.

    ConfigError where there is no such game, option, or second seat.
    """
    options = panel.game.options
    if options is None:
        tables = experiment.all_tables() if experiment else []
        trained = [table.game.options for table in tables if table.game.name == panel.game.name]
        options = {key: value for own in trained[:1] for key, value in own.items() if key != "split"}
    spec = on_split(GameSpec(name=panel.game.name, options=options))
    if len(make_game(spec).possible_agents) < 2:
        raise ConfigError(f"panel {panel.panel}: {spec.name} has one seat, and members have to sit somewhere")
    return spec


def check_size(panel: Panel, game: GameSpec, seats: int) -> None:
    """ConfigError for more matches than anybody wants to wait for."""
    matches = len(panel.members) * seats * panel.deals
    if matches > MOST:
        raise ConfigError(
            f"panel {panel.panel}: {len(panel.members)} members, {seats} seats of {game.name} and {panel.deals:,} "
            f"deals are {matches:,} matches: at most {MOST:,}; take fewer deals"
        )


def check_members(panel: Panel, game: GameSpec, own: Sequence[str]) -> None:
    """ConfigError, StoreError or WeightsError for a member that there is not, or that cannot play; loads no weights.

    `own` are the seats that are judged.
    """
    check_size(panel, game, len(own))
    made = make_game(game)
    theirs = [seat for seat in made.possible_agents if any(seat != mine for mine in own)]
    for member in panel.members:
        source = specs.read_spec(member)
        for seat in theirs:
            if source.kind == "brain":
                ScriptedContender(member).check(game.name, made, seat)
            elif source.kind == "weights":
                _unloaded(source)(game.name, seat)


def _unloaded(source: specs.Source) -> Casting:
    """Return the casting of a source's policies before anything but tokenizers is read."""
    found = source.folders.items()
    policies = {name: Policy.load(f"{source.spec}/{name}", folder, folder, train=False) for name, folder in found}
    return Casting(source.spec, policies, source.experiment)


class Known(NamedTuple):
    """Opponents and demonstrators that a run's learners met in training."""

    met: frozenset[str] = frozenset()
    """Whom they played against."""
    demonstrated: frozenset[str] = frozenset()
    """Policies whose demonstrations they imitated."""

    def with_own(self, run: Path, members: Iterable[str]) -> Known:
        """Among these members, the run's own earlier weights are of those that it met."""
        here = run.resolve()
        own = {m for m in members if (found := RUN_WEIGHTS.fullmatch(m)) and Path(found["path"]).resolve() == here}
        return self._replace(met=self.met | own)


def met_in_training(experiment: Experiment | None) -> Known:
    """The opponents of a run by the names that a panel would use, its own past versions left out; nobody out of one."""
    if experiment is None:
        return Known()
    tables = [table for table in experiment.all_tables()]
    held = [t.seats.values() for t in tables if any(experiment.trained(seat.policy) for seat in t.seats.values())]
    met = {seat.policy for seats in held for seat in seats if not experiment.trained(seat.policy)}
    if experiment.league:
        met |= {opponent.policy for opponent in experiment.league.opponents if opponent.policy and opponent.weight}
    frozen = {name: spec.model for name, spec in experiment.policies.items() if not spec.train}
    imitated = [spec.imitate for spec in experiment.policies.values() if spec.imitate and spec.train]
    demonstrated = {script for spec in imitated for script in (*spec.scripted, *spec.against)}
    demonstrated |= set(experiment.learn.demonstrations.scripted) if experiment.learn.demonstrations else set()
    return Known(frozenset(frozen.get(name, name) for name in met), frozenset(demonstrated))
