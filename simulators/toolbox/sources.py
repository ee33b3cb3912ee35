"""Sources of tools, as configured in roles and recipes.

    tools: [calculator, tools.py:price, tools.py:Notebook, {mcp: python server.py, timeout: 5}]

A function is one tool. A class is instantiated for each match, and its public methods are tools with that match's
state. An MCP server is started for each match at its first call, unless it is `shared`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from games.adapters.loading import file_of, import_member
from games.base import to_one_line
from games.slow import offload
from simulators.confine.code import run_python
from simulators.toolbox.builtin import BUILT_IN
from simulators.toolbox.limits import Limits, ServerEnded
from simulators.toolbox.mcp_server import REFUSED, McpServer
from simulators.toolbox.schemas import build_shape
from simulators.tools import Content, Shape, Tool, type_hints

MAX_TOOLS = 64
"""Maximum number of tools of one source."""
Address = Annotated[str, Field(max_length=2_000)]


class ToolSource(BaseModel):
    """Source of tools for a seat: a `function` or an `mcp` server, and limits on its calls."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)

    function: Address | None = None
    """`calculator` or `python`, or path/to/file.py:name of a typed function, or of a class whose methods are tools."""
    mcp: Address | None = None
    """MCP server: a command, or a URL on this machine."""
    only: Annotated[list[str], Field(min_length=1)] | None = None
    """Names of the tools to provide; null provides all."""
    confined: bool = False
    """Whether the function runs in an isolated process without files and network. Its file must only need the standard
    library. Not for classes, whose state would be lost, nor for built-in tools."""
    shared: bool = False
    """Whether all matches share one MCP server, which then must not keep state."""
    timeout: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Seconds per attempt."""
    retries: Annotated[int, Field(ge=0, le=10)] = 0
    """Maximum number of retries after a timeout, or if the server ended."""
    at_once: Annotated[int, Field(ge=1, le=1000)] = 8
    """Maximum concurrent calls in a process."""

    @model_validator(mode="before")
    @classmethod
    def _accept_name(cls, data: Any) -> Any:
        return {"function": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        if (self.function is None) == (self.mcp is None):
            raise ValueError("give either a function or mcp")
        if (self.confined and self.mcp is not None) or (self.shared and self.mcp is None):
            raise ValueError("confined is for a function, shared for mcp")
        return self


class Toolset:
    """Tools of one source in one match, under the source's limits. A deep copy has independent state."""

    is_stateful = False
    """Whether the order of calls matters, so that they must not run at the same time."""

    def __init__(self, tools: Sequence[Tool], limits: Limits) -> None:
        self.limits, self.tools = limits, [limits.apply(tool) for tool in tools]

    def close(self) -> None:
        """Stop the processes that the tools started."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Toolset:
        return self


class _MethodToolset(Toolset):
    """Tools that are methods of an object, which holds the match's state."""

    is_stateful = True

    def __init__(self, state: Any, source: ToolSource, limits: Limits) -> None:
        self._state, self._source = state, source
        super().__init__(_list_method_tools(state, source), limits)

    def __deepcopy__(self, memo: dict[int, Any]) -> _MethodToolset:
        return _MethodToolset(copy.deepcopy(self._state, memo), self._source, self.limits)


class _ServerToolset(Toolset):
    """Tools of an MCP server that only this match uses, started at the first call.

    The server of a copy, or one restarted after a fault, first repeats all earlier calls to restore their state.
    """

    is_stateful = True

    def __init__(
        self, shapes: Sequence[Shape], source: ToolSource, limits: Limits, calls: Sequence[CallRecord] = ()
    ) -> None:
        self._shapes, self._source = shapes, source
        self._server = McpServer(str(source.mcp))
        self._calls, self._calls_to_repeat = list(calls), list(calls)
        super().__init__([Tool(shape, functools.partial(self._call, shape.name)) for shape in shapes], limits)

    def _call(self, name: str, /, **arguments: Any) -> Any:
        while self._calls_to_repeat:
            try:
                self._server.call(*self._calls_to_repeat.pop(0), self._source.timeout)
            except (ValueError, TimeoutError):
                continue  # it failed in the match, too
        try:
            result = self._server.call(name, arguments, self._source.timeout)
        except ServerEnded:
            self._calls_to_repeat = list(self._calls)
            raise
        except (ValueError, TimeoutError):
            self._calls.append((name, arguments))
            raise
        self._calls.append((name, arguments))
        return result

    def close(self) -> None:
        self._server.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> _ServerToolset:
        return _ServerToolset(self._shapes, self._source, self.limits, self._calls)


CallRecord = tuple[str, dict[str, Any]]
"""Name and arguments of a call."""


class ToolsetFactory(NamedTuple):
    """Factory of one source's toolsets, one per match."""

    names: tuple[str, ...]
    """Names of the tools."""
    open: Callable[[], Toolset]
    """Function that returns a match's toolset."""


def parse(value: Any) -> ToolSource:
    """Validate a source from a role or recipe and return it. Raises ValueError with the reason in one line."""
    try:
        return ToolSource.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = ".".join(map(str, first["loc"]))
        why = to_one_line(first["msg"].removeprefix("Value error, "))
        raise ValueError(f"tools: {name + ': ' if name else ''}{why}") from None


