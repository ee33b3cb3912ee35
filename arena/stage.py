"""Where a run's matches are played: its tables, with who sits down at them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from agents.players.model import BrainPlayer
from agents.players.simple import Recital
from arena.experiment import LimitsSpec
from arena.match import Limits, MatchPlan, SeatedPlayer, play_match
from arena.orchestrator import play_all
from arena.policies import Guests
from arena.records import MatchRecord
from arena.seating import House, Table, demonstrator_at, player_at, players_at, teller_at


class Stage:
    """Plays single matches from their plans."""

    def __init__(self, tables: Sequence[Table], house: House, limits: LimitsSpec) -> None:
        self.tables, self.house = tables, house
        self.limits = Limits(**limits.model_dump())

    async def play(self, plan: MatchPlan, guests: Guests) -> MatchRecord:
        """One match between those whom its plan seats."""
        table = self._table(plan)
        game = table.make_game()
        async with guests.seated({seating.policy for seating in plan.seats.values()}):
            players = players_at(table, plan, game, self.house)
            record = await play_match(plan, game, players, self.limits)
        for player in players.values():
            for key in player.stream_keys:
                self.house.engine.forget(key)
        if record.status == "finished" and plan.branch and (why := plan.branch.strayed(record)):
            return replace(record, status="failed", reason=why, payoffs={}, report={})
        return record

    async def demonstrate(
        self, plans: list[MatchPlan], brains: Sequence[str], rng: np.random.Generator
    ) -> list[MatchRecord]:
        """Matches between brains, drawn at random for each seat that a policy holds."""

        async def play(plan: MatchPlan) -> MatchRecord:
            table = self._table(plan)
            game = table.make_game()
            players = {
                seat: player_at(seat, plan, game, table, self.house)
                if seating.kind == "brain"
                else demonstrator_at(seat, plan, game, table, self.house, brains[int(rng.integers(len(brains)))])
                for seat, seating in plan.seats.items()
            }
            return await play_match(plan, game, players, self.limits)

        return await play_all(plans, play, lambda record: None, 1, 1)

    async def retell(self, plan: MatchPlan, seat: str, row: Mapping[str, Any]) -> MatchRecord:
        """A match of a log again, with the replies that it has: `seat` in its policy's tokens, the others by acts."""
        table = self._table(plan)
        brain = row["seats"][seat]["kind"] == "brain"
        players: dict[str, SeatedPlayer] = {
            each: BrainPlayer(Recital({turn["index"]: turn["action"] for turn in row["turns"]})) for each in plan.seats
        }
        said = {
            turn["index"]: (table.roles[seat].write(turn["action"]) if brain else turn["raw"], turn["finish"])
            for turn in row["turns"]
            if turn["seat"] == seat
        }
        players[seat] = teller_at(seat, plan, table, self.house, said)
        return await play_match(plan, table.make_game(), players, Limits())

    def _table(self, plan: MatchPlan) -> Table:
        return next(table for table in self.tables if table.fits(plan))
