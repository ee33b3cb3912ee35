"""Contenders, which create the players of matches, and the play of one match between contenders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from agents.engines.base import Engine
from agents.errors import ScriptedPolicyError
from agents.players.cautious import MARKS, make_cautious_writer
from agents.players.completions import Answer
from agents.players.endpoint import Endpoint
from agents.players.model import ChatPlayer, ScriptedPlayer
from agents.players.scripted import check_scripted, make_scripted
from agents.players.servers import parse_endpoint
from agents.players.voting import make_act_reader, make_voting_writer
from agents.players.writers import make_model_writer, make_replay_writer
from agents.policy import Policy
from agents.role import Role
from agents.stream import ImageReader
from arena.errors import ConfigError
from arena.play.best_first import SearchingPlayer, find_search_obstacle
from arena.play.failures import mark_failed
from arena.play.making import make_game
from arena.play.match import Control, Limits, MatchPlan, OnTurn, SeatedPlayer, play_match
from arena.records import MatchRecord, Seating
from games.abilities import Pictures, PlainWords
from games.contracts import Game, TurnSource, View

if TYPE_CHECKING:
    from rich.console import Console

HUMAN = "human"


class InstructedRole(Role):
    """Role whose system prompt ends in an instruction, as plain text: a model may have written it."""

    instruction: str = ""

    def render_system(self, view: View) -> str:
        """Return the role's own system text, followed by a line with the instruction."""
        return f"{super().render_system(view)}\n{self.instruction}".strip()


def add_instruction(role: Role, instruction: str) -> Role:
    """Return the role with this instruction, or the role unchanged if `instruction` is ""."""
    return InstructedRole.model_construct(**dict(role), instruction=instruction) if instruction else role


class Contender(Protocol):
    """Factory of players for seats of matches, all of one policy, scripted policy, endpoint or person."""

    @property
    def name(self) -> str:
        """Name of the contender in plans and in the log."""

    def check(self, name: str, game: Game, seat: str) -> None:
        """Raise ConfigError if the contender cannot play `seat` of `game`. `name` is the game's name in the config."""

    def seating(self, game: str, seat: str) -> Seating:
        """Return a seat's entry in match records if the contender plays it: role, policy name, version, kind."""

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """Create the player of a seat in a match. `derive_seed(seed, plan, seat)` seeds its random draws.

        In a branch, it first repeats the seat's replies in the original match, up to the branch point.
        """

    def release(self, player: SeatedPlayer) -> None:
        """Release a player's resources, such as cached streams, after its match."""


def derive_seed(seed: int, plan: MatchPlan, seat: str) -> tuple[int, ...]:
    """Return the integers that seed the random draws of one seat in one match.

    They are `seed` (the run's), the deal's seed, a constant, the index of the seat, the plan's draws, and each branch
    turn + 1. A retry after a failure repeats the same draws: with new draws, retries would favour matches that end
    before the fault.
    """
    branch_turns = [match.turn + 1 for match in plan.identity.lineage() if match.parent]
    return (seed, plan.seed, _ATTEMPT, list(plan.seats).index(seat), *plan.draws, *branch_turns)


_ATTEMPT = 0
"""Constant part of every seed, kept so that seeds still give the same matches as in earlier versions."""


def fold_seed(integers: tuple[int, ...]) -> int:
    """Combine integers to a 32-bit seed, by NumPy's SeedSequence."""
    return int(np.random.SeedSequence(integers).generate_state(1)[0])


async def play_one(
    plan: MatchPlan,
    contenders: Mapping[str, Contender],
    seed: int,
    limits: Limits,
    keep_turns: bool = True,
    on_turn: OnTurn | None = None,
    game: Game | None = None,
    control: Control = lambda plan, game: (),
) -> MatchRecord:
    """Play one match between contenders, given by seat, and return its record, as `play_match` does.

    `seed` is the run's. Without `game`, a new game is made. `control` returns the match's controls, which may replace
    acts and stop the match. A branch that differs from its parent before the branch point is returned as failed.
    """
    game = make_game(plan.game, plan.options) if game is None else game
    players = {seat: contenders[seat].player(seat, plan, game, seed) for seat in plan.seats}
    try:
        record = await play_match(plan, game, players, limits, keep_turns, on_turn, control(plan, game))
    finally:
        game.close()
        for seat, player in players.items():
            contenders[seat].release(player)
    if record.status == "finished" and plan.branch and (difference := plan.branch.find_difference(record)):
        return mark_failed(record, "game", plan.draws, difference)
    return record


@dataclass(frozen=True)
class ScriptedContender:
    """Contender that plays a scripted policy, with a new instance in every match."""

    name: str
    role: str = "brain"
    """Role name in the log. Scripted policies do not read roles."""

    def check(self, name: str, game: Game, seat: str) -> None:
        """Raise ConfigError if the scripted policy is unknown or cannot play this seat of `game`."""
        try:
            check_scripted(self.name, game, seat)
        except ScriptedPolicyError as error:
            raise ConfigError(str(error)) from None

    def seating(self, game: str, seat: str) -> Seating:
        """Return a seating with the role, the scripted policy's name, and version 0."""
        return Seating.of(self.role, self.name, None)

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """Create the scripted policy as a player for one match.

        In a branch, it plays the repeated turns again with the seed of the original match, so that its state at the
        branch point is right. Its later random draws equal those of the original match (common random numbers).
        """
        if plan.branch:
            plan = replace(plan, identity=plan.identity.lineage()[0], branch=None)
        return ScriptedPlayer(make_scripted(self.name, fold_seed(derive_seed(seed, plan, seat)), game))

    def release(self, player: SeatedPlayer) -> None:
        """Do nothing: the player holds no resources."""


