"""Concurrent play of many matches: bounded concurrency, retries of failed matches."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from arena.errors import PlayError
from arena.play.failures import (
    describe_reason,
    is_engine_death,
    is_final,
    is_repeated,
    mark_failed,
    may_depend_on_play,
    raise_bug,
)
from arena.play.match import MatchPlan
from arena.records import Failure, MatchRecord

PlayMatch = Callable[[MatchPlan], Awaitable[MatchRecord]]


async def play_counting_failures(
    plans: list[MatchPlan], play: PlayMatch, on_finish: Callable[[], None], in_flight: int
) -> Counter[str]:
    """Play all plans as `play_all` does and return the number of failed attempts by reason.

    `on_finish` is called after each finished match.
    """
    failures = Counter[str]()

    def count(record: MatchRecord) -> None:
        if record.status == "failed":
            failures[record.reason] += 1
        else:
            on_finish()

    await play_all(plans, play, count, in_flight)
    return failures


async def play_all(
    plans: list[MatchPlan],
    play: PlayMatch,
    on_end: Callable[[MatchRecord], None],
    in_flight: int,
    attempts: int = 3,
    must_finish: bool = True,
) -> list[MatchRecord]:
    """Play all plans, `in_flight` at once, and return the finished matches in the order of `plans`.

    `on_end` is called with the record of every attempt, also of failed ones. A failed match is retried from the same
    deal, with the same draws, under a new id (`-r1`, `-r2`, …). It is given up (`Failure.given_up`) after `attempts`
    failures, not counting dead engines, or after one failure of kind `person`. If a failure may depend on the players'
    acts, a retry counts only if it repeats those acts: otherwise retries would select matches by their course. Raises
    BugError if Arena's own code failed and, with `must_finish`, PlayError if more matches are given up than finish.
    """
    waiting = iter(enumerate(plans))
    ends: list[MatchRecord | None] = [None] * len(plans)

    async def keep_playing() -> None:
        for i, plan in waiting:
            ends[i] = await _play_until_finished(plan, play, on_end, attempts)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(in_flight, len(plans))):
                group.create_task(keep_playing())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finished = [record for record in ends if record and record.status == "finished"]
    if must_finish:
        given_up = [record for record in ends if record and record.status == "failed"]
        check_lost_matches(given_up, (), len(finished), attempts)
    return finished


def check_lost_matches(
    given_up: Sequence[MatchRecord], left_out: Sequence[MatchRecord], usable: int, attempts: int
) -> None:
    """Raise PlayError if more matches are lost (given up or left out) than are `usable`.

    `given_up` failed `attempts` times each. `left_out` finished, but share a deal with one of them.
    """
    lost_count = len(given_up) + len(left_out)
    if lost_count > usable:
        times = "because of the person" if all(map(is_final, given_up)) and given_up else f"{attempts} times each"
        others = f", and {len(left_out)} others shared their deals" if left_out else ""
        raise PlayError(
            f"{len(given_up)} of {lost_count + usable} matches failed {times}{others}, the last time with: "
            f"{describe_reason(given_up[-1])}"
        )


async def _play_until_finished(
    plan: MatchPlan, play: PlayMatch, on_end: Callable[[MatchRecord], None], attempts: int
) -> MatchRecord:
    failures, retries, first_failure = 0, 0, None
    while True:
        record = await play(plan)
        if first_failure and record.status == "finished" and not is_repeated(first_failure, record):
            assert first_failure.failure
            record = mark_failed(
                record, first_failure.failure.kind, plan.draws, f"acts differ from those of failed {first_failure.id}"
            )
        failures += record.status == "failed" and not is_engine_death(record)
        if given_up := failures >= attempts or is_final(record):
            record = replace(record, failure=replace(record.failure or Failure(kind="game"), given_up=True))
        on_end(record)
        raise_bug(record)
        if given_up or record.status == "finished":
            return record
        if not first_failure and may_depend_on_play(record):
            first_failure = record
        retries += 1
        plan = replace(plan, identity=replace(plan.identity, attempt=retries))
