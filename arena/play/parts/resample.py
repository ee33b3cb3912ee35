"""Resampling: new deals replace those that credit's selection drops (DAPO's dynamic sampling, Yu et al. 2025)."""

from typing import Annotated

from pydantic import Field

from arena.play.parts.base import Expansion, PartContext, Progress, RolloutPart, Setup, declare


def _check(setup: Setup, *, rounds: int) -> None:
    """Raise ValueError if play overlaps learning, because the current weights' credit is then not known in time."""
    if setup.play.overlaps:
        raise ValueError(
            "it needs the credit of the current weights, which are still learning: set ahead to 0 and enough to 1"
        )


@declare(check=_check)
def resample(context: PartContext, *, rounds: Annotated[int, Field(ge=1, le=10**4)] = 1) -> RolloutPart:
    """Play new deals in place of those that `credit.select` dropped, in at most `rounds` rounds per iteration."""
    return Resample(context, rounds)


class Resample(RolloutPart):
    """Rollout part that adds as many deals to an iteration as its selection dropped."""

    def __init__(self, context: PartContext, rounds: int) -> None:
        self.context, self.rounds = context, rounds
        self.rounds_played: dict[int, int] = {}
        """Number of rounds so far, by iteration."""

    async def expand(self, k: int, progress: Progress) -> Expansion:
        """Return as many new deals as credit lacks, up to the maximum number of rounds."""
        if self.rounds_played.get(k, 0) >= self.rounds:
            return Expansion()
        incomplete = len({(record.game, record.seed) for record in progress.given_up})
        missing = await self.context.missing_deals(k, progress.records, max(0, progress.deals - incomplete))
        self.rounds_played = {k: self.rounds_played.get(k, 0) + 1}
        return Expansion(deals=missing)
