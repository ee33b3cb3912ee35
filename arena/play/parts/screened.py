"""Screening of deals by a baseline's success rate: play only those that it solves sometimes.

A policy learns nothing from deals that it never or always solves. So first play a baseline run without learning
(estimator `zero`), such as an earlier stage of a pipeline. Its log shows how often each deal is solved. Source: ARPO
for computer use (Lu et al. 2025), which keeps 128 tasks that its baseline solves at times.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Annotated

from pydantic import Field

from arena.errors import StoreError
from arena.parts.chance import generator
from arena.parts.paths import Folder
from arena.play.match import MatchPlan
from arena.play.parts.base import PartContext, RolloutPart, Setup, declare

Share = Annotated[float, Field(ge=0, le=1)]


def _check(setup: Setup, *, log: str, above: float, least: float, most: float) -> None:
    """Raise ValueError if no success rate can lie within the bounds, or if the run has a pool of deals of its own."""
    if least >= most:
        raise ValueError(f"no success rate is above {least:g} and at most {most:g}: raise most")
    if setup.play.pool:
        raise ValueError("the deals are the baseline's: leave out play.pool, and set it in the baseline's run")


@declare(check=_check)
def screened(
    context: PartContext,
    *,
    log: Folder,
    above: Annotated[float, Field(ge=-1e9, le=1e9)] = 0.0,
    least: Share = 0.0,
    most: Share = 1.0,
) -> RolloutPart:
    """Play only deals that the run `log`, a folder or `stage:NAME`, solved in more than `least` and at most `most`.

    A match is a success if the mean payoff of its trained seats is above `above`. Deals come in a new random order for
    each pass.
    """
    return Screening(context, log, above, least, most)


class Screening(RolloutPart):
    """Rollout part that plays only deals whose success rate in a baseline run lies within bounds."""

    def __init__(self, context: PartContext, log: str, above: float, least: float, most: float) -> None:
        self.context, self.folder, self.above, self.least, self.most = context, Path(log), above, least, most

    @cached_property
    def seeds(self) -> dict[str, list[int]]:
        """Seeds of the deals to play, by game, ascending. Raises StoreError if there are none."""
        outcomes: dict[tuple[str, int], list[bool]] = {}
        for game, seed, success in self._read_outcomes():
            outcomes.setdefault((game, seed), []).append(success)
        seeds: dict[str, list[int]] = {}
        for (game, seed), successes in sorted(outcomes.items()):
            if self.least < sum(successes) / len(successes) <= self.most:
                seeds.setdefault(game, []).append(seed)
        if not seeds:
            raise StoreError(f"{self.folder}: none of its {len(outcomes)} deals has a success rate within the bounds")
        self.context.note(f"practises {sum(map(len, seeds.values()))} of {len(outcomes)} screened deals")
        return seeds

    def _read_outcomes(self) -> Iterator[tuple[str, int, bool]]:
        """Yield game, seed and success of each finished match of the baseline run."""
        from arena.store.reader import RunReader  # loads pyarrow

        reader = RunReader(self.folder).log
        for iteration in reader.iterations():
            for row in reader.read(iteration, streams=False):
                if row["status"] == "finished" and row.get("source", "played") == "played":
                    trained = [seat for seat, seating in row["seats"].items() if seating["trained"]]
                    mean = sum(row["payoffs"].get(seat, 0.0) for seat in trained) / max(1, len(trained))
                    yield row["game"], row["seed"], mean > self.above

    async def plan(self, k: int, plans: list[MatchPlan]) -> list[MatchPlan]:
        """Replace the seed of each planned deal by that of a screened deal of the same game."""
        screened_plans = list[MatchPlan]()
        for place, (_, deal) in enumerate(groupby(plans, lambda plan: (plan.group, plan.seed))):
            matches = list(deal)
            epoch, seed = self._pick_deal(matches[0].game, (k - 1) * len({plan.group for plan in plans}) + place)
            screened_plans += [replace(plan, seed=seed, draws=(*plan.draws, epoch)) for plan in matches]
        return screened_plans

    def _pick_deal(self, game: str, number: int) -> tuple[int, int]:
        """Return (pass over the screened deals, seed) for the run's deal with this number, counted from 0.

        The pass goes into the plan's draws, so that repeated deals get new randomness.
        """
        if game not in self.seeds:
            raise StoreError(f"{self.folder}: no deal of {game} has a success rate within the bounds")
        seeds = self.seeds[game]
        epoch, place = divmod(number, len(seeds))
        order = generator(self.context.seed, epoch, "screened", game).permutation(len(seeds))
        return epoch, seeds[int(order[place])]
