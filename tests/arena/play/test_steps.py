"""Blocking steps run in a bounded number of threads and are given up at the turn limit."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.players.model import ScriptedPlayer
from agents.players.scripted import make_scripted
from arena.play import match as of_match
from arena.play import steps as of_steps
from arena.play.failures import LimitReached
from arena.play.match import Limits, MatchPlan, SeatedPlayer, play_match
from arena.play.orchestrator import play_all
from arena.play.steps import StepRunner, use_step_runner
from arena.records import MatchRecord, Seating
from games.contracts import Game, GameFull, MatchId
from games.slow import offload
from games.tic_tac_toe import TicTacToe
from simulators.confine.code import find_obstacle
from simulators.reasoning import Reasoning, gym
from simulators.repair import Repair

confined = pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle())


def pause(seconds: float) -> float:
    """Sleep; a slow call that can be sent elsewhere."""
    time.sleep(seconds)
    return seconds


class SlowGame(TicTacToe):
    """Tic-tac-toe whose every step waits 0.2 s for a slow call."""

    blocks = True

    def play(self, seat: str, act: str) -> str:
        offload(pause, 0.2)
        return super().play(seat, act)


class HangingGame(TicTacToe):
    """Tic-tac-toe whose every step hangs."""

    blocks = True

    def play(self, seat: str, act: str) -> str:
        while True:
            time.sleep(0.01)


class ScarceGame(TicTacToe):
    """Tic-tac-toe with two boards for all matches, whose steps block."""

    blocks = True
    boards = threading.BoundedSemaphore(2)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        if not ScarceGame.boards.acquire(blocking=False):
            raise GameFull("both boards are taken")
        super().set_up(rng, options)

    def play(self, seat: str, act: str) -> str:
        time.sleep(0.002)
        text = super().play(seat, act)
        if self.ended:
            ScarceGame.boards.release()
        return text


async def play_game(game: Game, deal: int, player: str = "random", limits: Limits | None = None) -> MatchRecord:
    seats = {seat: Seating("r", player, 0, False, "brain") for seat in game.possible_agents}
    plan = MatchPlan(identity=MatchId(1, deal), game=type(game).name, options={}, seed=deal, seats=seats)
    players: dict[str, SeatedPlayer] = {
        seat: ScriptedPlayer(make_scripted(player, n, game)) for n, seat in enumerate(seats)
    }
    return await play_match(plan, game, players, limits or Limits())


async def play_beside_quick(slow: Game, player: str) -> tuple[list[str], MatchRecord]:
    """Play one slow match and twenty quick ones on the loop.

    Returns the order in which they end, and the slow one's record.
    """
    ends: list[str] = []

    async def play_noted(name: str, game: Game, player_name: str) -> MatchRecord:
        record = await play_game(game, len(ends), player_name)
        ends.append(name)
        return record

    async with asyncio.TaskGroup() as group:
        task = group.create_task(play_noted("slow", slow, player))
        for _ in range(20):
            group.create_task(play_noted("quick", TicTacToe(), "random"))
    return ends, task.result()


def test_slow_step_delays_no_other_match() -> None:
    ends, record = asyncio.run(play_beside_quick(SlowGame(), "random"))
    assert ends == ["quick"] * 20 + ["slow"]
    assert record.status == "finished" and all(turn.seconds >= 0.2 for turn in record.turns)


@confined
@pytest.mark.parametrize(
    ("game", "player"),
    [(lambda: Reasoning(protocol="code"), "coder"), (lambda: Repair(functions=1), "random")],
    ids=["reasoning", "repair"],
)
def test_simulator_code_delays_no_other_match(
    game: Callable[[], Game], player: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code cell waits for twenty matches that only proceed if the loop does."""
    import simulators.confine.code as code

    others_done, run = threading.Event(), code._run

    def run_after_others(*arguments: Any) -> code.Outcome:
        assert others_done.wait(60), "the loop stood still"
        return run(*arguments)

    monkeypatch.setattr(code, "_run", run_after_others)

    async def play_both() -> MatchRecord:
        slow = asyncio.create_task(play_game(game(), 1, player))
        for deal in range(20):
            await play_game(TicTacToe(), deal)
        others_done.set()
        return await slow

    record = asyncio.run(play_both())
    assert record.status == "finished" and record.reason == ""


def test_steps_in_a_thread_give_the_same_match() -> None:
    def without_times(record: MatchRecord) -> dict[str, Any]:
        row = record.to_json()
        return {**row, "started": "", "seconds": 0, "turns": [{**turn, "seconds": 0} for turn in row["turns"]]}

    class BlockingTicTacToe(TicTacToe):
        blocks = True

    assert without_times(asyncio.run(play_game(BlockingTicTacToe(), 3))) == without_times(
        asyncio.run(play_game(TicTacToe(), 3))
    )


