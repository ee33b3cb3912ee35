"""A run's turn feed: what happens in the matches in flight, written down as it happens, for those who look on.

It takes at most a hundredth of the run's time: where turns come faster than that allows, some of the matches that
begin are not followed. Nothing of the run depends on it, and where it fails it ends, not the run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from pydantic_core import to_json

from arena.plain import plain
from arena.play.match import MatchPlan
from arena.records import Turn, turn_row
from arena.rows import identity_row
from arena.store.feed import FeedWriter

EVERY = 0.25
"""Seconds from a turn to its place in the file, about."""
SHARE, WAITING = 0.01, 500
"""The share of the run's time that writing may take, and how many lines may wait: a few milliseconds' work."""
LONG, LONGEST = 20_000, 200_000
"""Characters of a line beyond which its texts are cut, and beyond which even so its match is not followed on."""
TEXT, ITEMS = 2000, 50
"""Characters of a text that is cut, and items of a list."""
_LOG = logging.getLogger(__name__)


class Feed:
    """Follows matches from their first turn on; `close` removes the file."""

    def __init__(self, run: Path) -> None:
        self._followed: dict[str, int] = {}
        """By match, its iteration."""
        self._waiting: list[tuple[str, MatchPlan | Turn]] = []
        self._over: list[str] = []
        self._clock: asyncio.TimerHandle | None = None
        self._begun, self._spent = perf_counter(), 0.0
        self._writer: FeedWriter | None = None
        with suppress(OSError):
            self._writer = FeedWriter(run)

    def turn(self, plan: MatchPlan, turn: Turn) -> None:
        """A turn was taken; it is written a moment later, when what it earned at once is known, too."""
        if turn.index == 0 and self._room():
            self._followed[plan.id] = plan.iteration
            self._waiting.append((plan.id, plan))
        if self._followed and plan.id in self._followed:
            self._waiting.append((plan.id, turn))
            self._soon()

    def ended(self, id: str) -> None:
        """A match ended, which is in the log from now on."""
        if self._followed and self._followed.pop(id, None) is not None:
            self._over.append(id)
            self._soon()

    def committed(self, iteration: int) -> None:
        """No match of it, or of an earlier one, is in flight any more but such as count for a later one."""
        for id in [id for id, own in self._followed.items() if own <= iteration]:
            self.ended(id)

    def close(self) -> None:
        """End the feed; later turns are not written."""
        if self._clock:
            self._clock.cancel()
        if self._writer:
            with suppress(OSError):
                self._writer.close()
        self._writer, self._clock = None, None

    def _room(self) -> bool:
        if self._writer is None or len(self._waiting) >= WAITING or self._writer.full():
            return False
        return self._spent < SHARE * (perf_counter() - self._begun)

    def _soon(self) -> None:
        if self._clock is None and self._writer:
            with suppress(RuntimeError):  # outside of a loop, such as after the last match: the next turn brings it
                self._clock = asyncio.get_running_loop().call_later(EVERY, self._write)

    def _write(self) -> None:
        begun = perf_counter()
        waiting, over = self._waiting, {*self._over}
        self._clock, self._waiting, self._over = None, [], []
        lines = list[tuple[str, str]]()
        for id, what in waiting:
            if id in over:  # the log has it
                continue
            if line := _line(id, what):
                lines.append((id, line))
            else:
                over.add(id)
                self._followed.pop(id, None)
        try:
            if self._writer:
                self._writer.write(lines, over)
        except OSError as error:
            _LOG.warning("the turn feed ends: %s", error)
            self.close()
        self._spent += perf_counter() - begun


def _line(id: str, what: MatchPlan | Turn) -> str:
    """One line as ASCII; "" for what no line has room for."""
    try:
        row = {"match": id} | ({"turn": turn_row(what)} if isinstance(what, Turn) else {"head": _head(what)})
        try:
            text = _text(row)
        except ValueError:  # half of a pair of surrogates, which no reader takes
            text = _text(plain(row, "turn", gaps=True))
        return text if len(text) <= LONG else _shortened(row)
    except (ValueError, TypeError, RecursionError):
        return ""


def _text(row: Any) -> str:
    return to_json(row, ensure_ascii=True, fallback=float).decode("ascii")


def _shortened(row: Mapping[str, Any]) -> str:
    text = _text(plain(_cut(row), "turn", gaps=True))
    return text if len(text) <= LONGEST else ""


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= TEXT else f"{value[:TEXT]} … ({len(value) - TEXT} characters more)"
    if isinstance(value, Mapping):
        return {name[:TEXT]: _cut(part) for name, part in [*value.items()][:ITEMS]}
    return [_cut(part) for part in value[-ITEMS:]] if isinstance(value, list | tuple) else value


def _head(plan: MatchPlan) -> dict[str, Any]:
    """Facts of a match that are known as it begins."""
    row = {name: value for name, value in identity_row(plan.identity).items() if name not in ("id", "deal", "attempt")}
    row |= {name: getattr(plan, name) for name in ("game", "seed", "group", "stage", "source")}
    row |= {"seats": {seat: vars(seating) for seat, seating in plan.seats.items()}}
    return row | {
        "options": plain(plan.options, "options"),
        "started": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
