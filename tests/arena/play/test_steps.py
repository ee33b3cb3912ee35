"""Steps that block: in threads beside the loop, so many at a time, given up at the turn limit."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents.players.model import ScriptedPlayer
from agents.players.scripted import make_scripted
from arena.play import steps as of_steps
from arena.play.failures import LimitReached
from arena.play.match import Limits, MatchPlan, SeatedPlayer, play_match
from arena.play.orchestrator import play_all
from arena.play.steps import StepRunner, use_step_runner
from arena.records import MatchRecord, Seating
from games.contracts import Game, MatchId
from games.slow import slowly
from games.tic_tac_toe import TicTacToe
from simulators.confine.code import find_obstacle
from simulators.reasoning import Reasoning, gym
from simulators.repair import Repair

confined = pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle())


def paused(seconds: float) -> float:
    """Sleep in the way of a call that travels."""
    time.sleep(seconds)
    return seconds


class Slow(TicTacToe):
    """Tic-tac-toe whose every step waits a fifth of a second for something outside."""

    blocks = True

    def play(self, seat: str, act: str) -> str:
        slowly(paused, 0.2)
        return super().play(seat, act)


class Hanging(TicTacToe):
    """Tic-tac-toe whose every step hangs."""

    blocks = True

    def play(self, seat: str, act: str) -> str:
        while True:
            time.sleep(0.01)


async def played(game: Game, deal: int, player: str = "random", limits: Limits | None = None) -> MatchRecord:
    seats = {seat: Seating("r", player, 0, False, "brain") for seat in game.possible_agents}
    plan = MatchPlan(identity=MatchId(1, deal), game=type(game).name, options={}, seed=deal, seats=seats)
    players: dict[str, SeatedPlayer] = {
        seat: ScriptedPlayer(make_scripted(player, n, game)) for n, seat in enumerate(seats)
    }
    return await play_match(plan, game, players, limits or Limits())


async def beside(slow: Game, player: str) -> tuple[list[str], MatchRecord]:
    """Play one slow match and twenty quick ones that take turns on the loop; in which order they end."""
    ends: list[str] = []

    async def noted(name: str, game: Game, of: str) -> MatchRecord:
        record = await played(game, len(ends), of)
        ends.append(name)
        return record

    async with asyncio.TaskGroup() as group:
        task = group.create_task(noted("slow", slow, player))
        for _ in range(20):
            group.create_task(noted("quick", TicTacToe(), "random"))
    return ends, task.result()


def test_a_step_of_a_fifth_of_a_second_holds_up_no_other_match() -> None:
    ends, record = asyncio.run(beside(Slow(), "random"))
    assert ends == ["quick"] * 20 + ["slow"]
    assert record.status == "finished" and all(turn.seconds >= 0.2 for turn in record.turns)


@confined
@pytest.mark.parametrize(
    ("game", "player"),
    [(lambda: Reasoning(protocol="code"), "coder"), (lambda: Repair(functions=1), "random")],
    ids=["reasoning", "repair"],
)
def test_code_that_a_simulator_runs_holds_up_no_other_match(
    game: Callable[[], Game], player: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell waits for twenty matches that only go on when the loop does."""
    import simulators.confine.code as code

    others, run = threading.Event(), code._run

    def after_the_others(*given: Any) -> code.Outcome:
        assert others.wait(60), "the loop stood still"
        return run(*given)

    monkeypatch.setattr(code, "_run", after_the_others)

    async def both() -> MatchRecord:
        slow = asyncio.create_task(played(game(), 1, player))
        for deal in range(20):
            await played(TicTacToe(), deal)
        others.set()
        return await slow

    record = asyncio.run(both())
    assert record.status == "finished" and record.reason == ""


def test_what_steps_in_a_thread_is_the_same_match() -> None:
    def timeless(record: MatchRecord) -> dict[str, Any]:
        row = record.to_json()
        return {**row, "started": "", "seconds": 0, "turns": [{**turn, "seconds": 0} for turn in row["turns"]]}

    class Quick(TicTacToe):
        blocks = True

    assert timeless(asyncio.run(played(Quick(), 3))) == timeless(asyncio.run(played(TicTacToe(), 3)))


