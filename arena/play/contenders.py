"""Contenders: anybody who can take a seat in a match, in a run or out of one; and one match between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

import games
from agents.engines.base import Engine
from agents.errors import ScriptedPolicyError
from agents.players.cautious import MARKS, cautious
from agents.players.completions import Answer
from agents.players.endpoint import Endpoint
from agents.players.model import ChatPlayer, ScriptedPlayer, model_writer, recalled
from agents.players.scripted import check_scripted, make_scripted
from agents.players.servers import parsed
from agents.players.voting import final_act, voted
from agents.policy import Policy
from agents.role import Role
from arena.errors import ConfigError
from arena.play.failures import failed
from arena.play.match import Limits, MatchPlan, OnTurn, Rules, SeatedPlayer, play_match
from arena.records import MatchRecord, Seating
from games.abilities import Tells
from games.contracts import Game, TurnSource

if TYPE_CHECKING:
    from rich.console import Console

HUMAN = "human"


class Contender(Protocol):
    """A player's source: it can take any seat of the games that it plays."""

    @property
    def name(self) -> str:
        """Name in plans and in the log."""

    def check(self, name: str, game: Game, seat: str) -> None:
        """ConfigError when it cannot play this seat of `game`, called `name`."""

    def seating(self, game: str, seat: str) -> Seating:
        """Return the seating by which a record names it."""

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """Its player at one seat of one match; all its chance comes from `chance(seed, plan, seat)`.

        In a branch it says again what was said at the seat until the branch parts from its match.
        """

    def leave(self, player: SeatedPlayer) -> None:
        """Release what the player held; its match is over."""


def chance(seed: int, plan: MatchPlan, seat: str) -> tuple[int, ...]:
    """Return the seed of a seat's chance in a match, from the run, deal, seat, draws and branches.

    A match that is played again after a failure draws the same again: with other draws, replays would select matches
    that end before the fault.
    """
    parted = [match.turn + 1 for match in plan.identity.line() if match.turn is not None]
    return (seed, plan.seed, _ATTEMPT, list(plan.seats).index(seat), *plan.draws, *parted)


_ATTEMPT = 0
"""Stands in every place since it also held the attempt: without it a seed would give other matches than before."""


def number(place: tuple[int, ...]) -> int:
    """A seed of 32 bits from a place."""
    return int(np.random.SeedSequence(place).generate_state(1)[0])


async def play_one(
    plan: MatchPlan,
    contenders: Mapping[str, Contender],
    seed: int,
    limits: Limits,
    keep_turns: bool = True,
    on_turn: OnTurn | None = None,
    game: Game | None = None,
    ruled: Callable[[MatchPlan, Game], Rules | None] = lambda plan, game: None,
) -> MatchRecord:
    """One match between the contenders, by seat, of `game` or else of one made for it; see `play_match`.

    `ruled` makes the match's rules of patches and stops. A branch that turns out to be another match than the one that
    it parts from has failed.
    """
    game = games.make(plan.game, **plan.options) if game is None else game
    players = {seat: contenders[seat].player(seat, plan, game, seed) for seat in plan.seats}
    try:
        record = await play_match(plan, game, players, limits, keep_turns, on_turn, ruled(plan, game))
    finally:
        for seat, player in players.items():
            contenders[seat].leave(player)
    if record.status == "finished" and plan.branch and (why := plan.branch.strayed(record)):
        return failed(record, "game", plan.draws, why)
    return record


@dataclass(frozen=True)
class ScriptedContender:
    """A policy without weights."""

    name: str
    role: str = "brain"
    """Name of its part in the log: it reads no role."""

    def check(self, name: str, game: Game, seat: str) -> None:
        """ConfigError where the scripted policy cannot play this game."""
        try:
            check_scripted(self.name, game, seat)
        except ScriptedPolicyError as error:
            raise ConfigError(str(error)) from None

    def seating(self, game: str, seat: str) -> Seating:
        """A scripted policy has no version."""
        return Seating.of(self.role, self.name, None)

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """The scripted policy, made for this seat and match.

        In a branch it is asked again, so that it is in the right state at the parting: its chance is that of the match
        that was branched, so it answers the same again, and afterwards draws what it would have drawn there (common
        random numbers).
        """
        if plan.branch:
            plan = replace(plan, identity=plan.identity.line()[0], branch=None)
        return ScriptedPlayer(make_scripted(self.name, number(chance(seed, plan, seat)), game))

    def leave(self, player: SeatedPlayer) -> None:
        """Do nothing: nothing is held."""


