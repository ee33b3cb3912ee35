"""Many matches at once: bounded concurrency, failed matches recorded and refilled."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from arena.match import MatchPlan
from arena.records import MatchRecord


class PlayError(Exception):
    """Matches kept failing; the message says why in one line."""


class Interrupted(Exception):
    """Somebody stopped the run; the message says how to go on."""


Play = Callable[[MatchPlan], Awaitable[MatchRecord]]


async def play_all(
    plans: list[MatchPlan],
    play: Play,
    done: Callable[[MatchRecord], None],
    in_flight: int,
    attempts: int = 3,
) -> list[MatchRecord]:
    """Play every plan and return the finished matches in the order of `plans`.

    `done` is called with each record as it ends, failed ones included. A failed match is played again from
    the same deal, with fresh draws, under a new id (`-r1`, `-r2`, …); after `attempts` failures `PlayError`
    is raised.
    """
    waiting = iter(enumerate(plans))
    finished: list[MatchRecord | None] = [None] * len(plans)

    async def keep_playing() -> None:
        for i, plan in waiting:
            finished[i] = await _play_until_finished(plan, play, done, attempts)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(in_flight, len(plans))):
                group.create_task(keep_playing())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [record for record in finished if record]


async def _play_until_finished(
    plan: MatchPlan, play: Play, done: Callable[[MatchRecord], None], attempts: int
) -> MatchRecord:
    for attempt in range(attempts):
        record = await play(replace(plan, id=f"{plan.id}-r{attempt}", attempt=attempt) if attempt else plan)
        done(record)
        if record.status == "finished":
            return record
    raise PlayError(f"match {plan.id} failed {attempts} times, the last time with: {record.reason}")
