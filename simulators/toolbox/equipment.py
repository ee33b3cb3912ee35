"""Games whose seats have tools beyond the game's own.

    game = equip(games.make("nim"), {"first": ["calculator", {"mcp": "python server.py"}]})

A reply that calls such a tool is a turn of its own: the tool's result is the seat's next observation, the game does not
change, and the other seats learn nothing. The calls of a reply run at the same time, unless their order matters.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Self, cast

from games.abilities import Blocking, Pictures
from games.base import IllegalAct, TextGame
from games.contracts import TOOL, Image
from games.pictures import read_header
from simulators.toolbox.sources import Toolset, ToolsetFactory, make_factory, may_show_images
from simulators.tools import Call, Content, Tool, describe, read_calls, run_with_pictures

CALL_TURNS = 8
"""Maximum number of consecutive replies with calls. A further one is an illegal act, so no seat can call forever."""
FACT = "tools"
"""Name of the private fact that describes a seat's tools."""


def equip(game: TextGame, tools: Mapping[str, Sequence[Any]]) -> TextGame:
    """Give seats of a game the tools of these sources, by seat, and return the game. Call it before the first reset.

    Raises ValueError, with the reason in one line, for an unknown seat, an unusable source, and two tools of one name.
    A tool named like one of the game's own is refused at the first reset, because games define their tools there.
    """
    for seat, sources in tools.items():
        if seat not in game.possible_agents:
            raise ValueError(f"tools: there is no seat '{seat}': there are {', '.join(game.possible_agents)}")
        if not isinstance(sources, list | tuple):
            raise ValueError(f"tools: give the tools of {seat} as a list")
    factories = {seat: [make_factory(source) for source in sources] for seat, sources in tools.items()}
    for seat, of_seat in factories.items():
        _require_distinct(seat, [name for factory in of_seat for name in factory.names])
    cast(EquippedGame, game).waits = not (isinstance(game, Blocking) and game.blocks)
    shows_images = any(may_show_images(source) for sources in tools.values() for source in sources)
    game.__class__ = _make_equipped_class(cast(Any, type(game)), shows_images or isinstance(game, Pictures))
    cast(EquippedGame, game).factories = factories
    return game


def _require_distinct(seat: str, names: Sequence[str]) -> None:
    if duplicate := next((name for name in names if names.count(name) > 1), ""):
        raise ValueError(f"tools: {seat} has two tools called {duplicate}")


@functools.cache
def _make_equipped_class(kind: Any, shows_images: bool) -> type[TextGame]:
    """Return the subclass of a game's class whose seats may have tools."""
    mixin = EquippedGameWithPictures if shows_images else EquippedGame
    return type(kind.__name__, (mixin, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})


