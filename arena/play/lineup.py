"""Lineup: contenders of a run by name (policies, past versions, scripted policies, endpoints)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.engines.base import Engine
from agents.player import PREFIXES
from agents.players.servers import Endpoints
from agents.policy import Policy
from agents.role import Role
from arena.errors import ConfigError
from arena.play.contenders import (
    Contender,
    EndpointContender,
    ModelContender,
    ScriptedContender,
    add_instruction,
    play_one,
)
from arena.play.match import Control, Limits, MatchPlan, OnTurn
from arena.play.tables import Table
from arena.policies import PastVersions
from arena.records import MatchRecord, Seating

if TYPE_CHECKING:
    from agents.harness.server import HarnessServer


@dataclass(frozen=True, kw_only=True)
class Lineup:
    """Factory of contenders from the names in a run's plans. `play` plays one planned match."""

    tables: Sequence[Table]
    policies: Mapping[str, Policy]
    """Policies by name, including the past versions that are loaded at the moment."""
    engine: Engine
    seed: int
    """Seed of the run."""
    limits: Limits
    endpoints: Endpoints
    """Endpoints of all matches, which count the tokens spent."""
    control: Control = lambda plan, game: ()
    """Function that returns the controls of a match."""
    harnesses: HarnessServer | None = None
    """Server for the agent programs at seats; None if no seat has one."""

    def contender(self, name: str, seat: str, table: Table, instruction: str = "") -> Contender:
        """Return the named player in the seat's role at a table (game with roles). `instruction` ends its prompt."""
        role = add_instruction(table.roles[seat], instruction)
        if name in self.policies:
            policy = self.policies[name]
            if (harness := table.harnesses.get(seat)) and self.harnesses:
                return self._make_harness_contender(name, harness, policy, role)
            return ModelContender(name, self.engine, lambda game, seat: (policy, role))
        if name.startswith(PREFIXES):
            return EndpointContender(name, self.endpoints.at(name), lambda game, seat: role)
        return ScriptedContender(name, role.role)

    def _make_harness_contender(self, name: str, harness: str, policy: Policy, role: Role) -> Contender:
        from arena.play.harnesses import HarnessContender

        assert self.harnesses
        return HarnessContender(name, harness, self.engine, policy, role, self.harnesses)

    async def play(self, plan: MatchPlan, past: PastVersions, on_turn: OnTurn | None = None) -> MatchRecord:
        """Play a planned match and return its record. Past versions are loaded meanwhile; `on_turn` gets each turn."""
        table = self.find_table(plan)
        if self.harnesses:
            self.harnesses.open()
        async with past.reserve({seating.policy for seating in plan.seats.values()}):
            contenders = {
                seat: self.contender(plan_seat.policy, seat, table, plan_seat.instruction)
                for seat, plan_seat in plan.seats.items()
            }
            return await play_one(plan, contenders, self.seed, self.limits, on_turn=on_turn, control=self.control)

    async def close(self) -> None:
        """Stop the server for agent programs, after all matches have ended."""
        if self.harnesses:
            await self.harnesses.close()

    def find_table(self, plan: MatchPlan) -> Table:
        """Return the run's table (game with roles) that the plan is for. Raises ConfigError if there is none."""
        for table in self.tables:
            if table.matches(plan):
                return table
        raise ConfigError(
            f"match {plan.id} is of {plan.game} with {plan.options}, which no table has: restore the game and its "
            "options (a rollout part that changes an option has to name it in the plan's `capped`)"
        )


def make_seatings(table: Table, holders: Mapping[str, str], policies: Mapping[str, Policy]) -> dict[str, Seating]:
    """Return the seating of each seat in the game's order. `holders` names the policy or other player of every seat."""
    return {
        seat: Seating.of(role.role, holders[seat], policies.get(holders[seat])) for seat, role in table.roles.items()
    }
