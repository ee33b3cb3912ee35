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


def server(fault: str = "") -> McpServer:
    """Return a connection to a server with this fault."""
    return McpServer(f"{sys.executable} {SERVER} {fault}")


@pytest.fixture(autouse=True)
def _leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(mcp_server, "START_SECONDS", 20.0)
    yield
    deadline = time.monotonic() + 20
    while count_servers() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not count_servers()


def test_a_server_starts_at_the_first_request_and_keeps_its_state() -> None:
    shop = server()
    assert not count_servers()
    assert [tool.name for tool in shop.tools()] == ["add", "count", "act", "greet"]
    assert shop.call("add", {"a": 2, "b": 3}, 5).text == "5"
    assert [shop.call("count", {}, 5).text for _ in range(3)] == ["1", "2", "3"]
    assert count_servers() == 1
    shop.close()
    assert shop.call("count", {}, 5).text == "1"  # another server
    shop.close()


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
    shop = server(fault)
    with pytest.raises(error) as raised:
        shop.call("act", {}, 0.5)
    assert str(raised.value) == text
    shop.close()


def test_an_endless_message_ends_its_connection_and_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "MAX_MESSAGE_BYTES", 2 << 20)
    before, shop = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, server("endless")
    with pytest.raises(ServerEnded):
        shop.call("act", {}, 60)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 << 10
    assert shop.call("count", {}, 20).text == "1", "another server answers"
    shop.close()


def test_of_standard_error_only_the_end_is_kept() -> None:
    before, shop = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, server("shouting")
    assert shop.call("act", {}, 60).text == "fine"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 << 10
    shop.close()


def test_what_a_server_starts_ends_with_it() -> None:
    shop = server("child")
    assert shop.call("act", {}, 20).text == "fine"
    assert count_servers() == 2
    shop.close()  # the fixture waits until neither runs


@pytest.mark.parametrize("fault", ["garbage", "slow", "stubborn"])
def test_noise_and_a_slow_start_do_no_harm(fault: str) -> None:
    shop = server(fault)
    assert shop.call("act", {}, 5).text == "fine"
    shop.close()


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "START_SECONDS", 0.5)
    with pytest.raises(ServerEnded, match=r"does not start: no answer in 0\.5 s"):
        server("silent").tools()


def test_a_hanging_call_leaves_the_server_usable() -> None:
    shop = server("hang")
    with pytest.raises(TimeoutError):
        shop.call("act", {}, 0.2)
    shop.close()


def test_an_ended_server_is_started_again() -> None:
    shop = server("crash")
    for _ in range(3):
        assert shop.call("add", {"a": 1}, 5).text == "2"
        with pytest.raises(ServerEnded):
            shop.call("act", {}, 5)
    shop.close()


def test_pictures_arrive_as_bytes() -> None:
    shop = server("picture")
    content = shop.call("act", {}, 5)
    assert content.text == "" and content.pictures[0].startswith(b"\x89PNG")
    shop.close()


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


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(ServerEnded, match="no-such-program"):
        McpServer("no-such-program").tools()


def test_refused_addresses_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REFUSED, "python x.py", "runs/1 would ask it")
    with pytest.raises(ValueError, match="runs/1 would ask it"):
        McpServer("python x.py")
