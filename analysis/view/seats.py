"""Matches with a human player: a child process plays the match and exchanges JSON lines with the page."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import tempfile
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from threading import Lock, Thread
from time import monotonic
from typing import IO, Any

from analysis.view.index import Index
from analysis.view.jobs import POLICY_NAME
from analysis.view.requests import NewMatchPost, PlayOnPost
from arena.errors import ConfigError, StoreError
from arena.plain import printable
from arena.store.blobs import verify_blob

MAX_RUNNING, MAX_STORED, MAX_LINES, MAX_LINE_CHARACTERS = 3, 20, 5000, 4 * 10**6
"""Maximum number of concurrent matches, of stored matches, of a match's output lines, and of characters per line."""
MAX_IMAGES = 50
"""Maximum number of images stored per match."""
REQUEST_TIMEOUT = 150.0
"""Seconds without a request after which a match ends. Browsers let hidden pages send one per minute."""
RELOAD_SECONDS = 10.0
"""Seconds until a match ends after its page is left, unless the page is reloaded."""
GRACE_SECONDS = 15.0
"""Seconds from a child's SIGTERM until it may be killed."""
GAME_NAME = re.compile(r"(?!.*\.py)\w[\w:.()=, -]{0,63}", re.ASCII)


class Seat:
    """Child process that plays a match with a human player, and its output so far: `lines`, JSON objects."""

    def __init__(self, title: str, command: Sequence[str], patience: float = REQUEST_TIMEOUT) -> None:
        """Start the child. The match ends if the page's first request does not arrive within `patience` seconds."""
        self.title = title
        self._expires, self._killed = monotonic() + patience, inf
        self.err: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 open as long as the match
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.err, text=True, encoding="utf-8"
        )
        self.lines: list[dict[str, Any]] = []
        self.images: dict[str, bytes] = {}
        """Images that the person was shown, by hash."""
        Thread(target=self._read, daemon=True).start()

    def is_running(self) -> bool:
        """Return True while the child process runs."""
        return self.child.poll() is None

    def is_over(self) -> bool:
        """Return True if the page sent no request in time or the match was ended."""
        return monotonic() > self._expires or self._killed < inf

    def expire(self, seconds: float) -> None:
        """End the match in `seconds`, unless its page sends a request before then."""
        self._expires = min(self._expires, monotonic() + seconds)

    def end(self) -> None:
        """Terminate the child. A later call kills it if it still runs after `GRACE_SECONDS` seconds."""
        if self.is_running() and self._killed == inf:
            self.child.terminate()
            self._killed = monotonic() + GRACE_SECONDS
        elif monotonic() > self._killed:
            self.child.kill()

    def read_since(self, begin: int) -> dict[str, Any]:
        """Return the output `lines` from index `begin` on, and `open`: whether the child still runs.

        If the child failed before the match's end, `error` says why. Restarts the timeout of `REQUEST_TIMEOUT`.
        """
        self._expires = monotonic() + REQUEST_TIMEOUT
        code = self.child.poll()
        error = ""
        if code and not any("end" in line for line in self.lines):
            self.err.seek(0)
            error_lines = self.err.read(10**6).decode("utf-8", "replace").strip().splitlines()
            error = printable(error_lines[-1].removeprefix("arena: ")) if error_lines else f"it ended with code {code}"
        return {"lines": self.lines[begin:], "open": code is None, **({"error": error} if error else {})}

    def answer(self, act: str, talk: str) -> None:
        """Send the human player's action and speech to the child. Raises ConfigError if the match is over."""
        assert self.child.stdin is not None
        try:
            self.child.stdin.write(json.dumps({"act": act, "talk": talk}) + "\n")
            self.child.stdin.flush()
        except (OSError, ValueError):
            raise ConfigError("the match is over") from None

    def _read(self) -> None:
        assert self.child.stdout is not None
        while (line := self.child.stdout.readline(MAX_LINE_CHARACTERS)) and len(self.lines) < MAX_LINES:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict) and isinstance(value.get("image"), str):
                self._keep_image(value["image"], value.get("data"))
            elif isinstance(value, dict):
                self.lines.append(value)
        if line:
            self.end()  # more output than any match produces

    def _keep_image(self, name: str, data: Any) -> None:
        """Store an image if it matches its hash, and drop the oldest beyond `MAX_IMAGES`."""
        with suppress(ValueError, TypeError, StoreError):
            self.images[name] = verify_blob(name, b64decode(data, validate=True))
            while len(self.images) > MAX_IMAGES:
                self.images.pop(next(iter(self.images)))


