"""Rollout parts outside a run."""

import asyncio
from collections.abc import Sequence
from typing import Any

from arena.parts.part_config import choose
from arena.play.match import MatchPlan
from arena.play.parts import ROLLOUT_PART
from arena.play.parts.base import PartContext, Progress, RolloutPart
from arena.records import MatchRecord
from tests.factories.babble import POLICIES


def make_part(name: str, *, seed: int = 0, iterations: int = 10, **settings: Any) -> Any:
    """Return a part of a run without an engine, in which no deal is ever missing."""

    async def missing_deals(k: int, records: Sequence[MatchRecord], deals: int) -> int:
        return 0

    asker: Any = None
    context = PartContext(
        seed=seed, iterations=iterations, policies=POLICIES, asker=asker, missing_deals=missing_deals, note=print
    )
    return choose(ROLLOUT_PART, name, **settings)(context)


def plan_with(part: RolloutPart, plans: list[MatchPlan], k: int = 1) -> list[MatchPlan]:
    """Return the plans that the part makes of these."""
    return asyncio.run(part.plan(k, plans))


def expand_with(part: RolloutPart, records: Sequence[MatchRecord], k: int = 1, deals: int = 0) -> list[MatchPlan]:
    """Return the further plans of the part after these matches."""
    progress = Progress(ended=records, records=records, given_up=[], deals=deals)
    return [*asyncio.run(part.expand(k, progress)).plans]
