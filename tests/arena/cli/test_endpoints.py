"""Servers in a run, an evaluation, a tournament, a matrix and at the terminal: real ones, on loopback."""

import json
import time
from pathlib import Path

import pytest

from agents.weights import resolve
from arena.cli.live import Screen
from arena.config.layers import parse_endpoints
from arena.errors import ConfigError
from arena.store.reader import RunReader
from tests.factories.commands import arena, get_refusal
from tests.factories.server import Server, make_completion, reply_with, reply_with_models

RUN = ["run", "selfplay", "--recipe", "kuhn_poker-nano", "--iterations", "1", "--json"]
RUN += [part for s in ("play.matches=4", "play.attempts=1", "learn.regularisers={kl: {weight: 0}}",
                       "policies.shared.imitate=null")
        for part in ("--set", s)]  # fmt: skip
KUHN = ["--game", "kuhn_poker"]


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def gone() -> str:
    """The url of a server that is there no more."""
    with Server() as server:
        return server.url


def passes() -> Server:
    return Server(reply_with(make_completion("PASS")), models=reply_with_models("m"))


@pytest.mark.slow
def test_two_servers_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_KEY", "a-local-secret")
    with passes() as one, passes() as two:
        endpoints = f"endpoints={{local: {{url: '{two.url}', key_variable: LOCAL_KEY}}}}"
        league = "league={opponents: [{play: fixed, policy: 'endpoint@local:m'}, {play: fixed, policy: 'endpoint:m'}]}"
        settings = [f"endpoint.url={one.url}", endpoints, league, "play.matches=16"]
        told = arena(*RUN, *(part for s in settings for part in ("--set", s)), "--out", tmp_path / "run")
    assert told.code == 0, told.err
    met = {seat["policy"] for row in RunReader(tmp_path / "run").matches() for seat in row["seats"].values()}
    assert {"endpoint:m", "endpoint@local:m"} <= met and one.requests and two.requests
    assert {headers["authorization"] for _, headers, _ in two.requests} == {"Bearer a-local-secret"}
    assert "a-local-secret" not in (tmp_path / "run" / "config.yaml").read_text()


@pytest.mark.parametrize(
    "setting", ["seats.second.policy=endpoint:m", "evaluate={games: [{name: kuhn_poker}], against: ['endpoint:m']}"]
)
def test_a_wrong_port_is_found_before_a_run_begins(tmp_path: Path, gone: str, setting: str) -> None:
    begun = time.monotonic()
    line = get_refusal(*RUN, "--set", f"endpoint.url={gone}", "--set", setting, "--out", tmp_path / "run")
    assert gone in line and "is a server running there?" in line and time.monotonic() - begun < 8
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["eval", "endpoint:m", *KUHN, "--matches", "4"],
        ["eval", "random", *KUHN, "--against", "endpoint:m", "--matches", "4"],
        ["tournament", "random", "endpoint:m", *KUHN, "--matches", "4"],
        ["play", *KUHN, "--seat", "0=endpoint:m", "--seat", "1=nash"],
    ],
)
def test_commands_ask_the_server_that_they_are_told_of(command: list[str], gone: str) -> None:
    with passes() as server:
        told = arena(*command, "--endpoint", f"url={server.url}", "--endpoint", "seed=false", "--json")
    assert told.code == 0, told.err
    assert (
        server.requests
        and len(server.model_requests) == 1
        and not any("seed" in body for _, _, body in server.requests)
    )
    begun = time.monotonic()
    told = arena(*command, "--endpoint", f"url={gone}")
    assert told.code == 2 and gone in told.line and time.monotonic() - begun < 5


