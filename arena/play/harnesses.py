"""Contenders whose acts come from an agent program that asks a policy (`agents.harness`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agents.engines.base import Engine
from agents.harness.command import is_url, parse_command
from agents.harness.player import AgentProgram, HarnessPlayer
from agents.harness.program import Program
from agents.harness.remote import Remote
from agents.harness.server import HarnessServer
from agents.harness.session import Session
from agents.players.writers import make_model_writer, make_replay_writer
from agents.policy import Policy
from agents.role import Role
from arena.play.contenders import derive_seed, fold_seed
from arena.play.match import MatchPlan, SeatedPlayer
from arena.records import Seating
from games.abilities import PostedRewards
from games.contracts import Game


@dataclass(frozen=True)
class HarnessContender:
    """Contender that plays by an agent program: a process per match, or a running server."""

    name: str
    """Name of the policy that answers the program's requests."""
    harness: str
    """The program's command or URL."""
    engine: Engine
    policy: Policy
    role: Role
    """Role whose sampling applies, and by whose name the seat is credited. Its templates are not used."""
    server: HarnessServer

    def check(self, name: str, game: Game, seat: str) -> None:
        """Accept every game."""

    def seating(self, game: str, seat: str) -> Seating:
        """Return a seating with the role's name, the contender's name, and the policy's version and training flag."""
        return Seating.of(self.role.role, self.name, self.policy)

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """Create the player of a match. Its program starts at the seat's first turn.

        In a branch the policy first repeats its replies of the parent match, whatever the program asks.
        """
        write, seat_seed = make_model_writer(self.engine), derive_seed(seed, plan, seat)
        if plan.branch:
            write = make_replay_writer(plan.branch.replies(seat), write)

        def take_rewards(rewards: Mapping[str, float]) -> None:
            if not isinstance(game, PostedRewards):
                raise ValueError(f"the game {plan.game} gives its own rewards")
            game.take_rewards(seat, rewards)

        positions = min(self.policy.positions, self.engine.max_context)
        session = Session(
            self.role, self.policy.frame, self.policy.name, f"{plan.id}/{seat}", seat_seed, write, positions,
            self.server.note, take_rewards, sees=bool(self.policy.frame.image and self.engine.capabilities.has_vision),
        )  # fmt: skip
        return HarnessPlayer(session, self._program(self.server.admit(session)), fold_seed(seat_seed))

    def release(self, player: SeatedPlayer) -> None:
        """Kill the program, refuse its further requests, and drop its streams from the engine."""
        assert isinstance(player, HarnessPlayer)
        self.server.dismiss(player)
        for key in player.stream_keys:
            self.engine.forget(key)

    def _program(self, key: str) -> AgentProgram:
        access = {"OPENAI_BASE_URL": self.server.url, "OPENAI_API_KEY": key, "OPENAI_MODEL": self.name}
        if is_url(self.harness):
            return Remote(self.harness, access)
        return Program(parse_command(self.harness), access)
