"""Contenders of a run by name: its policies, their past versions, scripted policies, endpoints."""

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
    """From the names in a run's plans to contenders."""

    tables: Sequence[Table]
    policies: Mapping[str, Policy]
    """Past versions among them, as they come and go."""
    engine: Engine
    seed: int
    """The run's."""
    limits: Limits
    endpoints: Endpoints
    """The same for all matches: they hold the account of what was spent."""
    ruled: Callable[[MatchPlan, Game], Rules | None] = lambda plan, game: None
    """Makes the rules of patches and stops of a match."""

    def contender(self, name: str, seat: str, table: Table, instruction: str = "") -> Contender:
        """The contender of this name, in the role of this seat at this table, with an instruction of its own if any."""
        role = instructed(table.roles[seat], instruction)
        if name in self.policies:
            policy = self.policies[name]
            return ModelContender(name, self.engine, lambda game, seat: (policy, role))
        if name.startswith(PREFIXES):
            return EndpointContender(name, self.endpoints.at(name), lambda game, seat: role)
        return ScriptedContender(name, role.role)

    async def play(self, plan: MatchPlan, past: PastVersions, on_turn: OnTurn | None = None) -> MatchRecord:
        """One match between those whom its plan seats; `on_turn` is called with each turn."""
        table = self.table(plan)
        async with past.seated({seating.policy for seating in plan.seats.values()}):
            contenders = {
                seat: self.contender(held.policy, seat, table, held.instruction) for seat, held in plan.seats.items()
            }
            return await play_one(plan, contenders, self.seed, self.limits, on_turn=on_turn, ruled=self.ruled)

    def table(self, plan: MatchPlan) -> Table:
        """The table that a plan is of; ConfigError where a match that goes on is of none any more."""
        for table in self.tables:
            if table.fits(plan):
                return table
        raise ConfigError(
            f"match {plan.id}, which was not finished, is of {plan.game} with {plan.options}, and no table is: "
            "set the game and its options back"
        )


def seatings(table: Table, holders: Mapping[str, str], policies: Mapping[str, Policy]) -> dict[str, Seating]:
    """Return who sits where, in the game's order: `holders` has a policy's name or a scripted policy for every seat."""
    return {
        seat: Seating.of(role.role, holders[seat], policies.get(holders[seat])) for seat, role in table.roles.items()
    }