Cast = Callable[[str, str], tuple[Policy, Role]]
"""Function (game's name, seat) -> (policy, role). Raises ConfigError if the contender has none for this seat."""


@dataclass(frozen=True)
class ModelContender:
    """Contender whose players sample replies from an engine. `cast` assigns a policy and a role to each seat."""

    name: str
    engine: Engine
    cast: Cast

    def check(self, name: str, game: Game, seat: str) -> None:
        """Raise ConfigError if the seat has no policy or role, or its role searches and this game does not allow it."""
        _, role = self.cast(name, seat)
        if role.sampling.search and (obstacle := find_search_obstacle(game)):
            raise ConfigError(f"role {role.role}: sampling.search: {obstacle}")

    def seating(self, game: str, seat: str) -> Seating:
        """Return a seating with the role's name and instruction, the contender's name, and the policy's state."""
        policy, role = self.cast(game, seat)
        instruction = role.instruction if isinstance(role, InstructedRole) else ""
        return replace(Seating.of(role.role, self.name, policy), instruction=instruction)

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """Create a chat player with the role's sampling settings. In a branch it first repeats the parent's replies."""
        policy, role = self.cast(plan.game, seat)
        write = make_model_writer(self.engine)
        if rule := role.sampling.cautious:
            write = make_cautious_writer(write, rule, policy.frame.find_tokens_with(MARKS))
        if votes := role.sampling.votes:
            write = make_voting_writer(write, votes.samples, make_act_reader(role, policy.frame))
        repeated = plan.branch.replies(seat) if plan.branch else {}
        if repeated:
            write = make_replay_writer(repeated, write)
        search = role.sampling.search
        source: TurnSource = "voted" if votes or search else "policy"
        key, seat_seed = f"{plan.id}/{seat}", derive_seed(seed, plan, seat)
        make_player = partial(SearchingPlayer, game, search, repeated) if search else ChatPlayer
        return make_player(
            role=role,
            frame=policy.frame,
            policy=policy.name,
            key=key,
            seed=seat_seed,
            write=write,
            source=source,
            positions=self.max_positions(policy),
            picture=get_image_reader(self.engine, game),
        )

    def max_positions(self, policy: Policy) -> int:
        """Return the maximum tokens of a context with its reply: the lower of the policy's and the engine's limits."""
        return min(policy.positions, self.engine.max_context)

    def release(self, player: SeatedPlayer) -> None:
        """Drop the player's cached streams from the engine."""
        for key in player.stream_keys:
            self.engine.forget(key)


def get_image_reader(engine: Engine, game: Game) -> ImageReader | None:
    """Return the game's function from an image's hash to its bytes; None if game or engine do not support images."""
    return game.picture if isinstance(game, Pictures) and engine.capabilities.has_vision else None


@dataclass(frozen=True)
class EndpointContender:
    """Contender whose players request replies from a model of an OpenAI-compatible endpoint."""

    name: str
    endpoint: Endpoint
    """Endpoint that all matches share, which counts the tokens spent."""
    role: Callable[[str, str], Role]
    """Function (game's name, seat) -> role."""

    def check(self, name: str, game: Game, seat: str) -> None:
        """Raise ConfigError if the role needs memory `summary`, `sampling.cautious`, or several samples per turn."""
        if (role := self.role(name, seat)).memory.kind == "summary":
            raise ConfigError(
                f"{self.name} cannot play role {role.role}: memory summary needs token counts, which an endpoint "
                "does not return: use a role with memory window or all"
            )
        if role.sampling.cautious:
            raise ConfigError(
                f"{self.name} cannot play role {role.role}: sampling.cautious needs entropies, which no "
                "endpoint returns: remove it"
            )
        if rule := role.sampling.selection:
            raise ConfigError(
                f"{self.name} cannot play role {role.role}: sampling.{rule} would request, and pay for, several "
                "replies per turn: remove it"
            )

    def seating(self, game: str, seat: str) -> Seating:
        """Return a seating with the role's name, the model's spec, and version 0, because endpoints state none."""
        return Seating.of(self.role(game, seat).role, self.name, None)

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """Create a player that requests replies from the endpoint. A branch first repeats the parent's replies."""
        turns = plan.branch.turns(seat) if plan.branch else []
        answers = {t.index: Answer(t.raw, "length" if t.finish == "length" else "stop", t.tokens) for t in turns}
        seat_seed = derive_seed(seed, plan, seat)
        picture = game.picture if isinstance(game, Pictures) else None
        return self.endpoint.player(
            parse_endpoint(self.name)[1], self.role(plan.game, seat), fold_seed(seat_seed), answers, picture
        )

    def release(self, player: SeatedPlayer) -> None:
        """Do nothing: the player holds no resources."""


@dataclass(frozen=True)
class HumanContender:
    """Contender for a person at the terminal, named `human`."""

    console: Console
    name: str = HUMAN

    def check(self, name: str, game: Game, seat: str) -> None:
        """Accept every game."""

    def seating(self, game: str, seat: str) -> Seating:
        """Return a seating with role, policy and kind `human`, and version 0."""
        return Seating(HUMAN, HUMAN, 0, False, "human")

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """Create a player that shows its views on the console and reads acts from it."""
        from agents.players.human import Human

        return Human(self.console, game if isinstance(game, PlainWords) else None, game)

    def release(self, player: SeatedPlayer) -> None:
        """Do nothing: the player holds no resources."""