def test_a_step_that_hangs_fails_its_match_at_the_turn_limit_and_its_thread_ends() -> None:
    async def hang() -> MatchRecord:
        record = await played(Hanging(), 1, limits=Limits(turn_seconds=0.1))
        for _ in range(500):
            if not any(thread.name == "arena-step" for thread in threading.enumerate()):
                return record
            await asyncio.sleep(0.01)
        raise AssertionError("the thread goes on")

    record = asyncio.run(hang())
    assert record.status == "failed" and record.failure and record.failure.kind == "limit"
    assert record.reason == f"turn time limit: the step of {record.failure.seat} took over 0.1 s"


def test_only_so_many_step_at_once_and_waiting_for_room_is_nobodys_turn() -> None:
    now, most, lock = 0, 0, threading.Lock()

    def step() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.1)
        with lock:
            now -= 1

    async def many() -> None:
        steps = StepRunner(at_once=2)
        await asyncio.gather(*(steps.run(step, "it", 5 * 0.1) for _ in range(12)))

    asyncio.run(many())
    assert most == 2


def test_steps_that_wait_for_tools_have_room_of_their_own() -> None:
    together = threading.Barrier(8)

    def meet() -> None:
        together.wait(30)  # breaks unless all eight are there

    async def many() -> None:
        steps = StepRunner(at_once=2)
        await asyncio.gather(*(steps.run(meet, "it", None, waits=True) for _ in range(8)))

    asyncio.run(many())


def test_steps_that_hang_for_good_do_not_pile_up_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_steps, "MAX_ABANDONED", 2)
    over = threading.Event()

    async def hang() -> list[str]:
        steps, said = StepRunner(at_once=1), []
        for _ in range(4):
            with pytest.raises(LimitReached) as error:
                await steps.run(lambda: assert_over(over), "it", 0.05)
            said.append(str(error.value))
        return said

    try:
        said = asyncio.run(hang())
    finally:
        over.set()
    assert said == ["turn time limit: it took over 0.05 s"] * 3 + ["3 steps of games hang: no further step starts"]


def assert_over(over: threading.Event) -> None:
    assert over.wait(60)  # one wait in C, which no exception ends


def test_slow_calls_are_computed_where_the_run_says_and_nowhere_else() -> None:
    asked: list[tuple[Any, ...]] = []

    def elsewhere(work: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
        asked.append((work, given, named))
        return work(0.0)

    async def run() -> tuple[MatchRecord, MatchRecord]:
        with use_step_runner(StepRunner(2, elsewhere)):
            first = await played(Slow(), 1)
        return first, await played(Slow(), 1)

    first, second = asyncio.run(run())
    assert asked == [(paused, (0.2,), {})] * len(first.turns)
    assert [turn.raw for turn in first.turns] == [turn.raw for turn in second.turns]


def test_a_step_that_raises_is_played_again_as_any_failure() -> None:
    lost: list[int] = []

    class Once(TicTacToe):
        blocks = True

        def play(self, seat: str, act: str) -> str:
            if not lost:
                lost.append(1)
                raise OSError("the tool is gone")
            return super().play(seat, act)

    seats = {seat: Seating("r", "random", 0, False, "brain") for seat in Once().possible_agents}
    plan, ended = (
        MatchPlan(identity=MatchId(1, 0), game="tic_tac_toe", options={}, seed=0, seats=seats),
        list[MatchRecord](),
    )

    async def play(plan: MatchPlan) -> MatchRecord:
        game = Once()
        return await play_match(
            plan, game, {s: ScriptedPlayer(make_scripted("random", 0, game)) for s in seats}, Limits()
        )

    (record,) = asyncio.run(play_all([plan], play, ended.append, 1))
    assert [each.status for each in ended] == ["failed", "finished"] and record.attempt == 1


def test_what_others_print_while_a_thread_scores_is_not_lost(capsys: pytest.CaptureFixture[str]) -> None:
    inside, said = threading.Event(), threading.Event()

    def score() -> None:
        with gym.isolate_random_state(0):
            print("noise of the scorer")
            inside.set()
            assert said.wait(60)

    thread = threading.Thread(target=score)
    thread.start()
    assert inside.wait(60)
    print("a line of the run")
    said.set()
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
