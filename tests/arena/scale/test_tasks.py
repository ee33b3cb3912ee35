"""Slow calls as Ray tasks, on a cluster of this test's own."""

import asyncio
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agents.players.model import ScriptedPlayer
from agents.players.scripted import make_scripted
from arena.errors import ConfigError, WorkerLost
from arena.play.match import Limits, MatchPlan, play_match
from arena.play.orchestrator import play_all
from arena.play.steps import StepRunner, use_step_runner
from arena.records import MatchRecord, Seating
from arena.scale import tasks
from arena.scale.tasks import RayCalls
from games.contracts import MatchId
from games.slow import slowly
from games.tic_tac_toe import TicTacToe

pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def calls(cluster: None) -> RayCalls:
    made = RayCalls({"num_cpus": 0.5})
    made.check(240.0)
    return made


def told(place: Path) -> int:
    place.write_text(str(os.getpid()))
    return os.getpid()


def told_and_stays(place: Path, seconds: float) -> None:
    told(place)
    time.sleep(seconds)


def fails(what: str) -> None:
    raise LookupError(what)


def test_a_call_is_computed_by_another_process_and_raises_what_it_raises(calls: RayCalls, tmp_path: Path) -> None:
    assert calls(told, tmp_path / "pid") != os.getpid()
    with pytest.raises(LookupError, match=r"^'?lost'?$"):
        calls(fails, "lost")


def test_a_task_that_dies_is_a_worker_lost_in_one_line(calls: RayCalls, tmp_path: Path) -> None:
    threading.Thread(target=kill_when_told, args=(tmp_path / "pid",)).start()
    with pytest.raises(WorkerLost) as error:
        calls(told_and_stays, tmp_path / "pid", 60.0)
    assert str(error.value).startswith("the task of told_and_stays is gone (")
    assert len(str(error.value).splitlines()) == 1


def dies_once(place: Path) -> None:
    if not place.exists():
        place.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_first_task_whose_worker_is_killed_is_tried_again(
    calls: RayCalls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the fault campaign: it ended the command with a traceback."""
    monkeypatch.setattr(tasks, "_do_nothing", partial(dies_once, tmp_path / "dead"))
    calls.check(240.0)
    assert (tmp_path / "dead").exists()
    monkeypatch.setattr(tasks, "_do_nothing", dies)
    with pytest.raises(ConfigError, match=r"^scale\.tasks: the workers of 5 first tasks died \([^\n]+$"):
        calls.check(240.0)


def kill_when_told(place: Path) -> None:
    os.kill(pid_in(place), signal.SIGKILL)


def pid_in(place: Path) -> int:
    for _ in range(24000):
        if place.exists() and (text := place.read_text()):
            return int(text)
        time.sleep(0.01)
    raise AssertionError("it did not begin")


class Asking(TicTacToe):
    """Tic-tac-toe whose first step of all asks elsewhere; it dies there, or stays for so long."""

    blocks = True
    place: Path
    stays = 60.0

    def play(self, seat: str, act: str) -> str:
        if not self.place.exists():
            slowly(told_and_stays, self.place, self.stays)
        return super().play(seat, act)


def play(kind: type[Asking], calls: RayCalls, limits: Limits) -> tuple[list[MatchRecord], list[MatchRecord]]:
    seats = {seat: Seating("r", "random", 0, False, "brain") for seat in TicTacToe().possible_agents}
    plans, ended = (
        [MatchPlan(identity=MatchId(1, n), game="tic_tac_toe", options={}, seed=n, seats=seats) for n in range(3)],
        list[MatchRecord](),
    )

    async def one(plan: MatchPlan) -> MatchRecord:
        game = kind()
        players: Any = {seat: ScriptedPlayer(make_scripted("random", n, game)) for n, seat in enumerate(seats)}
        return await play_match(plan, game, players, limits)

    async def all_of_them() -> list[MatchRecord]:
        with use_step_runner(StepRunner(2, calls)):
            return await play_all(plans, one, ended.append, 1)

    return asyncio.run(all_of_them()), ended


def test_a_killed_task_fails_its_match_with_its_reason_and_it_is_played_again(calls: RayCalls, tmp_path: Path) -> None:
    class Killed(Asking):
        place = tmp_path / "pid"

    threading.Thread(target=kill_when_told, args=(tmp_path / "pid",)).start()
    finished, ended = play(Killed, calls, Limits())
    assert [record.id for record in finished] == ["0001-0000-r1", "0001-0001", "0001-0002"]
    (failed,) = [record for record in ended if record.status == "failed"]
    assert failed.failure and failed.failure.kind == "endpoint"
    assert failed.reason.startswith("WorkerLost: the task of told_and_stays is gone")


def test_a_task_that_hangs_meets_the_turn_limit_and_is_ended(calls: RayCalls, tmp_path: Path) -> None:
    class Hanging(Asking):
        place = tmp_path / "pid"
        stays = 3600.0

    calls(told, tmp_path / "warm")  # a worker is up, so that the limit is not met by its start
    finished, ended = play(Hanging, calls, Limits(turn_seconds=10.0))
    assert len(finished) == 3 and ended[0].reason.startswith("turn time limit: the step of ")
    assert ended[0].failure and ended[0].failure.kind == "limit"
    pid = pid_in(tmp_path / "pid")
    for _ in range(3000):
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.01)
    raise AssertionError("the task goes on")


def test_a_cluster_without_room_for_a_task_is_refused_in_one_line(calls: RayCalls) -> None:
    with pytest.raises(ConfigError, match=r"^scale.tasks: the cluster began no task of 64 CPUs in 1 s: lower"):
        RayCalls({"num_cpus": 64}).check(1.0)
