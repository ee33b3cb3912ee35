"""Writer of a run's turn feed: the turns of matches in progress, for live viewers (`arena.store.feed`).

Writing takes at most one hundredth of the run's time: if turns come faster, some new matches are left out. The run
does not depend on the feed, and an error ends only the feed.
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

from arena.plain import to_plain
from arena.play.match import MatchPlan
from arena.records import Turn, turn_to_row
from arena.rows import identity_to_row
from arena.store.feed import FeedWriter

WRITE_SECONDS = 0.25
"""Approximate seconds until a turn is written."""
MAX_TIME_SHARE, MAX_WAITING = 0.01, 500
"""Maximum share of the run's time for writing, and maximum waiting lines (a few milliseconds' work)."""
MAX_FULL_LINE, MAX_LINE = 20_000, 200_000
"""Characters of a line beyond which its texts are cut, and beyond which its match is dropped."""
MAX_TEXT, MAX_ITEMS = 2000, 50
"""Maximum characters of a cut text and items of a cut list."""
_LOG = logging.getLogger(__name__)


class Feed:
    """Writer of a run's turn feed. It follows a match from its first turn or, if the feed is busy then, not at all."""

    def __init__(self, run: Path) -> None:
        self._followed: dict[str, int] = {}
        """Iteration of each match in the feed, by match id."""
        self._waiting: list[tuple[str, MatchPlan | Turn]] = []
        self._ended: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._start, self._seconds_spent = perf_counter(), 0.0
        self._writer: FeedWriter | None = None
        with suppress(OSError):
            self._writer = FeedWriter(run)

    def add_turn(self, plan: MatchPlan, turn: Turn) -> None:
        """Queue a turn, with its rewards so far, to be written shortly after, if its match is in the feed."""
        if turn.index == 0 and self._has_room():
            self._followed[plan.id] = plan.iteration
            self._waiting.append((plan.id, plan))
        if self._followed and plan.id in self._followed:
            self._waiting.append((plan.id, turn))
            self._schedule_write()

    def end_match(self, id: str) -> None:
        """Remove a match from the feed after it has ended and is in the log."""
        if self._followed and self._followed.pop(id, None) is not None:
            self._ended.append(id)
            self._schedule_write()

    def end_iteration(self, iteration: int) -> None:
        """Remove all matches of this and earlier iterations from the feed, because they have ended."""
        for id in [id for id, its_iteration in self._followed.items() if its_iteration <= iteration]:
            self.end_match(id)

    def close(self) -> None:
        """Delete the feed's file, cancel the pending write and ignore later turns."""
        if self._timer:
            self._timer.cancel()
        if self._writer:
            with suppress(OSError):
                self._writer.close()
        self._writer, self._timer = None, None

    def _has_room(self) -> bool:
        if self._writer is None or len(self._waiting) >= MAX_WAITING or self._writer.is_full():
            return False
        return self._seconds_spent < MAX_TIME_SHARE * (perf_counter() - self._start)

    def _schedule_write(self) -> None:
        if self._timer is None and self._writer:
            with suppress(RuntimeError):  # no running loop, such as after the last match: the next turn schedules it
                self._timer = asyncio.get_running_loop().call_later(WRITE_SECONDS, self._write)

    def _write(self) -> None:
        start = perf_counter()
        waiting, ended = self._waiting, {*self._ended}
        self._timer, self._waiting, self._ended = None, [], []
        lines = list[tuple[str, str]]()
        for id, item in waiting:
            if id in ended:  # its turns are in the log
                continue
            if line := _encode_line(id, item):
                lines.append((id, line))
            else:
                ended.add(id)
                self._followed.pop(id, None)
        try:
            if self._writer:
                self._writer.write(lines, ended)
        except OSError as error:
            _LOG.warning("the turn feed ends: %s", error)
            self.close()
        self._seconds_spent += perf_counter() - start


def _encode_line(id: str, item: MatchPlan | Turn) -> str:
    """Return a match's head or turn as a line of ASCII JSON, with long texts shortened; "" if it is still too long."""
    try:
        row = {"match": id} | ({"turn": turn_to_row(item)} if isinstance(item, Turn) else {"head": _match_head(item)})
        try:
            text = _to_json(row)
        except ValueError:  # a lone surrogate, which is not valid UTF-8
            text = _to_json(to_plain(row, "turn", gaps=True))
        return text if len(text) <= MAX_FULL_LINE else _encode_shortened(row)
    except (ValueError, TypeError, RecursionError):
        return ""


def _to_json(row: Any) -> str:
    return to_json(row, ensure_ascii=True, fallback=float).decode("ascii")


def _encode_shortened(row: Mapping[str, Any]) -> str:
    text = _to_json(to_plain(_shorten(row), "turn", gaps=True))
    return text if len(text) <= MAX_LINE else ""


def _shorten(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]} … ({len(value) - MAX_TEXT} characters more)"
    if isinstance(value, Mapping):
        return {name[:MAX_TEXT]: _shorten(part) for name, part in [*value.items()][:MAX_ITEMS]}
    return [_shorten(part) for part in value[-MAX_ITEMS:]] if isinstance(value, list | tuple) else value


def _match_head(plan: MatchPlan) -> dict[str, Any]:
    """Return the settings of a starting match as JSON: identity, game, seed, options, seats and the current time."""
    row = {
        name: value for name, value in identity_to_row(plan.identity).items() if name not in ("id", "deal", "attempt")
    }
    row |= {name: getattr(plan, name) for name in ("game", "seed", "group", "stage", "source")}
    row |= {"seats": {seat: vars(seating) for seat, seating in plan.seats.items()}}
    return row | {
        "options": to_plain(plan.options, "options"),
        "started": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
