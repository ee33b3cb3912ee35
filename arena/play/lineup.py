"""Lineup: contenders of a run by name (policies, past versions, scripted policies, endpoints)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agents.engines.base import Engine
from agents.player import PREFIXES
from agents.players.servers import Endpoints
from agents.policy import Policy
from arena.errors import ConfigError
from arena.play.contenders import Contender, EndpointContender, ModelContender, ScriptedContender, play_one
from arena.play.instructions import instructed
from arena.play.match import Limits, MatchPlan, OnTurn, Rules
from arena.play.tables import Table
from arena.policies import PastVersions
from arena.records import MatchRecord, Seating
from games.contracts import Game


@dataclass(frozen=True)
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
    ruled: Callable[[MatchPlan, Game], Rules | None] = lambda plan, game: None
    """Factory of a match's rules for patches and stops."""

    def contender(self, name: str, seat: str, table: Table, instruction: str = "") -> Contender:
        """Return the named player in the seat's role at a table (game with roles). `instruction` ends its prompt."""
        role = instructed(table.roles[seat], instruction)
        if name in self.policies:
            policy = self.policies[name]
            return ModelContender(name, self.engine, lambda game, seat: (policy, role))
        if name.startswith(PREFIXES):
            return EndpointContender(name, self.endpoints.at(name), lambda game, seat: role)
        return ScriptedContender(name, role.role)

    async def play(self, plan: MatchPlan, past: PastVersions, on_turn: OnTurn | None = None) -> MatchRecord:
        """Play a planned match and return its record. Past versions are loaded meanwhile; `on_turn` gets each turn."""
        table = self.table(plan)
        async with past.seated({seating.policy for seating in plan.seats.values()}):
            contenders = {
                seat: self.contender(held.policy, seat, table, held.instruction) for seat, held in plan.seats.items()
            }
            return await play_one(plan, contenders, self.seed, self.limits, on_turn=on_turn, ruled=self.ruled)

    def table(self, plan: MatchPlan) -> Table:
        """Return the run's game with roles that the plan is for. Raises ConfigError if the run has none like it."""
        for table in self.tables:
            if table.fits(plan):
                return table
        raise ConfigError(
            f"match {plan.id}, which was not finished, is of {plan.game} with {plan.options}, and no table is: "
            "set the game and its options back"
        )


def seatings(table: Table, holders: Mapping[str, str], policies: Mapping[str, Policy]) -> dict[str, Seating]:
    """Return the seating of each seat in the game's order. `holders` names the policy or other player of every seat."""
    return {
        seat: Seating.of(role.role, holders[seat], policies.get(holders[seat])) for seat, role in table.roles.items()
    }