def test_matches_wait_for_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_match, "PLACE_SECONDS", 0.005)

    async def play(count: int, limits: Limits) -> list[MatchRecord]:
        return await asyncio.gather(*(play_game(ScarceGame(), deal, limits=limits) for deal in range(count)))

    records = asyncio.run(play(12, Limits()))
    assert [record.status for record in records] == ["finished"] * 12
    monkeypatch.setattr(ScarceGame, "boards", threading.Semaphore(0))
    threading.Timer(2.0, ScarceGame.boards.release).start()
    (record,) = asyncio.run(play(1, Limits(seconds=1.8)))
    assert record.status == "finished", "the time limit of a match includes the wait"
    monkeypatch.setattr(ScarceGame, "boards", threading.Semaphore(0))
    monkeypatch.setattr(of_match, "MAX_PLACE_SECONDS", 0.02)
    (record,) = asyncio.run(play(1, Limits()))
    assert record.status == "failed" and "both boards are taken" in record.reason


def test_hanging_step_fails_its_match_at_the_turn_limit() -> None:
    async def hang() -> MatchRecord:
        record = await play_game(HangingGame(), 1, limits=Limits(turn_seconds=0.1))
        for _ in range(500):
            if not any(thread.name == "arena-step" for thread in threading.enumerate()):
                return record
            await asyncio.sleep(0.01)
        raise AssertionError("the thread goes on")

    record = asyncio.run(hang())
    assert record.status == "failed" and record.failure and record.failure.kind == "limit"
    assert record.reason == f"turn time limit: the step of {record.failure.seat} took over 0.1 s"


def test_concurrent_steps_are_bounded_and_waiting_is_not_timed() -> None:
    running, peak, lock = 0, 0, threading.Lock()

    def step() -> None:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        time.sleep(0.1)
        with lock:
            running -= 1

    async def run_many() -> None:
        steps = StepRunner(at_once=2)
        await asyncio.gather(*(steps.run(step, "it", 5 * 0.1) for _ in range(12)))

    asyncio.run(run_many())
    assert peak == 2


def test_steps_that_wait_for_tools_have_their_own_slots() -> None:
    barrier = threading.Barrier(8)

    def meet() -> None:
        barrier.wait(30)  # breaks unless all eight are there

    async def run_many() -> None:
        steps = StepRunner(at_once=2)
        await asyncio.gather(*(steps.run(meet, "it", None, waits=True) for _ in range(8)))

    asyncio.run(run_many())


def test_abandoned_steps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_steps, "MAX_ABANDONED", 2)
    over = threading.Event()

    async def hang() -> list[str]:
        steps, messages = StepRunner(at_once=1), []
        for _ in range(4):
            with pytest.raises(LimitReached) as error:
                await steps.run(lambda: assert_over(over), "it", 0.05)
            messages.append(str(error.value))
        return messages

    try:
        messages = asyncio.run(hang())
    finally:
        over.set()
    assert messages == ["turn time limit: it took over 0.05 s"] * 3 + ["3 steps of games hang: no further step starts"]


def assert_over(over: threading.Event) -> None:
    assert over.wait(60)  # one wait in C, which no exception ends


def test_slow_calls_run_on_the_given_runner() -> None:
    calls: list[tuple[Any, ...]] = []

    def run_elsewhere(work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        calls.append((work, arguments, named))
        return work(0.0)

    async def run() -> tuple[MatchRecord, MatchRecord]:
        with use_step_runner(StepRunner(2, run_elsewhere)):
            first = await play_game(SlowGame(), 1)
        return first, await play_game(SlowGame(), 1)

    first, second = asyncio.run(run())
    assert calls == [(pause, (0.2,), {})] * len(first.turns)
    assert [turn.raw for turn in first.turns] == [turn.raw for turn in second.turns]


def test_step_that_raises_is_replayed() -> None:
    failures: list[int] = []

    class FailsOnce(TicTacToe):
        blocks = True

        def play(self, seat: str, act: str) -> str:
            if not failures:
                failures.append(1)
                raise OSError("the tool is gone")
            return super().play(seat, act)

    seats = {seat: Seating("r", "random", 0, False, "brain") for seat in FailsOnce().possible_agents}
    plan, records = (
        MatchPlan(identity=MatchId(1, 0), game="tic_tac_toe", options={}, seed=0, seats=seats),
        list[MatchRecord](),
    )

    async def play(plan: MatchPlan) -> MatchRecord:
        game = FailsOnce()
        return await play_match(
            plan, game, {s: ScriptedPlayer(make_scripted("random", 0, game)) for s in seats}, Limits()
        )

    (record,) = asyncio.run(play_all([plan], play, records.append, 1))
    assert [each.status for each in records] == ["failed", "finished"] and record.attempt == 1


def test_prints_of_other_threads_during_scoring_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    is_scoring, is_printed = threading.Event(), threading.Event()

    def score() -> None:
        with gym.isolate_random_state(0):
            print("noise of the scorer")
            is_scoring.set()
            assert is_printed.wait(60)

    thread = threading.Thread(target=score)
    thread.start()
    assert is_scoring.wait(60)
    print("a line of the run")
    is_printed.set()
    thread.join()
    assert capsys.readouterr().out == "a line of the run\n"


def test_the_process_ends_though_a_step_hangs(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import asyncio, threading\n"
        "from arena.play.steps import StepRunner\n"
        "async def main():\n"
        "    try: await StepRunner().run(threading.Event().wait, 'it', 0.1)\n"
        "    except Exception as error: print(error)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "turn time limit: it took over 0.1 s\n" and done.returncode == 0
