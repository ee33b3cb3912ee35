"""OpenEnv: served applications and URLs, actions as text, refusals, copies, full servers, and servers that die."""

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import games
from arena.play.match import Limits
from games.adapters import loading, openenv_server
from games.adapters.modules import find_run_module
from games.adapters.openenv import OpenEnv
from games.adapters.openenv_server import PYTHON, ServerError
from games.conformance.kit import check
from tests.factories.faults import FAULTS, inject_faults

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


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Folder with the application's module, where servers find it."""
    place = tmp_path_factory.mktemp("counting")
    (place / "counting.py").write_text(APP, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{Path(games.__file__).parents[1]}{os.pathsep}{place}")
        yield place
    for servers in openenv_server._SERVERS.values():
        for each in servers:
            each.close()


def started(name: str = COUNTING, seed: int = 0, **options: Any) -> OpenEnv:
    game = games.make(name, **options)
    assert isinstance(game, OpenEnv)
    game.reset(seed=seed)
    return game


@needs_openenv
@pytest.mark.slow
def test_environments_of_openenv_keep_our_promises() -> None:
    findings = check(lambda: games.make("openenv:counting:words", max_turns=6), seeds=2, acts=80)
    assert {finding.name: finding.ok for finding in findings if not finding.ok} == {"secrets": None}, findings
    findings = check(lambda: games.make(COUNTING, max_turns=6), seeds=2, acts=20)
    assert {finding.name for finding in findings if finding.ok is False} == set(), findings


@needs_openenv
def test_actions_are_json_and_what_the_server_refuses_changes_nothing() -> None:
    game = started()
    assert "number (integer); why (string, optional)" in game.rules() and game.legal("agent") is None
    total = int(game.messages("agent")[0].text)
    game.step('{"number": 2, "why": "two\\u202e"}')
    assert game.messages("agent")[0].text == f"total: {total + 2}\nnote: two" and game.rewards == {"agent": 2.0}
    for wrong, why in (
        ('{"number": "many"}', "valid integer"), ("{}", "Field required"), ("7", "write a JSON object"),
        ('{"number": 1, "who": 2}', "has no field 'who'"), ("add one", "no JSON"), ("[" * 3000, "no JSON"),
    ):  # fmt: skip
        game.step(wrong)
        assert game.infos["agent"]["valid"] is False and why in game.messages("agent")[-1].text
        game.step('{"number": 0}')
    game.step('{"number": 20}')
    assert game.ended == "over" and game.report()["reward"] == 22.0 and not game.report()["faults"]


@needs_openenv
def test_an_environment_that_fails_is_put_back_and_counted() -> None:
    game = started(seed=1)
    game.step('{"number": 1}')
    game.step('{"number": 13}')
    assert "thirteen" in game.messages("agent")[-1].text and len(game.faults) == 1
    game.step('{"number": 1}')
    assert game.total == 2 and game.messages("agent")[0].text == str(_begin(1) + 2)


def _begin(seed: int) -> int:
    return int(started(seed=seed).messages("agent")[0].text)


@needs_openenv
def test_seeds_decide_and_a_clone_goes_on_alone() -> None:
    assert _begin(3) == _begin(3) and len({_begin(seed) for seed in range(8)}) > 1
    game = started()
    game.step('{"number": 3}')
    twin = game.clone()
    twin.step('{"number": 1}')
    game.step('{"number": 1}')
    assert game.messages("agent") == twin.messages("agent")
    twin.step('{"number": 20}')
    assert twin.ended and not game.ended and twin.clone().ended


@needs_openenv
def test_a_listed_field_is_written_alone() -> None:
    game = started("openenv:counting:words", max_turns=2)
    assert game.legal("agent") == ["stop", "go"]
    game.step("go")
    game.step("go")
    assert game.ended == "turns" and game.payoffs() == {"agent": 2.0}


@needs_openenv
@pytest.mark.slow
def test_a_full_server_gets_another_beside_it() -> None:
    one, two = started(TOO_FULL), started(TOO_FULL)
    assert one.env.server.pid != two.env.get_server.pid
    kept = one.env.server.pid
    one.close()
    time.sleep(0.5)
    assert started(TOO_FULL).env.server.pid == kept, "its session is free again"


@needs_openenv
@pytest.mark.slow
@pytest.mark.parametrize(("number", "told"), [(99, "failed"), (98, "gave no answer")])
def test_a_server_that_dies_or_hangs_fails_the_match_and_is_replaced(
    monkeypatch: pytest.MonkeyPatch, number: int, told: str
) -> None:
    game = started()
    pid = game.env.server.pid
    monkeypatch.setattr(openenv_server, "STEP_SECONDS", 1.0)
    with pytest.raises(ServerError, match=told):
        game.step(f'{{"number": {number}}}')
    monkeypatch.setattr(openenv_server, "STEP_SECONDS", 60.0)
    for _ in range(50):
        if not _runs(pid):
            break
        time.sleep(0.1)
    assert started().env.server.pid != pid and not _runs(pid)


@needs_openenv
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_match_whose_server_fails_is_played_again(fault: str) -> None:
    reasons = inject_faults(
        "openenv:counting:words", {"max_turns": 3}, ["go"], fault, lambda game: game.env.server.pid,
        (openenv_server, "STEP_SECONDS"),
    )  # fmt: skip
    told = {"kill": "failed: Conn", "hang": "gave no answer within 1 s", "crash": "failed: Conn"}
    assert all(told[fault] in reason for reason in reasons), reasons


@needs_openenv
@pytest.mark.slow
def test_a_server_that_exceeds_a_turns_limit_is_ended() -> None:
    reasons = inject_faults(
        "openenv:counting:words", {"max_turns": 3}, ["go"], "hang", lambda game: game.env.server.pid,
        (openenv_server, "STEP_SECONDS"), Limits(turn_seconds=15.0),
    )  # fmt: skip
    assert len(reasons) == 1 and "turn time limit" in min(reasons)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@needs_openenv
@pytest.mark.slow
def test_a_running_server_is_played_by_its_url() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    python = os.environ.get(PYTHON) or sys.executable
    command = [python, "-P", "-m", "uvicorn", "counting:narrow", "--port", str(port), "--log-level", "error"]
    paths = os.environ["PYTHONPATH"].split(os.pathsep)[1:]
    serving = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
    try:
        url = f"openenv:http://127.0.0.1:{port}"
        for _ in range(600):
            with contextlib.suppress(ValueError):
                games.make(url)
                break
            time.sleep(0.1)
        game = started(url)
        game.step('{"number": 20}')
        assert game.ended == "over"
        kept = started(url)
        with pytest.raises(ServerError, match="takes no further session"):
            started(url)
        kept.close()
    finally:
        serving.send_signal(signal.SIGKILL)
        serving.wait()
    with pytest.raises(ValueError, match="cannot be played"):
        games.make(url)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("openenv:https://example.org", "servers on this machine"),
        ("openenv:http://127.0.0.1.example.org:80", "servers on this machine"),
        ("openenv:http://localhost:1/../x?y", "servers on this machine"),
        ("openenv:counting", "write openenv:http://127.0.0.1:8000 or MODULE:app"),
        ("openenv:http://127.0.0.1:1", "does not describe its actions"),
    ],
)
def test_what_cannot_be_had_is_told_in_a_line(name: str, told: str) -> None:
    with pytest.raises(ValueError) as refused:
        games.make(name)
    assert told in str(refused.value) and "\n" not in str(refused.value)


@needs_openenv
def test_an_application_that_is_not_there_is_told_in_a_line() -> None:
    with pytest.raises(ValueError, match="does not start"):
        games.make("openenv:nothing_there:app")


def test_without_openenv_a_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PYTHON, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'arena-selfplay[openenv]'" in (games.find_problem("openenv:counting:app") or "")


def test_a_module_that_is_refused_is_not_served() -> None:
    assert (
        find_run_module("openenv:httpx.app:app") == "httpx.app"
        and find_run_module("openenv:http://127.0.0.1:8000") == ""
    )
    loading.refuse("counting", "read it first")
    try:
        assert "read it first" in (games.find_problem(COUNTING) or "")
    finally:
        loading.reset()