def test_a_matrix_of_two_servers() -> None:
    with (
        Server(reply_with(make_completion("DIAGNOSE flu"))) as one,
        Server(reply_with(make_completion("ASK cough"))) as two,
    ):
        servers = ["--endpoint", f"url={one.url}", "--endpoint", f"local.url={two.url}"]
        told = arena("matrix", "endpoint:m", "endpoint@local:m", "--game", "clinic", "--persons", "terse", "--tasks",
                     "2", "--trials", "1", *servers, "--json")  # fmt: skip
    assert told.code == 0, told.err
    assert [cell["agent"] for cell in json.loads(told.out)["cells"]] == ["endpoint:m", "endpoint@local:m"]
    assert one.requests and two.requests


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("url", "--endpoint url: write A=B"),
        ("lcoal host.url=x", "write A=B, such as"),
        ("urll=http://localhost:1/v1", "did you mean 'url'"),
        ("url=localhost:8000", "a url is http://HOST:PORT/v1"),
        ("local.requests_per_minute=fast", "--endpoint local: requests_per_minute"),
    ],
)
def test_what_is_no_setting_of_a_server(setting: str, says: str) -> None:
    assert says in get_refusal("eval", "endpoint:m", *KUHN, "--endpoint", setting)


def test_a_server_that_has_no_name_here() -> None:
    line = get_refusal("eval", "endpoint@lcal:m", *KUHN, "--endpoint", "local.url=http://127.0.0.1:9/v1")
    assert "unknown server 'lcal'" in line and "did you mean 'local'" in line


def test_settings_of_servers_by_name() -> None:
    specs = parse_endpoints(["url=http://a/v1", "local.url=http://b/v1", "local.requests_per_minute=30"])
    assert (specs[""].url, specs[""].requests_per_minute, specs["local"].requests_per_minute) == (
        "http://a/v1",
        None,
        30,
    )
    with pytest.raises(ConfigError, match="prices"):
        parse_endpoints(["max_cost=1.0"])


def test_turns_are_counted_while_matches_are_under_way() -> None:
    from typing import Any

    from rich.console import Console

    console = Console(record=True, width=80)
    screen = Screen(console, "table", 1)
    nothing: Any = None
    screen.phase(1, "play")
    for _ in range(3):
        screen.turn(nothing, nothing)
    console.print(screen._render())
    assert "3 turns" in console.export_text()


def test_a_strangers_run_asks_no_server_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its config may name any server, and any variable as the key's."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "models").symlink_to(resolve("nano").parent)
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DATABASE_PASSWORD", "a-private-secret")
    run, seat = tmp_path / "run", ["--set", "seats.second.policy=endpoint:m", "--set", "play.matches=2"]
    with passes() as server, passes() as other:
        key = ["--set", f"endpoint={{url: '{server.url}', key_variable: DATABASE_PASSWORD}}"]
        assert arena(*RUN, *seat, *key, "--out", run).code == 0
        assert arena("resume", run, "--iterations", "2", "--json").code == 0, "begun here"
        (tmp_path / "home" / "trusted").unlink()
        looked = len(server.model_requests)
        line = get_refusal("resume", run, "--iterations", "3")
        assert f"would ask {server.url} with the key in DATABASE_PASSWORD: to allow that, pass --trust" in line
        assert len(server.model_requests) == looked > 0
        own = ["--set", f"endpoint={{url: '{other.url}', key_variable: null}}"]
        assert arena("resume", run, "--iterations", "3", *own, "--json").code == 0, "the user's own word"
        assert len(server.model_requests) == looked and other.model_requests
        assert arena("resume", run, "--iterations", "4", "--json").code == 0, "which the run keeps"
        again = ["--set", f"endpoint={{url: '{server.url}', key_variable: DATABASE_PASSWORD}}"]
        assert arena("resume", run, "--iterations", "5", *again, "--trust", "--json").code == 0


def test_a_password_in_a_url_is_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "http://user:hunter2@127.0.0.1:9/v1"
    for option in ([], ["--endpoint", f"url={url}"]):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        line = get_refusal("eval", "endpoint:m", *KUHN, "--matches", "2", *option)
        assert "without a user, a password" in line and "hunter2" not in line
