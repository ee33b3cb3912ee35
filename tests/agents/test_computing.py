"""The computing thread: one for all, in order, beside a loop that stays awake."""

import asyncio
import threading
import time
from functools import partial

import pytest

from agents.computing import compute


def test_all_work_is_done_in_one_thread_in_the_order_it_was_asked_for() -> None:
    done: list[tuple[int, int]] = []

    def note(i: int) -> None:
        done.append((i, threading.get_ident()))

    async def ask() -> None:
        await asyncio.gather(*(compute(partial(note, i)) for i in range(50)))

    asyncio.run(ask())
    assert [i for i, _ in done] == list(range(50))
    assert len({thread for _, thread in done}) == 1 and done[0][1] != threading.get_ident()


def test_the_loop_goes_on_meanwhile() -> None:
    """The work ends by what the loop does while it runs."""
    beaten = threading.Event()

    async def ask() -> bool:
        work = asyncio.create_task(compute(beaten.wait, 60.0))
        for _ in range(5):
            await asyncio.sleep(0.01)
        beaten.set()
        return await work

    assert asyncio.run(ask())


def test_errors_arrive_where_they_are_awaited() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(compute(fail))


@pytest.mark.parametrize("after", [0.0, 0.05])
def test_cancelled_work_ends_and_the_next_is_unharmed(after: float) -> None:
    lines: list[str] = []

    def long() -> None:
        try:
            for _ in range(3000):
                time.sleep(0.01)
        finally:
            lines.append("ended")

    async def ask() -> str:
        work = asyncio.create_task(compute(long))
        await asyncio.sleep(after)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        return await compute(lambda: "next")

    started = time.monotonic()
    assert asyncio.run(ask()) == "next"
    assert time.monotonic() - started < 10
    assert lines in ([], ["ended"])


def test_an_interrupt_never_reaches_the_work_after_it() -> None:
    """Cancelled at all moments, also just when it ends."""

    async def ask() -> None:
        for i in range(200):
            work = asyncio.create_task(compute(sum, range(i * 50)))
            await asyncio.sleep(0)
            await asyncio.sleep(0 if i % 2 else 1e-4)
            work.cancel()
            assert await compute(partial(int, i)) == i

    asyncio.run(ask())
