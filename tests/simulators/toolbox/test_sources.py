"""Sources of tools."""

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators.toolbox.mcp_server import McpServer
from simulators.toolbox.sources import Toolset, make_factory, parse
from simulators.tools import Call, run
from tests.factories import own_tools

FACTORIES = Path(__file__).parents[2] / "factories"
OWN = FACTORIES / "own_tools.py"
SERVER = f"{sys.executable} {FACTORIES / 'mcp_server.py'}"


def call_tool(toolset: Toolset, name: str, /, **arguments: Any) -> str:
    """Return the result of a call."""
    return run(toolset.tools, Call(name, arguments))


def test_a_function_is_one_tool_for_all_matches() -> None:
    factory = make_factory(f"{OWN}:double")
    assert call_tool(factory.open(), "double", number=21) == "42"
    assert factory.open() is copy.deepcopy(factory.open())


def test_an_async_function_is_awaited() -> None:
    assert call_tool(make_factory(f"{OWN}:later").open(), "later", text="now") == "now"


def test_a_class_has_the_state_of_one_match() -> None:
    factory = make_factory(f"{OWN}:Notebook")
    first, second = factory.open(), factory.open()
    assert call_tool(first, "note", text="a") == "1"
    twin = copy.deepcopy(first)
    assert [call_tool(first, "note", text="b"), call_tool(twin, "note", text="c"), call_tool(second, "read")] == [
        "2",
        "2",
        "[]",
    ]
    assert [call_tool(first, "read"), call_tool(twin, "read")] == ['["a","b"]', '["a","c"]']


def test_a_confined_function_sees_no_files() -> None:
    code = "import os\n\ndef where(path: str) -> bool:\n    'Tell if a file exists.'\n    return os.path.exists(path)\n"
    assert call_tool(write_and_open(code, "where", confined=False), "where", path="/etc/passwd") == "true"
    assert call_tool(write_and_open(code, "where", confined=True), "where", path="/etc/passwd") == "false"


def test_failing_confined_function_reports_its_error() -> None:
    code = "def fail() -> str:\n    'Fail.'\n    raise KeyError('gone')\n"
    assert call_tool(write_and_open(code, "fail", confined=True), "fail") == "Error: KeyError: 'gone'"


FOLDER: list[Path] = []


@pytest.fixture(autouse=True)
def set_folder(tmp_path: Path) -> None:
    FOLDER[:] = [tmp_path]


def write_and_open(code: str, name: str, **settings: Any) -> Toolset:
    path = FOLDER[0] / f"own{len(list(FOLDER[0].iterdir()))}.py"
    path.write_text(code)
    return make_factory({"function": f"{path}:{name}", **settings}).open()


def test_slow_call_is_retried() -> None:
    own_tools.attempts = 0
    patient, impatient = ({"function": f"{OWN}:flaky", "timeout": 0.3, "retries": retries} for retries in (1, 0))
    assert call_tool(make_factory(patient).open(), "flaky") == "at last"
    assert call_tool(make_factory(impatient).open(), "flaky") == "Error: flaky took too long."


def test_concurrent_calls_are_limited_across_matches() -> None:
    from concurrent.futures import ThreadPoolExecutor

    factory = make_factory({"function": f"{OWN}:crowded", "at_once": 2})
    with ThreadPoolExecutor(6) as pool:
        counts = list(pool.map(lambda _: int(call_tool(factory.open(), "crowded")), range(6)))
    assert max(counts) == 2


def test_each_match_has_its_own_server() -> None:
    factory = make_factory({"mcp": SERVER})
    first, second = factory.open(), factory.open()
    assert [call_tool(first, "count"), call_tool(first, "count"), call_tool(second, "count")] == ["1", "2", "1"]
    twin = copy.deepcopy(first)
    assert [call_tool(twin, "count"), call_tool(first, "count")] == ["3", "3"]
    for toolset in (first, second, twin):
        toolset.close()