def make_factory(value: Any) -> ToolsetFactory:
    """Return the factory of a source's tools. Raises ValueError if the source is not usable.

    Factories are cached, so concurrency limits hold for all matches of the process, and a shared MCP server is started
    once.
    """
    source = parse(value)
    if source.mcp in REFUSED:
        raise ValueError(REFUSED[source.mcp])
    return _make_cached_factory(source.model_dump_json())


def may_show_images(value: Any) -> bool:
    """Return True for an MCP server, and if the function or a method of the class is annotated to return `Content`."""
    source = parse(value)
    if source.mcp is not None:
        return True
    found = _import_function(source)
    functions = _list_public_methods(found).values() if inspect.isclass(found) else [found]
    return any(type_hints(function).get("return") is Content for function in functions)


@functools.cache
def _make_cached_factory(text: str) -> ToolsetFactory:
    source = ToolSource.model_validate_json(text)
    slots = threading.Semaphore(source.at_once)
    if source.mcp is not None:
        return _make_server_factory(source, Limits(None, source.retries, slots))
    limits = Limits(source.timeout, source.retries, slots)
    found = _import_function(source)
    if source.confined and (inspect.isclass(found) or source.function in BUILT_IN):
        raise ValueError(f"tools: {source.function} cannot be confined: only a function in a file can")
    if inspect.isclass(found):
        methods = _list_method_tools(found(), source)  # raises for a method without types
        return _make_factory(methods, lambda: _MethodToolset(found(), source, limits))
    tool = Tool.of(found)
    toolset = Toolset(_select_tools([_confine(tool, source) if source.confined else tool], source), limits)
    return _make_factory(toolset.tools, lambda: toolset)


def _make_factory(tools: Sequence[Tool], open: Callable[[], Toolset]) -> ToolsetFactory:
    return ToolsetFactory(tuple(tool.name for tool in tools), open)


def _make_server_factory(source: ToolSource, limits: Limits) -> ToolsetFactory:
    address = to_one_line(str(source.mcp), 80)
    server = McpServer(str(source.mcp))
    try:
        listed = server.tools()
    except (ServerEnded, TimeoutError, ValueError) as error:
        raise ValueError(f"mcp: {address}: {error or 'it does not answer'}") from None
    finally:
        if not source.shared:
            server.close()
    if len(listed) > MAX_TOOLS:
        raise ValueError(f"mcp: {address} has {len(listed)} tools: at most {MAX_TOOLS}")

    def ask(name: str, /, **arguments: Any) -> Any:  # a parameter may be called name, too
        return server.call(name, arguments, source.timeout)

    shapes = [build_shape(tool.name, tool.description or "", tool.input_schema) for tool in listed]
    tools = _select_tools([Tool(shape, functools.partial(ask, shape.name)) for shape in shapes], source)
    if source.shared:
        shared = Toolset(tools, limits)
        return _make_factory(tools, lambda: shared)
    return _make_factory(tools, lambda: _ServerToolset([tool.shape for tool in tools], source, limits))


def _import_function(source: ToolSource) -> Any:
    """Import the source's function or class. Raises ValueError, with the nearest name, if there is none."""
    name = str(source.function)
    if name in BUILT_IN:
        return BUILT_IN[name]
    path = file_of(name)
    if path is None:
        known = ", ".join(BUILT_IN)
        raise ValueError(f"tools: unknown tool '{to_one_line(name, 80)}': {known}, or path/to/file.py:name")
    return import_member(path, name.rpartition(":")[2], _is_tool, "function or class", "functions and classes")


def _is_tool(thing: Any) -> bool:
    return inspect.isfunction(thing) or inspect.isclass(thing)


def _list_method_tools(state: Any, source: ToolSource) -> list[Tool]:
    """Return the public methods of an object as tools. Raises ValueError if there are none, or one has no types."""
    names = _list_public_methods(type(state))
    if not names:
        raise ValueError(f"tools: {source.function} has no public methods")
    return _select_tools([Tool.of(getattr(state, name)) for name in names], source)


def _list_public_methods(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: method for name, method in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def _select_tools(tools: list[Tool], source: ToolSource) -> list[Tool]:
    """Return the tools named in `source.only`, by default all. Raises ValueError for an unknown name."""
    if source.only is None:
        return tools
    by_name = {tool.name: tool for tool in tools}
    if missing := [name for name in source.only if name not in by_name]:
        raise ValueError(f"tools: there is no tool '{to_one_line(missing[0], 80)}': there are {', '.join(by_name)}")
    return [by_name[name] for name in source.only]


def _confine(tool: Tool, source: ToolSource) -> Tool:
    """Return a tool that runs its function's file in an isolated process."""
    path = Path(str(file_of(str(source.function))))
    code = f"{path.read_text('utf-8')}\nimport json as _j, sys as _s\n"
    code += f"_r = {tool.name}(**_j.load(_s.stdin))\nprint(_r if isinstance(_r, str) else _j.dumps(_r), end='')\n"

    def run(**arguments: Any) -> str:
        outcome = offload(run_python, code, seconds=source.timeout, stdin=json.dumps(arguments))
        if outcome.reason or outcome.stderr:
            raise ValueError((outcome.stderr.strip().splitlines() or [outcome.observation()])[-1])
        return str(outcome.stdout)

    return Tool(tool.shape, run)
