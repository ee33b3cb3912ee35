"""A person's seat in the page: a match played by a child of this process, which asks and is answered in JSON lines."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from math import inf
from threading import Lock, Thread
from time import monotonic
from typing import IO, Any

from analysis.view.index import Index
from analysis.view.jobs import WHO
from analysis.view.posted import NewMatchPost, PlayOnPost
from arena.errors import ConfigError
from arena.plain import printable

RUNNING, KEPT, LINES, LONGEST = 3, 20, 5000, 4 * 10**6
"""Matches at a time, matches that are kept, lines of one, and characters of a line."""
SILENT = 150.0
"""Seconds after which a match ends whose page asks no more; browsers let hidden pages ask once a minute."""
LEFT = 10.0
"""Seconds after which it ends when its page was left: a page that is loaded again asks earlier."""
GRACE = 15.0
"""Seconds that a child has to end when it is asked to."""
GAME = re.compile(r"(?!.*\.py)\w[\w:.()=, -]{0,63}", re.ASCII)


class Seat:
    """A child that plays a match, and all that it said."""

    def __init__(self, title: str, command: Sequence[str], patience: float = SILENT) -> None:
        """`patience`: seconds until the page has to ask for the first time."""
        self.title = title
        self._expires, self._killed = monotonic() + patience, inf
        self.err: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 held as long as the match
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.err, text=True, encoding="utf-8"
        )
        self.lines: list[dict[str, Any]] = []
        Thread(target=self._read, daemon=True).start()

    def is_running(self) -> bool:
        """Return True while the match is played."""
        return self.child.poll() is None

    def is_over(self) -> bool:
        """Return True if its page is gone, or somebody ended it."""
        return monotonic() > self._expires or self._killed < inf

    def expire(self, seconds: float) -> None:
        """Let the match be abandoned in so many seconds, unless its page asks again."""
        self._expires = min(self._expires, monotonic() + seconds)

    def end(self) -> None:
        """End the child: asked again, by force when it had the time to end by itself."""
        if self.is_running() and self._killed == inf:
            self.child.terminate()
            self._killed = monotonic() + GRACE
        elif monotonic() > self._killed:
            self.child.kill()

    def since(self, begin: int) -> dict[str, Any]:
        """Lines from a number on, and whether there will be more; its page is there."""
        self._expires = monotonic() + SILENT
        code = self.child.poll()
        error = ""
        if code and not any("end" in line for line in self.lines):
            self.err.seek(0)
            said = self.err.read(10**6).decode("utf-8", "replace").strip().splitlines()
            error = printable(said[-1].removeprefix("arena: ")) if said else f"it ended with code {code}"
        return {"lines": self.lines[begin:], "open": code is None, **({"error": error} if error else {})}

    def answer(self, act: str, talk: str) -> None:
        """Say what the person does; ConfigError where nobody asks any more."""
        assert self.child.stdin is not None
        try:
            self.child.stdin.write(json.dumps({"act": act, "talk": talk}) + "\n")
            self.child.stdin.flush()
        except (OSError, ValueError):
            raise ConfigError("the match is over") from None

    def _read(self) -> None:
        assert self.child.stdout is not None
        while (line := self.child.stdout.readline(LONGEST)) and len(self.lines) < LINES:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                self.lines.append(value)
        if line:
            self.end()  # it says more than any match does


class Seats:
    """All matches that people play in the page."""

    def __init__(self, arena: Sequence[str]) -> None:
        self.arena, self._seats, self._lock = arena, dict[str, Seat](), Lock()

    def seat(self, id: str) -> Seat:
        """Return a match by its id. Raises ConfigError if there is none."""
        if (seat := self._seats.get(id)) is None:
            raise ConfigError("there is no such match: begin it again")
        return seat

    def running(self) -> list[dict[str, str]]:
        """Return the matches that are played, oldest first."""
        return [{"id": id, "title": seat.title} for id, seat in self._seats.copy().items() if seat.is_running()]

    def begin(self, title: str, arguments: Sequence[str], patience: float = SILENT) -> str:
        """Begin a match by these arguments of `arena`; returns its id."""
        if not self.arena:
            raise ConfigError("nothing can be begun here: open the page with arena view")
        self.sweep()
        with self._lock:
            if len(self.running()) >= RUNNING:
                raise ConfigError(f"{RUNNING} matches are played already: end one of them")
            id = secrets.token_hex(8)
            self._seats[id] = Seat(title, [*self.arena, *arguments], patience)
        return id

    def sweep(self) -> None:
        """End the matches whose pages are gone, and forget the oldest of those that ended."""
        with self._lock:
            for seat in self._seats.values():
                if seat.is_over():
                    seat.end()
            ended = [id for id, seat in self._seats.items() if not seat.is_running()]
            for id in ended[: max(0, len(self._seats) - KEPT)]:
                self._seats.pop(id).err.close()

    def from_match(self, index: Index, row: Mapping[str, Any], asked: PlayOnPost) -> str:
        """Take a seat of a logged match from a turn (from 0) on, against those who sat there."""
        if asked.turn >= len(row["turns"]):
            raise ConfigError(f"{row['id']} has turns 0 to {len(row['turns']) - 1}")
        if asked.seat not in row["seats"]:
            raise ConfigError(f"{row['id']} has no such seat")
        path, title = str(index.reader.path), f"{row['id']} from turn {asked.turn + 1} as {asked.seat}"
        return self.begin(
            title,
            ["fork", f"--turn={asked.turn + 1}", "-n1", f"--seat={asked.seat}=human", "--lines", "--", path, row["id"]],
        )

    def new(self, asked: NewMatchPost, runs: Mapping[str, Index]) -> str:
        """Play a game of two from its deal."""
        if not GAME.fullmatch(asked.game):
            raise ConfigError("name a game of arena list games")
        who, place = asked.who, asked.place
        if who in runs:
            who = str(runs[who].reader.path)
        elif not WHO.fullmatch(who):
            raise ConfigError("name a policy, such as random, or a run of this page; files are for arena play")
        return self.begin(
            f"{asked.game} against {asked.who}",
            ["play", f"--game={asked.game}", f"--seat={place}=human", f"--seat={1 - place}={who}", "--lines"],
        )

    def close(self) -> None:
        """End all children."""
        for seat in self._seats.values():
            seat.end()
