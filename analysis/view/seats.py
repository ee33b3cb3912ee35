"""A person's seat in the page: a match played by a child of this process, which asks and is answered in JSON lines."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import IO, Any

from analysis.view.index import Index
from analysis.view.jobs import WHO
from arena.errors import ConfigError
from arena.plain import printable

RUNNING, LINES, LONGEST = 3, 5000, 4 * 10**6
"""Matches at a time, lines of one, and characters of a line."""
GAME = re.compile(r"(?!.*\.py)\w[\w:.()=, -]{0,63}", re.ASCII)


class Seat:
    """A child that plays a match, and all that it said."""

    def __init__(self, command: Sequence[str]) -> None:
        self.err: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 held as long as the match
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.err, text=True, encoding="utf-8"
        )
        self.lines: list[dict[str, Any]] = []
        Thread(target=self._read, daemon=True).start()

    def since(self, begin: int) -> dict[str, Any]:
        """Lines from a number on, and whether there will be more."""
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


class Seats:
    """All matches that people play in the page."""

    def __init__(self, arena: Sequence[str]) -> None:
        self.arena, self._seats = arena, dict[str, Seat]()

    def seat(self, id: str) -> Seat:
        """A match by its id; ConfigError where there is none."""
        if id not in self._seats:
            raise ConfigError("there is no such match: begin it again")
        return self._seats[id]

    def begin(self, arguments: Sequence[str]) -> str:
        """Begin a match by these arguments of `arena`; returns its id."""
        if not self.arena:
            raise ConfigError("nothing can be begun here: open the page with arena view")
        if sum(seat.child.poll() is None for seat in self._seats.values()) >= RUNNING:
            raise ConfigError(f"{RUNNING} matches are played already: end one of them")
        id = secrets.token_hex(8)
        self._seats[id] = Seat([*self.arena, *arguments])
        return id

    def from_match(self, index: Index, row: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
        """Take a seat of a logged match from a turn (from 0) on, against those who sat there."""
        turn, seat = asked.get("turn"), asked.get("seat")
        if type(turn) is not int or not 0 <= turn < len(row["turns"]):
            raise ConfigError(f"{row['id']} has turns 0 to {len(row['turns']) - 1}")
        if not isinstance(seat, str) or seat not in row["seats"]:
            raise ConfigError(f"{row['id']} has no such seat")
        path = str(index.reader.path)
        return self.begin(
            ["fork", f"--turn={turn + 1}", "-n1", f"--seat={seat}=human", "--lines", "--", path, row["id"]]
        )

    def new(self, asked: Mapping[str, Any], runs: Mapping[str, Index]) -> str:
        """Play a game from its deal: `game`, `place` (a number from 0), and `who` sits at the other place of two."""
        game, place, who = asked.get("game"), asked.get("place"), asked.get("who")
        if not isinstance(game, str) or not GAME.fullmatch(game):
            raise ConfigError("name a game of arena list games")
        if place not in (0, 1) or not isinstance(who, str):
            raise ConfigError("sit at place 0 or 1, and name who sits at the other")
        if who in runs:
            who = str(runs[who].reader.path)
        elif not WHO.fullmatch(who):
            raise ConfigError("name a policy, such as random, or a run of this page; files are for arena play")
        return self.begin(["play", f"--game={game}", f"--seat={place}=human", f"--seat={1 - place}={who}", "--lines"])

    def close(self) -> None:
        """End all children."""
        for seat in self._seats.values():
            if seat.child.poll() is None:
                seat.child.terminate()
