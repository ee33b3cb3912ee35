"""OpenEnv: served applications and URLs, actions as text, refusals, copies, full servers, and crashed servers."""

import asyncio
import contextlib
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import games
from arena.play.contenders import play_one
from arena.play.match import Limits, MatchPlan
from arena.play.orchestrator import play_all
from arena.records import MatchRecord, Seating
from games.adapters import loading, openenv_server
from games.adapters.modules import find_child_module
from games.adapters.openenv import OpenEnv
from games.adapters.openenv_server import PYTHON, ServerError
from games.conformance.kit import check
from games.contracts import MatchId
from tests.factories.faults import FAULTS, FaultTarget, ScriptedActs, inject_faults

pytest.importorskip("websockets")
has_openenv = bool(os.environ.get(PYTHON)) or importlib.util.find_spec("openenv") is not None
needs_openenv = pytest.mark.skipif(not has_openenv, reason=f"set {PYTHON} to a Python that has openenv-core")
COUNTING, TOO_FULL = "openenv:counting:app", "openenv:counting:narrow"
APP = '''
import os
import random
import time
from typing import Literal

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Add(Action):
    number: int
    why: str = ""


class Choose(Action):
    word: Literal["stop", "go"]


class Seen(Observation):
    total: int
    note: str | None = None


class Counting(Environment):
    """Add numbers to the total, which begins at one that the seed draws; 20 ends the match."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.total = random.Random(seed).randint(1, 9)
        return Seen(total=self.total)

    def step(self, action, timeout_s=None, **kwargs):
        if isinstance(action, Choose):
            return Seen(total=1, done=action.word == "stop", reward=1.0)
        self.total += action.number
        if action.number == 13:
            raise ArithmeticError("thirteen")
        if action.number == 99:
            os._exit(1)
        if action.number == 98:
            time.sleep(30)
        return Seen(total=self.total, done=self.total >= 20, reward=float(action.number), note=action.why or None)

    @property
    def state(self):
        return State()


app = create_app(Counting, Add, Seen, env_name="counting", max_concurrent_envs=16)
narrow = create_app(Counting, Add, Seen, env_name="counting", max_concurrent_envs=1)
words = create_app(Counting, Choose, Seen, env_name="words", max_concurrent_envs=4)
'''