def test_restarted_server_replays_the_earlier_calls() -> None:
    toolset = make_factory({"mcp": f"{SERVER} crash"}).open()
    assert [call_tool(toolset, "count"), call_tool(toolset, "act")] == ["1", "Error: act failed: its server ended"]
    assert call_tool(toolset, "count") == "2"
    toolset.close()


@pytest.mark.parametrize("shared", [False, True])
def test_parameters_of_a_server_may_have_any_name(shared: bool) -> None:
    toolset = make_factory({"mcp": SERVER, "shared": shared}).open()
    assert call_tool(toolset, "greet", name="Ann", self="me", arguments="none") == "arguments=none name=Ann self=me"
    assert call_tool(toolset, "greet", name="\ud800").startswith("Error: the arguments contain invalid characters")
    assert call_tool(toolset, "greet", name="Bo") == "name=Bo", "the server ended or was restarted"
    toolset.close()


def test_a_shared_server_is_one_for_all_matches() -> None:
    factory = make_factory({"mcp": SERVER, "shared": True, "only": ["count"]})
    first, second = factory.open(), factory.open()
    assert [call_tool(first, "count"), call_tool(second, "count")] == ["1", "2"]
    assert [tool.name for tool in first.tools] == ["count"]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("calculater", "unknown tool 'calculater'"),
        (f"{OWN}:dubble", "did you mean 'double'"),
        (f"{OWN}:Untyped", "annotate thing"),
        ({}, "give either a function or mcp"),
        ({"function": "calculator", "mcp": "x"}, "give either a function or mcp"),
        ({"function": "calculator", "shared": True}, "shared for mcp"),
        ({"function": "calculator", "timeout": 0}, "timeout"),
        ({"function": "calculator", "only": ["add"]}, "there is no tool 'add': there are calculator"),
        ({"mcp": SERVER, "only": ["sub"]}, "there is no tool 'sub': there are add, count, act, greet"),
        ({"mcp": "http://[::1/mcp"}, "is not a URL on this machine"),
        ({"mcp": "http://127.0.0.1:99999/mcp"}, "is not a URL on this machine"),
        ({"mcp": "x" * 200_000}, "mcp: "),
        ({"function": f"{OWN}:Notebook", "confined": True}, "cannot be confined: only a function in a file can"),
        ({"function": "python", "confined": True}, "cannot be confined"),
        ({"function": "calculator", "only": []}, "only"),
        ({"mcp": f"{SERVER} schema"}, "its list of tools is malformed"),
        ({"mcp": f"{SERVER} crash_at_start"}, "no shop today"),
        ({"tool": "calculator"}, "tools: tool: "),
        (7, "tools: "),
    ],
)
def test_refuses_invalid_sources_in_one_line(source: Any, text: str) -> None:
    with pytest.raises(ValueError) as raised:
        make_factory(source)
    assert text in str(raised.value) and "\n" not in str(raised.value)


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.lists(st.text(max_size=5))
KEYS = ("function", "mcp", "only", "confined", "shared", "timeout", "retries", "at_once")
NAMES = st.sampled_from(["calculator", "python", "x.py:y", "/dev/zero.py:x", f"{OWN}:double", f"{OWN}:Notebook"])


@given(VALUES | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), VALUES | NAMES, max_size=4))
def test_any_source_loads_or_is_refused_in_one_line(source: Any) -> None:
    try:
        parsed = parse(source)
        if parsed.mcp is None:
            assert make_factory(source).names
    except ValueError as error:
        assert str(error) and "\n" not in str(error) and len(str(error)) < 500


@given(st.text(max_size=30) | st.from_regex(r"https?://[a-z0-9.@:/\\\[\]#?%-]{0,40}", fullmatch=True))
def test_any_url_is_local_or_refused(address: str) -> None:
    try:
        McpServer(f"http://{address.removeprefix('http://')}")
    except ValueError as error:
        assert str(error).startswith("mcp: ")
        return
    import httpx2

    try:
        host = httpx2.URL(f"http://{address.removeprefix('http://')}").host
    except httpx2.InvalidURL:
        return
    assert host in ("localhost", "127.0.0.1", "::1"), "the client connects to another host"
