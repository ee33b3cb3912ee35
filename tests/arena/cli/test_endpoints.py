"""Model servers in runs, evaluations, tournaments, matrices and at the terminal: real ones, on loopback."""

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
def no_endpoint_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def closed_server_url() -> str:
    """Return the URL of a server that no longer runs."""
    with Server() as server:
        return server.url


def serve_passes() -> Server:
    return Server(reply_with(make_completion("PASS")), models=reply_with_models("m"))


@pytest.mark.slow
def test_two_servers_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_KEY", "a-local-secret")
    with serve_passes() as default, serve_passes() as local:
        endpoints = f"endpoints={{local: {{url: '{local.url}', key_variable: LOCAL_KEY}}}}"
        league = "league={opponents: [{play: fixed, policy: 'endpoint@local:m'}, {play: fixed, policy: 'endpoint:m'}]}"
        settings = [f"endpoint.url={default.url}", endpoints, league, "play.matches=16"]
        result = arena(*RUN, *(part for s in settings for part in ("--set", s)), "--out", tmp_path / "run")
    assert result.code == 0, result.err
    policies = {seat["policy"] for row in RunReader(tmp_path / "run").matches() for seat in row["seats"].values()}
    assert {"endpoint:m", "endpoint@local:m"} <= policies and default.requests and local.requests
    assert {headers["authorization"] for _, headers, _ in local.requests} == {"Bearer a-local-secret"}
    assert "a-local-secret" not in (tmp_path / "run" / "config.yaml").read_text()


@pytest.mark.parametrize(
    "setting", ["seats.second.policy=endpoint:m", "evaluate={games: [{name: kuhn_poker}], against: ['endpoint:m']}"]
)
def test_wrong_port_is_noticed_before_a_run_begins(tmp_path: Path, closed_server_url: str, setting: str) -> None:
    started = time.monotonic()
    line = get_refusal(*RUN, "--set", f"endpoint.url={closed_server_url}", "--set", setting, "--out", tmp_path / "run")
    assert closed_server_url in line and "is a server running there?" in line and time.monotonic() - started < 8
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
def test_commands_ask_the_given_server(command: list[str], closed_server_url: str) -> None:
    with serve_passes() as server:
        result = arena(*command, "--endpoint", f"url={server.url}", "--endpoint", "seed=false", "--json")
    assert result.code == 0, result.err
    assert (
        server.requests
        and len(server.model_requests) == 1
        and not any("seed" in body for _, _, body in server.requests)
    )
    started = time.monotonic()
    result = arena(*command, "--endpoint", f"url={closed_server_url}")
    assert result.code == 2 and closed_server_url in result.line and time.monotonic() - started < 5


def test_a_matrix_of_two_servers() -> None:
    with (
        Server(reply_with(make_completion("DIAGNOSE flu"))) as default,
        Server(reply_with(make_completion("ASK cough"))) as local,
    ):
        servers = ["--endpoint", f"url={default.url}", "--endpoint", f"local.url={local.url}"]
        result = arena("matrix", "endpoint:m", "endpoint@local:m", "--game", "clinic", "--persons", "terse", "--tasks",
                     "2", "--trials", "1", *servers, "--json")  # fmt: skip
    assert result.code == 0, result.err
    assert [cell["agent"] for cell in json.loads(result.out)["cells"]] == ["endpoint:m", "endpoint@local:m"]
    assert default.requests and local.requests


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("url", "--endpoint url: write A=B"),
        ("lcoal host.url=x", "write A=B, such as"),
        ("urll=http://localhost:1/v1", "did you mean 'url'"),
        ("url=localhost:8000", "a url is http://HOST:PORT/v1"),
        ("local.requests_per_minute=fast", "--endpoint local: requests_per_minute"),
    ],
)
def test_bad_server_setting_is_refused(setting: str, message: str) -> None:
    assert message in get_refusal("eval", "endpoint:m", *KUHN, "--endpoint", setting)


def test_unknown_server_name_is_refused() -> None:
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


def test_foreign_run_contacts_no_server_without_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its config could name any server, and any variable as the key's."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "models").symlink_to(resolve("nano").parent)
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DATABASE_PASSWORD", "a-private-secret")
    run, seat = tmp_path / "run", ["--set", "seats.second.policy=endpoint:m", "--set", "play.matches=2"]
    with serve_passes() as server, serve_passes() as other:
        key = ["--set", f"endpoint={{url: '{server.url}', key_variable: DATABASE_PASSWORD}}"]
        assert arena(*RUN, *seat, *key, "--out", run).code == 0
        assert arena("resume", run, "--iterations", "2", "--json").code == 0, "a run that was started here is trusted"
        (tmp_path / "home" / "trusted").unlink()
        looked = len(server.model_requests)
        line = get_refusal("resume", run, "--iterations", "3")
        assert f"would ask {server.url} with the key in DATABASE_PASSWORD: to allow that, pass --trust" in line
        assert len(server.model_requests) == looked > 0
        own = ["--set", f"endpoint={{url: '{other.url}', key_variable: null}}"]
        assert arena("resume", run, "--iterations", "3", *own, "--json").code == 0, (
            "settings given by the user are trusted"
        )
        assert len(server.model_requests) == looked and other.model_requests
        assert arena("resume", run, "--iterations", "4", "--json").code == 0, "the run keeps the user's settings"
        again = ["--set", f"endpoint={{url: '{server.url}', key_variable: DATABASE_PASSWORD}}"]
        assert arena("resume", run, "--iterations", "5", *again, "--trust", "--json").code == 0


def test_password_in_a_url_is_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "http://user:hunter2@127.0.0.1:9/v1"
    for option in ([], ["--endpoint", f"url={url}"]):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        line = get_refusal("eval", "endpoint:m", *KUHN, "--matches", "2", *option)
        assert "without a user, a password" in line and "hunter2" not in line