class EquippedGame(TextGame):
    """Mixin for games whose seats have tools; `equip` puts it before the game's class."""

    blocks = True  # while tools run
    waits: bool
    """Whether steps block only because of tools, not because of the game itself."""
    factories: Mapping[str, Sequence[ToolsetFactory]]
    """Factories of the seats' tools."""

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start a match with new tools, without the state of the last match."""
        self.close()
        self._toolsets = {seat: [factory.open() for factory in factories] for seat, factories in self.factories.items()}
        self._closing = weakref.finalize(self, _close, self._toolsets)
        self._in_a_row, self._calls, self._errors = dict.fromkeys(self.seats, 0), 0, 0
        self._has_game_tools: dict[str, bool] = {}
        self._pictures: dict[str, bytes] = {}
        super().reset(seed, options)
        for seat in self._toolsets:
            _require_distinct(seat, [tool["function"]["name"] for tool in self._definitions[seat]])

    def definitions(self, seat: str) -> Sequence[Mapping[str, Any]]:
        """Return the definitions of the game's own tools and of those that `equip` gave."""
        game_tools = super().definitions(seat)
        self._has_game_tools[seat] = bool(game_tools)
        return [*game_tools, *(tool.definition for tool in self._tools(seat))]

    def private(self, seat: str) -> dict[str, Any]:
        """Return the game's private facts and, for a seat with tools, `tools`, which describes them."""
        facts, tools = super().private(seat), self._tools(seat)
        return {**facts, FACT: describe(tools)} if tools else facts

    def figures(self) -> dict[str, float | bool | str]:
        """Return the game's figures, and `seat_tool_calls` and `seat_tool_errors`, the numbers of (failed) calls."""
        return {**super().figures(), "seat_tool_calls": self._calls, "seat_tool_errors": self._errors}

    def close(self) -> None:
        """Stop the processes of the match's tools."""
        if hasattr(self, "_closing"):
            self._closing()
        super().close()

    def clone(self) -> Self:
        """Return an independent copy of the running match, with copies of its tools."""
        twin = copy.deepcopy(self)
        if hasattr(twin, "_toolsets"):  # the match has been dealt
            twin._closing = weakref.finalize(twin, _close, twin._toolsets)
        return twin

    def _tools(self, seat: str) -> list[Tool]:
        return [tool for toolset in self._toolsets.get(seat, ()) for tool in toolset.tools]

    def _apply(self, seat: str, action: str | None) -> None:
        calls = self._find_calls(seat, action)
        if not calls:
            super()._apply(seat, action)
            self._in_a_row[seat] = 0
            return
        if self._in_a_row[seat] == CALL_TURNS:
            raise IllegalAct(f"after {CALL_TURNS} replies with tool calls, an act is due")
        self._in_a_row[seat] += 1
        self._valid[seat], self._has_retried = True, False
        for call, content in zip(calls, self._run(seat, calls), strict=True):
            self._calls += 1
            self._errors += content.text.startswith("Error:")
            self._transcript.append(f"{seat}: (calls {call.name})")
            self._show(seat, content)

    def _find_calls(self, seat: str, action: str | None) -> list[Call]:
        """Return an act's calls of tools that `equip` gave; [] for acts and calls that the game itself handles."""
        tools = self._tools(seat)
        if not tools or not isinstance(action, str):
            return []
        calls = read_calls(action)
        if self._has_game_tools[seat]:  # calls of other tools, and unreadable ones, are the game's
            names = {tool.name for tool in tools}
            return calls if all(call.name in names for call in calls) else []
        return calls

    def _run(self, seat: str, calls: Sequence[Call]) -> list[Content]:
        """Run calls and return their results in order. Calls run concurrently unless one of their tools has state."""
        tools, names = self._tools(seat), {call.name for call in calls}
        stateful = {tool.name for toolset in self._toolsets[seat] if toolset.is_stateful for tool in toolset.tools}
        if len(calls) == 1 or names & stateful:
            return [run_with_pictures(tools, call) for call in calls]
        with ThreadPoolExecutor(len(calls), "arena-tools") as pool:
            running = [pool.submit(copy_context().run, run_with_pictures, tools, call) for call in calls]
            return [future.result() for future in running]

    def _show(self, seat: str, content: Content) -> None:
        """Tell the seat a result with its images. An unreadable picture file becomes an error text."""
        images, text = [], content.text
        for data in content.pictures:
            try:
                media, (width, height) = read_header(data)
            except ValueError as why:
                text = f"{text}\nError: {why}".strip()
                continue
            key = hashlib.sha256(data).hexdigest()
            self._pictures[key] = data
            images.append(Image(key, media, width, height))
        self.tell(text or ("" if images else "(no result)"), seat, sender=TOOL, images=images)


class EquippedGameWithPictures(EquippedGame):
    """Mixin for games whose seats have tools that may show images, or that show images themselves."""

    def picture(self, hash: str) -> bytes:
        """Return the bytes of an image that a tool or the game showed. Raises KeyError for an unknown hash."""
        read_game_picture = getattr(super(), "picture", None)
        if hash in self._pictures or read_game_picture is None:
            return self._pictures[hash]
        return bytes(read_game_picture(hash))


def _close(toolsets: Mapping[str, Sequence[Toolset]]) -> None:
    for of_seat in toolsets.values():
        for toolset in of_seat:
            toolset.close()
