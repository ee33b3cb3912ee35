"""The computing thread: a single one, in order, beside a responsive event loop."""

import asyncio
import subprocess
import sys
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


def test_event_loop_stays_responsive() -> None:
    """The work waits for something the loop does meanwhile."""
    beaten = threading.Event()

    async def ask() -> bool:
        work = asyncio.create_task(compute(beaten.wait, 60.0))
        for _ in range(5):
            await asyncio.sleep(0.01)
        beaten.set()
        return await work

    assert asyncio.run(ask())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="GNU's OpenMP")
def test_loop_threads_end_before_work_begins() -> None:
    """Loading a model in the main thread left a thread pool that doubled the time of each decoding step."""
    code = (
        "import asyncio, os, torch, faiss\n"  # which brings a libgomp of its own
        "from agents.computing import compute\n"
        "torch.set_num_threads(2)\n"
        "def threads(): return len(os.listdir('/proc/self/task'))\n"
        "def product(): torch.ones(600, 600) @ torch.ones(600, 600)\n"
        "async def run():\n"
        "    alone = await compute(threads)\n"
        "    product(); both = threads()\n"
        "    first = await compute(threads)\n"
        "    await compute(product)\n"
        "    return both - alone, first - alone, await compute(threads) - alone\n"
        "print(asyncio.run(run()))\n"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "(1, 0, 1)", "a thread of the loop's, gone, then one of the computing thread's"


def test_errors_reach_the_awaiting_caller() -> None:
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
    """Cancelled at all moments, also at the end of the work."""

    async def ask() -> None:
        for i in range(200):
            work = asyncio.create_task(compute(sum, range(i * 50)))
            await asyncio.sleep(0)
            await asyncio.sleep(0 if i % 2 else 1e-4)
            work.cancel()
            assert await compute(partial(int, i)) == i

    asyncio.run(ask())
