"""Slow calls as Ray tasks."""

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
from games.slow import offload
from games.tic_tac_toe import TicTacToe

pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ray_calls(cluster: None) -> RayCalls:
    calls = RayCalls({"num_cpus": 0.5})
    calls.check(240.0)
    return calls


def write_pid(place: Path) -> int:
    place.write_text(str(os.getpid()))
    return os.getpid()


def write_pid_and_sleep(place: Path, seconds: float) -> None:
    write_pid(place)
    time.sleep(seconds)


def raise_lookup_error(what: str) -> None:
    raise LookupError(what)


def test_call_runs_in_another_process_and_forwards_exceptions(ray_calls: RayCalls, tmp_path: Path) -> None:
    assert ray_calls(write_pid, tmp_path / "pid") != os.getpid()
    with pytest.raises(LookupError, match=r"^'?lost'?$"):
        ray_calls(raise_lookup_error, "lost")


def test_dead_task_is_worker_lost_in_one_line(ray_calls: RayCalls, tmp_path: Path) -> None:
    threading.Thread(target=kill_when_started, args=(tmp_path / "pid",)).start()
    with pytest.raises(WorkerLost) as error:
        ray_calls(write_pid_and_sleep, tmp_path / "pid", 60.0)
    assert str(error.value).startswith("the task of write_pid_and_sleep is gone (")
    assert len(str(error.value).splitlines()) == 1


def die_once(place: Path) -> None:
    if not place.exists():
        place.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_first_task_is_retried_if_its_worker_is_killed(
    ray_calls: RayCalls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression from the fault campaign: it ended the command with a traceback."""
    monkeypatch.setattr(tasks, "_do_nothing", partial(die_once, tmp_path / "dead"))
    ray_calls.check(240.0)
    assert (tmp_path / "dead").exists()
    monkeypatch.setattr(tasks, "_do_nothing", die)
    with pytest.raises(ConfigError, match=r"^scale\.tasks: the workers of 5 first tasks died \([^\n]+$"):
        ray_calls.check(240.0)


def kill_when_started(place: Path) -> None:
    os.kill(wait_for_pid(place), signal.SIGKILL)


def wait_for_pid(place: Path) -> int:
    for _ in range(24000):
        if place.exists() and (text := place.read_text()):
            return int(text)
        time.sleep(0.01)
    raise AssertionError("it did not begin")


class SlowFirstStep(TicTacToe):
    """Tic-tac-toe whose very first step runs as a slow call of `stays` seconds."""

    blocks = True
    place: Path
    stays = 60.0

    def play(self, seat: str, act: str) -> str:
        if not self.place.exists():
            offload(write_pid_and_sleep, self.place, self.stays)
        return super().play(seat, act)


def play_matches_with(
    kind: type[SlowFirstStep], calls: RayCalls, limits: Limits
) -> tuple[list[MatchRecord], list[MatchRecord]]:
    seats = {seat: Seating("r", "random", 0, False, "brain") for seat in TicTacToe().possible_agents}
    plans, ended = (
        [MatchPlan(identity=MatchId(1, n), game="tic_tac_toe", options={}, seed=n, seats=seats) for n in range(3)],
        list[MatchRecord](),
    )

    async def play_one(plan: MatchPlan) -> MatchRecord:
        game = kind()
        players: Any = {seat: ScriptedPlayer(make_scripted("random", n, game)) for n, seat in enumerate(seats)}
        return await play_match(plan, game, players, limits)

    async def play_matches() -> list[MatchRecord]:
        with use_step_runner(StepRunner(2, calls)):
            return await play_all(plans, play_one, ended.append, 1)

    return asyncio.run(play_matches()), ended


def test_killed_task_fails_its_match_which_is_retried(ray_calls: RayCalls, tmp_path: Path) -> None:
    class Killed(SlowFirstStep):
        place = tmp_path / "pid"

    threading.Thread(target=kill_when_started, args=(tmp_path / "pid",)).start()
    finished, ended = play_matches_with(Killed, ray_calls, Limits())
    assert [record.id for record in finished] == ["0001-0000-r1", "0001-0001", "0001-0002"]
    (failed,) = [record for record in ended if record.status == "failed"]
    assert failed.failure and failed.failure.kind == "endpoint"
    assert failed.reason.startswith("WorkerLost: the task of write_pid_and_sleep is gone")


def test_hanging_task_hits_the_turn_limit_and_is_ended(ray_calls: RayCalls, tmp_path: Path) -> None:
    class Hanging(SlowFirstStep):
        place = tmp_path / "pid"
        stays = 3600.0

    ray_calls(write_pid, tmp_path / "warm")  # a worker is up, so that the limit is not met by its start
    finished, ended = play_matches_with(Hanging, ray_calls, Limits(turn_seconds=10.0))
    assert len(finished) == 3 and ended[0].reason.startswith("turn time limit: the step of ")
    assert ended[0].failure and ended[0].failure.kind == "limit"
    pid = wait_for_pid(tmp_path / "pid")
    for _ in range(3000):
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.01)
    raise AssertionError("the task goes on")


def test_cluster_without_capacity_for_a_task_gives_one_line(ray_calls: RayCalls) -> None:
    with pytest.raises(
        ConfigError, match=r"^scale.tasks: the cluster did not start a task of 64 CPUs within 1 s: lower"
    ):
        RayCalls({"num_cpus": 64}).check(1.0)
