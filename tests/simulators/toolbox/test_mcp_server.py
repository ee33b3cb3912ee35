"""Connections to MCP servers, and their faults."""

import resource
import sys
import time
from collections.abc import Iterator

import pytest

from simulators.toolbox import mcp_server, stdio
from simulators.toolbox.limits import ServerEnded
from simulators.toolbox.mcp_server import REFUSED, McpServer
from tests.factories.mcp_children import SERVER, count_servers


def connect(fault: str = "") -> McpServer:
    """Return a connection to a server with this fault."""
    return McpServer(f"{sys.executable} {SERVER} {fault}")


@pytest.fixture(autouse=True)
def check_no_children_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(mcp_server, "START_SECONDS", 20.0)
    yield
    deadline = time.monotonic() + 20
    while count_servers() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not count_servers()


def test_a_server_starts_at_the_first_request_and_keeps_its_state() -> None:
    server = connect()
    assert not count_servers()
    assert [tool.name for tool in server.tools()] == ["add", "count", "act", "greet"]
    assert server.call("add", {"a": 2, "b": 3}, 5).text == "5"
    assert [server.call("count", {}, 5).text for _ in range(3)] == ["1", "2", "3"]
    assert count_servers() == 1
    server.close()
    assert server.call("count", {}, 5).text == "1"  # another server
    server.close()


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        ("crash_at_start", ServerEnded, "its server does not start: no shop today"),
        ("crash", ServerEnded, "its server ended"),
        ("hang", TimeoutError, ""),
        ("malformed", ValueError, "its server's answer is malformed"),
        ("error", ValueError, "out of order"),
    ],
)
def test_faults_of_a_call_are_exceptions(fault: str, error: type[Exception], text: str) -> None:
    server = connect(fault)
    with pytest.raises(error) as raised:
        server.call("act", {}, 0.5)
    assert str(raised.value) == text
    server.close()


def test_an_endless_message_ends_its_connection_and_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "MAX_MESSAGE_BYTES", 2 << 20)
    before, server = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, connect("endless")
    with pytest.raises(ServerEnded):
        server.call("act", {}, 60)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 << 10
    assert server.call("count", {}, 20).text == "1", "the next server fails"
    server.close()


def test_standard_error_is_bounded() -> None:
    before, server = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, connect("shouting")
    assert server.call("act", {}, 60).text == "fine"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 << 10
    server.close()


def test_server_ends_with_its_children() -> None:
    server = connect("child")
    assert server.call("act", {}, 20).text == "fine"
    assert count_servers() == 2
    server.close()  # the fixture waits until both have ended


@pytest.mark.parametrize("fault", ["garbage", "slow", "stubborn"])
def test_noise_and_slow_start_are_tolerated(fault: str) -> None:
    server = connect(fault)
    assert server.call("act", {}, 5).text == "fine"
    server.close()


def test_silent_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "START_SECONDS", 0.5)
    with pytest.raises(ServerEnded, match=r"does not start: no answer in 0\.5 s"):
        connect("silent").tools()


def test_a_hanging_call_leaves_the_server_usable() -> None:
    server = connect("hang")
    with pytest.raises(TimeoutError):
        server.call("act", {}, 0.2)
    server.close()


def test_an_ended_server_is_started_again() -> None:
    server = connect("crash")
    for _ in range(3):
        assert server.call("add", {"a": 1}, 5).text == "2"
        with pytest.raises(ServerEnded):
            server.call("act", {}, 5)
    server.close()


def test_pictures_arrive_as_bytes() -> None:
    server = connect("picture")
    content = server.call("act", {}, 5)
    assert content.text == "" and content.pictures[0].startswith(b"\x89PNG")
    server.close()


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("", "name a command"),
        ("python 'x", "cannot be read as a command"),
        ("http://example.com/mcp", "is not a URL on this machine"),
        ("ftp://127.0.0.1/mcp", "is not a URL on this machine"),
        ("http://127.0.0.1.example.com/mcp", "is not a URL on this machine"),
    ],
)
def test_other_addresses_are_refused(address: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        McpServer(address)


def test_missing_program_is_named() -> None:
    with pytest.raises(ServerEnded, match="no-such-program"):
        McpServer("no-such-program").tools()


def test_refused_addresses_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REFUSED, "python x.py", "runs/1 would ask it")
    with pytest.raises(ValueError, match="runs/1 would ask it"):
        McpServer("python x.py")
