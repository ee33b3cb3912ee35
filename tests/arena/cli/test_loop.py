"""One event loop for the process: what fails or is interrupted leaves nothing in it, and others' tasks live on."""

import asyncio
import inspect

import pytest

from arena.cli.loop import wait


async def loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_it_is_always_the_same_loop() -> None:
    assert wait(loop()) is wait(loop(), by_signal=False)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("by_signal", [True, False])
def test_what_ends_badly_leaves_no_task_behind(error: type[BaseException], by_signal: bool) -> None:
    done: list[str] = []

    async def slow() -> None:
        await asyncio.sleep(0.01)
        done.append("slow")

    async def fails() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(slow())
            group.create_task(stop())

    async def stop() -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises((error, BaseExceptionGroup)):
        wait(fails(), by_signal)
    wait(asyncio.sleep(0.05))
    assert not done


def test_what_is_interrupted_before_it_begins_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else Python says on stderr, beside the one line of whoever pressed Ctrl-C, that nobody awaited it."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    work = loop()
    monkeypatch.setattr(asyncio, "all_tasks", lambda of: interrupted())
    with pytest.raises(KeyboardInterrupt):
        wait(work)
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


def test_the_tasks_of_others_live_on() -> None:
    heard: list[int] = []

    async def engine() -> None:
        for number in range(3):
            await asyncio.sleep(0.01)
            heard.append(number)

    async def begin() -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(engine())

    async def fails() -> None:
        raise ValueError

    task = wait(begin())
    with pytest.raises(ValueError):
        wait(fails())
    wait(asyncio.sleep(0.1))
    assert heard == [0, 1, 2] and task.done()


def test_within_another_loop_as_in_a_notebook_the_same_loop_is_waited_on_beside_it() -> None:
    async def own_loop() -> asyncio.AbstractEventLoop:
        await asyncio.sleep(0)
        return asyncio.get_running_loop()

    async def fails() -> None:
        raise ValueError("told")

    async def cell() -> list[asyncio.AbstractEventLoop]:
        with pytest.raises(ValueError, match="told"):
            wait(fails())
        return [wait(own_loop()), wait(own_loop()), asyncio.get_running_loop()]

    first, again, cells = asyncio.run(cell())
    assert first is again is wait(own_loop()) and cells is not first


def test_within_our_own_loop_one_awaits() -> None:
    async def inner() -> None:
        """Nothing."""

    async def outer() -> None:
        wait(inner())

    with pytest.raises(RuntimeError, match="running"):
        wait(outer())
