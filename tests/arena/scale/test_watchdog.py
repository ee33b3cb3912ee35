"""The watchdog: reports and ends processes that hang, and leaves live ones alone."""

import asyncio
from collections.abc import Callable
from typing import Any

from arena.scale.watchdog import Watchdog


def run_watchdog(
    ping: Callable[[], Any], patience: float, deadline: float, seconds: float
) -> tuple[list[str], list[str]]:
    """Watch `engine 0` during a call of some seconds; return the notes and how it was ended."""
    notes, ended = list[str](), list[str]()

    async def watch_call() -> None:
        watchdog = Watchdog(notes.append, patience, deadline)
        watched = watchdog.watch("engine 0", ping, lambda: ended.append("now"), lambda: ended.append("gone"))
        with watched.register_call("3 replies"):
            await asyncio.sleep(seconds)
        await watchdog.close()
        assert watched.oldest_call()[0] == ""

    asyncio.run(watch_call())
    return notes, ended


async def respond() -> None:
    pass


async def hang() -> None:
    await asyncio.sleep(99)


async def fail_connection() -> None:
    raise ConnectionError


def test_unresponsive_process_is_reported_and_ended() -> None:
    notes, ended = run_watchdog(hang, patience=0.1, deadline=99, seconds=0.4)
    assert ended == ["now"] and len(notes) == 1
    assert notes[0].startswith("engine 0 did not answer a ping for 0.1 s, in 3 replies for 0 s: killing it")


def test_long_call_is_reported_and_then_ended() -> None:
    notes, ended = run_watchdog(respond, patience=0.1, deadline=0.4, seconds=0.8)
    assert ended == ["now"] and len(notes) == 2
    assert notes[0].startswith("engine 0 is still in 3 replies after") and "did not answer a call" in notes[1]


def test_live_process_is_left_alone_and_dead_one_reported_once() -> None:
    assert run_watchdog(respond, patience=0.1, deadline=99, seconds=0.4) == ([], [])
    assert run_watchdog(fail_connection, patience=0.1, deadline=99, seconds=0.4) == ([], ["gone"])