Cast = Callable[[str, str], tuple[Policy, Role]]
"""From a game's name and a seat to the policy that sits there and the role it plays; ConfigError where it has none."""


@dataclass(frozen=True)
class ModelContender:
    """Weights that an engine serves: one policy, or several that share the seats."""

    name: str
    engine: Engine
    cast: Cast

    def check(self, name: str, game: Game, seat: str) -> None:
        """Check that there are weights and a role for this seat."""
        self.cast(name, seat)

    def seating(self, game: str, seat: str) -> Seating:
        """The role, and the version of the weights."""
        policy, role = self.cast(game, seat)
        return Seating.of(role.role, self.name, policy)

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """A player that speaks through the policy's chat frame."""
        policy, role = self.cast(plan.game, seat)
        write = model_writer(self.engine)
        if rule := role.sampling.cautious:
            write = cautious(write, rule, policy.frame.with_letters(MARKS))
        if votes := role.sampling.votes:
            write = voted(write, votes.samples, final_act(role, policy.frame))
        if plan.branch:
            write = recalled(plan.branch.replies(seat), write)
        source: TurnSource = "voted" if votes else "policy"
        key, place = f"{plan.id}/{seat}", chance(seed, plan, seat)
        return ChatPlayer(role, policy.frame, policy.name, key, place, write, source, self.positions(policy))

    def positions(self, policy: Policy) -> int:
        """Return the most tokens of a context and its reply, by the policy's model and the engine."""
        return min(policy.positions, self.engine.max_context)

    def leave(self, player: SeatedPlayer) -> None:
        """The engine need not keep what the player read."""
        for key in player.stream_keys:
            self.engine.forget(key)


@dataclass(frozen=True)
class EndpointContender:
    """A model behind an OpenAI-compatible endpoint."""

    name: str
    endpoint: Endpoint
    """One for all matches: it holds the account of what they have spent."""
    role: Callable[[str, str], Role]
    """By the game's name and the seat."""

    def check(self, name: str, game: Game, seat: str) -> None:
        """Accept every game: all can be put in words; but nobody knows how full a server's context is."""
        if (role := self.role(name, seat)).memory.kind == "summary":
            raise ConfigError(
                f"{self.name} cannot play role {role.role}: memory summary goes by tokens, which an endpoint does not "
                "tell: write a role with memory window or all for it"
            )
        if role.sampling.cautious:
            raise ConfigError(
                f"{self.name} cannot play role {role.role}: sampling.cautious goes by entropies, which no "
                "endpoint tells: leave it out"
            )
        if role.sampling.votes:
            raise ConfigError(
                f"{self.name} cannot play role {role.role}: sampling.votes would ask, and pay, "
                f"{role.sampling.votes.samples} times for each turn: leave it out"
            )

    def seating(self, game: str, seat: str) -> Seating:
        """The role; nobody knows the version."""
        return Seating.of(self.role(game, seat).role, self.name, None)

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """A player that asks the endpoint."""
        turns = plan.branch.turns(seat) if plan.branch else []
        answers = {t.index: Answer(t.raw, "length" if t.finish == "length" else "stop", t.tokens) for t in turns}
        place = chance(seed, plan, seat)
        return self.endpoint.player(parsed(self.name)[1], self.role(plan.game, seat), number(place), answers)

    def leave(self, player: SeatedPlayer) -> None:
        """Do nothing: nothing is held."""


@dataclass(frozen=True)
class HumanContender:
    """A person at the terminal."""

    console: Console
    name: str = HUMAN

    def check(self, name: str, game: Game, seat: str) -> None:
        """Accept every game: people can read all of them."""

    def seating(self, game: str, seat: str) -> Seating:
        """People have no role and no version."""
        return Seating(HUMAN, HUMAN, 0, False, "human")

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """A player that asks the person at the terminal."""
        from agents.players.human import Human

        return Human(self.console, game if isinstance(game, Tells) else None, game)

    def leave(self, player: SeatedPlayer) -> None:
        """Do nothing: nothing is held."""
