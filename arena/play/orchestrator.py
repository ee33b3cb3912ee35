"""Many matches at once: bounded concurrency, failed matches recorded and refilled."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from arena.errors import PlayError
from arena.play.failures import by_a_death, stop_at_a_bug, with_place
from arena.play.match import MatchPlan
from arena.records import MatchRecord

Play = Callable[[MatchPlan], Awaitable[MatchRecord]]


async def play_all(
    plans: list[MatchPlan],
    play: Play,
    done: Callable[[MatchRecord], None],
    in_flight: int,
    attempts: int = 3,
) -> list[MatchRecord]:
    """Play every plan concurrently and return the finished matches in the order of `plans`.

    `done` is called with each record as it ends, failed ones included. A failed match is played again from
    the same deal, with fresh draws, under a new id (`-r1`, `-r2`, …); after `attempts` failures, not counting deaths of
    engines, it is given up. One that failed by a bug of ours is not: `BugError` ends the play at once. When more
    matches are given up than finish, something is broken: then `PlayError` is raised.
    """
    waiting = iter(enumerate(plans))
    ends: list[MatchRecord | None] = [None] * len(plans)

    async def keep_playing() -> None:
        for i, plan in waiting:
            ends[i] = await _play_until_finished(plan, play, done, attempts)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(in_flight, len(plans))):
                group.create_task(keep_playing())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finished = [record for record in ends if record and record.status == "finished"]
    given_up = [record for record in ends if record and record.status == "failed"]
    if len(given_up) > len(finished):
        last = given_up[-1]
        raise PlayError(
            f"{len(given_up)} of {len(plans)} matches failed {attempts} times each, the last time with: "
            f"{with_place(last)}"
        )
    return finished


async def _play_until_finished(
    plan: MatchPlan, play: Play, done: Callable[[MatchRecord], None], attempts: int
) -> MatchRecord:
    again = failed = 0
    while True:
        record = await play(plan)
        done(record)
        stop_at_a_bug(record)
        failed += not by_a_death(record)
        if record.status == "finished" or failed >= attempts:
            return record
        again += 1
        plan = replace(plan, identity=replace(plan.identity, attempt=again))