WORDS = FaultTarget(
    game="openenv:counting:words", options={}, acts=["go"], pid=lambda game: game.env.server.pid,
    timeouts=[(openenv_server, name) for name in ("START_SECONDS", "OPEN_SECONDS", "STEP_SECONDS")],
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Folder with the application's module, on the servers' PYTHONPATH."""
    path = tmp_path_factory.mktemp("counting")
    (path / "counting.py").write_text(APP, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{Path(games.__file__).parents[1]}{os.pathsep}{path}")
        yield path
    for servers in openenv_server._SERVERS.values():
        for server in servers:
            server.close()


def start_game(name: str = COUNTING, seed: int = 0, **options: Any) -> OpenEnv:
    game = games.make(name, **options)
    assert isinstance(game, OpenEnv)
    game.reset(seed=seed)
    return game


@needs_openenv
@pytest.mark.slow
def test_openenv_environments_pass_the_conformance_kit() -> None:
    findings = check(lambda: games.make("openenv:counting:words", max_turns=6), seeds=2, acts=80)
    assert {finding.name: finding.ok for finding in findings if not finding.ok} == {"secrets": None}, findings
    findings = check(lambda: games.make(COUNTING, max_turns=6), seeds=2, acts=20)
    assert {finding.name for finding in findings if finding.ok is False} == set(), findings


@needs_openenv
def test_actions_are_json_and_refused_actions_change_nothing() -> None:
    game = start_game()
    assert "number (integer); why (string, optional)" in game.rules() and game.legal("agent") is None
    total = int(game.messages("agent")[0].text)
    game.step('{"number": 2, "why": "two\\u202e"}')
    assert game.messages("agent")[0].text == f"total: {total + 2}\nnote: two" and game.rewards == {"agent": 2.0}
    for act, message in (
        ('{"number": "many"}', "valid integer"), ("{}", "Field required"), ("7", "write a JSON object"),
        ('{"number": 1, "who": 2}', "has no field 'who'"), ("add one", "no JSON"), ("[" * 3000, "no JSON"),
    ):  # fmt: skip
        game.step(act)
        assert game.infos["agent"]["valid"] is False and message in game.messages("agent")[-1].text
        game.step('{"number": 0}')
    game.step('{"number": 20}')
    assert game.ended == "over" and game.report()["reward"] == 22.0 and not game.report()["faults"]


@needs_openenv
def test_failing_environment_is_restored_and_the_fault_counted() -> None:
    game = start_game(seed=1)
    game.step('{"number": 1}')
    game.step('{"number": 13}')
    assert "thirteen" in game.messages("agent")[-1].text and len(game.faults) == 1
    game.step('{"number": 1}')
    assert game.total == 2 and game.messages("agent")[0].text == str(read_initial_total(1) + 2)


def read_initial_total(seed: int) -> int:
    return int(start_game(seed=seed).messages("agent")[0].text)


@needs_openenv
def test_seed_decides_the_start_and_clone_is_independent() -> None:
    assert read_initial_total(3) == read_initial_total(3) and len({read_initial_total(seed) for seed in range(8)}) > 1
    game = start_game()
    game.step('{"number": 3}')
    twin = game.clone()
    twin.step('{"number": 1}')
    game.step('{"number": 1}')
    assert game.messages("agent") == twin.messages("agent")
    twin.step('{"number": 20}')
    assert twin.ended and not game.ended and twin.clone().ended


@needs_openenv
def test_enumerated_field_is_written_without_json() -> None:
    game = start_game("openenv:counting:words", max_turns=2)
    assert game.legal("agent") == ["stop", "go"]
    game.step("go")
    game.step("go")
    assert game.ended == "turns" and game.payoffs() == {"agent": 2.0}


@needs_openenv
@pytest.mark.slow
def test_full_server_gets_a_second_one() -> None:
    first, second = start_game(TOO_FULL), start_game(TOO_FULL)
    assert first.env.server.pid != second.env.server.pid
    first_pid = first.env.server.pid
    first.close()
    time.sleep(0.5)
    assert start_game(TOO_FULL).env.server.pid == first_pid, "the first server's session is not reused"


@needs_openenv
@pytest.mark.slow
@pytest.mark.parametrize(("number", "message"), [(99, "failed"), (98, "gave no answer")])
def test_crashed_or_hanging_server_fails_the_match_and_is_replaced(
    monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    game = start_game()
    pid = game.env.server.pid
    monkeypatch.setattr(openenv_server, "STEP_SECONDS", 1.0)
    with pytest.raises(ServerError, match=message):
        game.step(f'{{"number": {number}}}')
    monkeypatch.setattr(openenv_server, "STEP_SECONDS", 60.0)
    for _ in range(50):
        if not is_running(pid):
            break
        time.sleep(0.1)
    assert start_game().env.server.pid != pid and not is_running(pid)


@needs_openenv
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_match_with_a_failing_server_is_retried(fault: str) -> None:
    ended = "failed: Conn|does not start|cannot be reached"
    messages = {"kill": ended, "hang": "gave no answer within|does not start|cannot be reached", "crash": ended}
    reasons = inject_faults(WORDS, fault)
    assert all(re.search(messages[fault], reason) for reason in reasons), reasons


@needs_openenv
@pytest.mark.slow
def test_server_that_exceeds_the_turn_limit_is_ended() -> None:
    reasons = inject_faults(WORDS, "hang", Limits(turn_seconds=15.0))
    assert len(reasons) == 1 and "turn time limit" in min(reasons)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@needs_openenv
@pytest.mark.slow
def test_matches_wait_while_all_servers_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openenv_server, "MAX_PROCESSES", 2)
    records = list[MatchRecord]()

    async def play(plan: MatchPlan) -> MatchRecord:
        return await play_one(plan, {"agent": ScriptedActs("adds", acts=['{"number": 1}'])}, 0, Limits())

    seats = {"agent": Seating.of("brain", "adds", None)}
    plans = [
        MatchPlan(identity=MatchId(0, number), game=TOO_FULL, options={"max_turns": 30}, seed=number, seats=seats)
        for number in range(12)
    ]
    asyncio.run(play_all(plans, play, records.append, 12, must_finish=False))
    assert [(record.status, record.identity.attempt) for record in records] == [("finished", 0)] * 12, records
    assert len({record.report["turns"] for record in records}) > 1  # seeds differ


@needs_openenv
@pytest.mark.slow
def test_running_server_is_played_by_its_url() -> None:
    with socket.socket() as free_socket:
        free_socket.bind(("127.0.0.1", 0))
        port = free_socket.getsockname()[1]
    python = os.environ.get(PYTHON) or sys.executable
    command = [python, "-P", "-m", "uvicorn", "counting:narrow", "--port", str(port), "--log-level", "error"]
    paths = os.environ["PYTHONPATH"].split(os.pathsep)[1:]
    server = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
    try:
        url = f"openenv:http://127.0.0.1:{port}"
        for _ in range(600):
            with contextlib.suppress(ValueError):
                games.make(url)
                break
            time.sleep(0.1)
        game = start_game(url)
        game.step('{"number": 20}')
        assert game.ended == "over"
        open_game = start_game(url)
        with pytest.raises(ServerError, match="takes no further session"):
            start_game(url)
        open_game.close()
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
    with pytest.raises(ValueError, match="cannot be played"):
        games.make(url)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("openenv:https://example.org", "servers on this machine"),
        ("openenv:http://127.0.0.1.example.org:80", "servers on this machine"),
        ("openenv:http://localhost:1/../x?y", "servers on this machine"),
        ("openenv:counting", "write openenv:http://127.0.0.1:8000 or MODULE:app"),
        ("openenv:http://127.0.0.1:1", "does not describe its actions"),
    ],
)
def test_unavailable_server_is_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        games.make(name)
    assert message in str(refused.value) and "\n" not in str(refused.value)


@needs_openenv
def test_missing_application_is_refused() -> None:
    with pytest.raises(ValueError, match="does not start"):
        games.make("openenv:nothing_there:app")


def test_missing_openenv_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PYTHON, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'arena-selfplay[openenv]'" in (games.find_problem("openenv:counting:app") or "")


def test_refused_module_is_not_served() -> None:
    assert (
        find_child_module("openenv:httpx.app:app") == "httpx.app"
        and find_child_module("openenv:http://127.0.0.1:8000") == ""
    )
    loading.refuse("counting", "read it first")
    try:
        assert "read it first" in (games.find_problem(COUNTING) or "")
    finally:
        loading.reset()