class Seats:
    """Matches with human players, by id. `begin` starts one, `sweep` ends those whose pages are gone."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command, self._seats, self._lock = command, dict[str, Seat](), Lock()

    def seat(self, id: str) -> Seat:
        """Return the match with this id. Raises ConfigError for an unknown id."""
        if (seat := self._seats.get(id)) is None:
            raise ConfigError("unknown match: start it again")
        return seat

    def list_running(self) -> list[dict[str, str]]:
        """Return `id` and `title` of the running matches, oldest first."""
        return [{"id": id, "title": seat.title} for id, seat in self._seats.copy().items() if seat.is_running()]

    def begin(self, title: str, arguments: Sequence[str], patience: float = REQUEST_TIMEOUT) -> str:
        """Start a match by the command `arena` with these arguments, and return its id.

        Raises ConfigError if too many are running, or if no process may be started. `patience` is as for `Seat`.
        """
        if not self.command:
            raise ConfigError("no process can be started here: open the page with arena view")
        self.sweep()
        with self._lock:
            if len(self.list_running()) >= MAX_RUNNING:
                raise ConfigError(f"{MAX_RUNNING} matches are running: end one of them")
            id = secrets.token_hex(8)
            self._seats[id] = Seat(title, [*self.command, *arguments], patience)
        return id

    def sweep(self) -> None:
        """End matches whose pages are gone, and drop the oldest ended ones if more than `MAX_STORED` are stored."""
        with self._lock:
            for seat in self._seats.values():
                if seat.is_over():
                    seat.end()
            ended_seats = [id for id, seat in self._seats.items() if not seat.is_running()]
            for id in ended_seats[: max(0, len(self._seats) - MAX_STORED)]:
                self._seats.pop(id).err.close()

    def take_over(self, index: Index, row: Mapping[str, Any], request: PlayOnPost) -> str:
        """Let a human take over a seat of the logged match `row` from a turn (from 0) on. Return the new match's id.

        Raises ConfigError for an unknown turn or seat, and as `begin` does.
        """
        if request.turn >= len(row["turns"]):
            raise ConfigError(f"{row['id']} has turns 0 to {len(row['turns']) - 1}")
        if request.seat not in row["seats"]:
            raise ConfigError(f"{row['id']} does not have this seat")
        path, title = str(index.reader.path), f"{row['id']} from turn {request.turn + 1} as {request.seat}"
        return self.begin(
            title,
            [
                "fork",
                f"--turn={request.turn + 1}",
                "-n1",
                f"--seat={request.seat}=human",
                "--lines",
                "--",
                path,
                row["id"],
            ],
        )

    def start_new(self, request: NewMatchPost, runs: Mapping[str, Index]) -> str:
        """Start a new game of two seats between a human and a policy or a run, and return its id.

        Raises ConfigError for an invalid name of the game or policy, and as `begin` does.
        """
        if not GAME_NAME.fullmatch(request.game):
            raise ConfigError("name a game from arena list games")
        opponent, human_seat = request.who, request.place
        if opponent in runs:
            opponent = str(runs[opponent].reader.path)
        elif not POLICY_NAME.fullmatch(opponent):
            raise ConfigError("name a policy, such as random, or a run on this page; for files use arena play")
        return self.begin(
            f"{request.game} against {request.who}",
            [
                "play",
                f"--game={request.game}",
                f"--seat={human_seat}=human",
                f"--seat={1 - human_seat}={opponent}",
                "--lines",
            ],
        )

    def close(self) -> None:
        """Terminate the processes of all matches."""
        for seat in self._seats.values():
            seat.end()
