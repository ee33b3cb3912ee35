"""The watchdog: names what hangs in which call and ends it, and leaves alone what lives."""

import asyncio
from collections.abc import Callable
from typing import Any

from arena.scale.watchdog import Watchdog


def watched(ping: Callable[[], Any], patience: float, deadline: float, seconds: float) -> tuple[list[str], list[str]]:
    """The notes on `engine 0`, which is in a call, after some seconds; and what became of it."""
    notes, ended = list[str](), list[str]()

    async def watch() -> None:
        watchdog = Watchdog(notes.append, patience, deadline)
        one = watchdog.watch("engine 0", ping, lambda: ended.append("now"), lambda: ended.append("gone"))
        with one.register_call("3 replies"):
            await asyncio.sleep(seconds)
        await watchdog.close()
        assert one.oldest_call()[0] == ""

    asyncio.run(watch())
    return notes, ended


async def lives() -> None:
    pass


async def hangs() -> None:
    await asyncio.sleep(99)


async def gone() -> None:
    raise ConnectionError


def test_a_process_without_a_sign_of_life_is_named_and_ended() -> None:
    notes, ended = watched(hangs, patience=0.1, deadline=99, seconds=0.4)
    assert ended == ["now"] and len(notes) == 1
    assert notes[0].startswith("engine 0 gives no sign of life for 0.1 s, in 3 replies for 0 s: it is ended")


def test_a_call_that_takes_too_long_is_named_first_and_ended_then() -> None:
    notes, ended = watched(lives, patience=0.1, deadline=0.4, seconds=0.8)
    assert ended == ["now"] and len(notes) == 2
    assert notes[0].startswith("engine 0 is at 3 replies for") and "does not answer" in notes[1]


def test_what_lives_is_left_alone_and_what_has_ended_is_reported_once() -> None:
    assert watched(lives, patience=0.1, deadline=99, seconds=0.4) == ([], [])
    assert watched(gone, patience=0.1, deadline=99, seconds=0.4) == ([], ["gone"])
