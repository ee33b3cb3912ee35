"""One event loop for the process: failures and interrupts leave no task in it, and other tasks keep running."""

import asyncio
import inspect

import pytest

from arena.cli.loop import wait


async def get_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_loop_is_always_the_same() -> None:
    assert wait(get_loop()) is wait(get_loop(), by_signal=False)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("by_signal", [True, False])
def test_failure_leaves_no_task_behind(error: type[BaseException], by_signal: bool) -> None:
    done: list[str] = []

    async def finish_later() -> None:
        await asyncio.sleep(0.01)
        done.append("slow")

    async def fail() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(finish_later())
            group.create_task(raise_error())

    async def raise_error() -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises((error, BaseExceptionGroup)):
        wait(fail(), by_signal)
    wait(asyncio.sleep(0.05))
    assert not done


def test_coroutine_interrupted_before_it_begins_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise Python warns on stderr of a coroutine that was never awaited."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    work = get_loop()
    monkeypatch.setattr(asyncio, "all_tasks", lambda of: interrupt())
    with pytest.raises(KeyboardInterrupt):
        wait(work)
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


def test_other_tasks_keep_running() -> None:
    ticks: list[int] = []

    async def tick() -> None:
        for number in range(3):
            await asyncio.sleep(0.01)
            ticks.append(number)

    async def start_task() -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(tick())

    async def fail() -> None:
        raise ValueError

    task = wait(start_task())
    with pytest.raises(ValueError):
        wait(fail())
    wait(asyncio.sleep(0.1))
    assert ticks == [0, 1, 2] and task.done()


def test_wait_inside_another_loop_uses_the_same_process_loop() -> None:
    async def get_process_loop() -> asyncio.AbstractEventLoop:
        await asyncio.sleep(0)
        return asyncio.get_running_loop()

    async def fail() -> None:
        raise ValueError("failed")

    async def run_cell() -> list[asyncio.AbstractEventLoop]:
        with pytest.raises(ValueError, match="failed"):
            wait(fail())
        return [wait(get_process_loop()), wait(get_process_loop()), asyncio.get_running_loop()]

    first, again, notebook_loop = asyncio.run(run_cell())
    assert first is again is wait(get_process_loop()) and notebook_loop is not first


def test_wait_inside_the_process_loop_is_refused() -> None:
    async def do_nothing() -> None:
        """Do nothing."""

    async def wait_inside() -> None:
        wait(do_nothing())

    with pytest.raises(RuntimeError, match="running"):
        wait(wait_inside())
