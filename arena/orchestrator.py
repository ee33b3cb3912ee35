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
    gate = asyncio.Semaphore(in_flight)

    async def one(plan: MatchPlan) -> MatchRecord:
        async with gate:
            for attempt in range(attempts):
                retry = f"{plan.id}-r{attempt}" if attempt else plan.id
                record = await play(replace(plan, id=retry, attempt=attempt))
                done(record)
                if record.status == "finished":
                    return record
        raise PlayError(f"match {plan.id} failed {attempts} times, the last time with: {record.reason}")

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(plan)) for plan in plans]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
