"""Contenders: whoever can take a seat in a match that belongs to no run; `arena.league.specs` makes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from agents.engines.base import Engine
from agents.players.brains import BrainError, check_brain, make_brain
from agents.players.endpoint import Endpoint, model_of
from agents.players.model import BrainPlayer, ChatPlayer, model_writer
from agents.policy import Policy
from agents.role import Role, load_role
from arena.config import ConfigError, Experiment, SeatSpec
from arena.match import MatchPlan, SeatedPlayer
from arena.records import Seating

PLAYER, NANO_PLAYER = "player", "nano_player"
TINY = 10_000_000
"""Parameters below which a model gets the terse role: it was made here and cannot read sentences."""


class Contender(Protocol):
    """Somebody who can take any seat of any game that it plays."""

    @property
    def name(self) -> str:
        """What the user typed."""

    def check(self, name: str, game: Any, seat: str) -> None:
        """ConfigError when it cannot play this seat of `game`, called `name`."""

    def seating(self, game: str, seat: str) -> Seating:
        """How a record names it."""

    def player(self, seat: str, plan: MatchPlan, game: Any, seed: int) -> SeatedPlayer:
        """Its player at one seat of one match; all its chance comes from (seed, match, attempt, seat)."""

    def leave(self, player: SeatedPlayer) -> None:
        """The match of this player is over."""


@dataclass(frozen=True)
class BrainContender:
    """A policy without weights."""

    name: str

    def check(self, name: str, game: Any, seat: str) -> None:
        """Whether the brain plays this game."""
        try:
            check_brain(self.name, game, seat)
        except BrainError as error:
            raise ConfigError(str(error)) from None

    def seating(self, game: str, seat: str) -> Seating:
        """A brain has no role."""
        return Seating("brain", self.name, 0, False, "brain")

    def player(self, seat: str, plan: MatchPlan, game: Any, seed: int) -> SeatedPlayer:
        """The brain, made for this seat and match."""
        return BrainPlayer(make_brain(self.name, _number(seed, plan, seat), game))

    def leave(self, player: SeatedPlayer) -> None:
        """Nothing is kept."""


@dataclass(frozen=True)
class ModelContender:
    """Weights, or several: a run's policies each take the seats that they took in the run."""

    name: str
    policies: Mapping[str, Policy]
    """By the run's name for them; each is served by `engine` under its own `name`."""
    engine: Engine
    experiment: Experiment | None = None
    """Of the run they come from."""
    own_role: str = ""
    """A role's name or path: for every seat, instead of what `role` would choose."""
    _roles: dict[tuple[str, str], Role] = field(default_factory=dict)

    def policy(self, game: str, seat: str) -> Policy:
        """Who sits there: the only policy, or whom the run seats there; ConfigError where that says nothing."""
        if len(self.policies) == 1:
            return next(iter(self.policies.values()))
        for spec in _seats(self.experiment, game, seat):
            if spec.policy in self.policies:
                return self.policies[spec.policy]
        known = ", ".join(self.policies)
        example = f"{self.name}:{next(iter(self.policies))}"
        raise ConfigError(f"{self.name} has several policies ({known}), none at {game}'s {seat}: name one: {example}")

    def role(self, game: str, seat: str) -> Role:
        """The given role, the run's for this seat, the run's for any game, or a built-in one for any game."""
        if (game, seat) not in self._roles:
            self._roles[game, seat] = self._choose_role(game, seat)
        return self._roles[game, seat]

    def _choose_role(self, game: str, seat: str) -> Role:
        folders = [self.experiment.roles] if self.experiment and self.experiment.roles else []
        names = [self.own_role] if self.own_role else [spec.role for spec in _seats(self.experiment, game, seat)]
        if names:
            return load_role(names[0], folders)
        for table in self.experiment.all_tables() if self.experiment else ():
            for spec in table.seats.values():
                if (role := load_role(spec.role, folders)).game is None:
                    return role
        tiny = self.policy(game, seat).model.num_parameters() < TINY
        return load_role(NANO_PLAYER if tiny else PLAYER)

    def check(self, name: str, game: Any, seat: str) -> None:
        """Whether there are weights and a role for this seat."""
        self.policy(name, seat)
        self.role(name, seat)

    def seating(self, game: str, seat: str) -> Seating:
        """The role, and the version of the weights."""
        return Seating(self.role(game, seat).role, self.name, self.policy(game, seat).version, False, "model")

    def player(self, seat: str, plan: MatchPlan, game: Any, seed: int) -> SeatedPlayer:
        """A player that speaks through the policy's chat frame."""
        policy, role = self.policy(plan.game, seat), self.role(plan.game, seat)
        key, chance = f"{plan.id}/{seat}", _seed(seed, plan, seat)
        return ChatPlayer(role, policy.frame, policy.name, key, chance, model_writer(self.engine))

    def leave(self, player: SeatedPlayer) -> None:
        """The engine need not keep what the player read."""
        for key in player.stream_keys:
            self.engine.forget(key)


@dataclass(frozen=True)
class EndpointContender:
    """A model behind an OpenAI-compatible endpoint."""

    name: str
    endpoint: Endpoint
    role: Role
    """For every seat."""

    def check(self, name: str, game: Any, seat: str) -> None:
        """It plays whatever can be told in words."""

    def seating(self, game: str, seat: str) -> Seating:
        """The role; nobody knows the version."""
        return Seating(self.role.role, self.name, 0, False, "model")

    def player(self, seat: str, plan: MatchPlan, game: Any, seed: int) -> SeatedPlayer:
        """A player that asks the endpoint."""
        return self.endpoint.player(model_of(self.name), self.role, _number(seed, plan, seat))

    def leave(self, player: SeatedPlayer) -> None:
        """Nothing is kept."""


def _seats(experiment: Experiment | None, game: str, seat: str) -> list[SeatSpec]:
    """How the run fills this seat, at each of its tables of this game."""
    tables = experiment.all_tables() if experiment else []
    return [table.seats[seat] for table in tables if table.game.name == game and seat in table.seats]


def _seed(seed: int, plan: MatchPlan, seat: str) -> tuple[int, ...]:
    return (seed, plan.seed, plan.attempt, list(plan.seats).index(seat))


def _number(seed: int, plan: MatchPlan, seat: str) -> int:
    return int(np.random.SeedSequence(_seed(seed, plan, seat)).generate_state(1)[0])
