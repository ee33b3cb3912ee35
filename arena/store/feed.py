"""Turn feed: the file `feed.jsonl` of a run, with the turns of the matches in progress, for live viewers.

No other part of a run depends on it, so it is never synced to disk. A full file is rewritten without the ended matches,
and the file is removed when the run ends. Each line is JSON with a match's id: first its `head`, then one line per
`turn`, then `over`. The first line is a random name, by which readers notice that the file was replaced.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel, ConfigDict, ValidationError

from arena.store.files import TEMPORARY, write_all
from games.plain_files import open_plain

FEED, PLAYING = "feed.jsonl", "playing"
MAX_BYTES = 8 * 10**6
"""Maximum bytes of the file. Matches in progress may use half of it."""
MAX_LINE = 10**6
"""Maximum bytes of a line to read."""
MAX_MATCHES, MAX_SPEECH = 4096, 300
"""Maximum matches to read, and characters of the last speech."""


class FeedWriter:
    """Writer of a run's turn feed, for viewers of matches in progress. Its methods raise OSError if the disk fails."""

    def __init__(self, run: Path) -> None:
        self.path = run / FEED
        self._lines: dict[str, list[bytes]] = {}
        self._size = self._written_bytes = 0
        self._file = -1
        self.close()  # removes the file of a killed process

    def is_full(self) -> bool:
        """Return True if no match should be added: above a quarter of `MAX_BYTES`, or from half of `MAX_MATCHES` on."""
        return self._size > MAX_BYTES // 4 or len(self._lines) >= MAX_MATCHES // 2

    def write(self, lines: Iterable[tuple[str, str]], over: Collection[str] = ()) -> None:
        """Append lines (match id, JSON object as ASCII text), and drop the ended matches in `over` from the feed.

        A match is also dropped if its lines take the feed beyond half of `MAX_BYTES` bytes. A full file is rewritten
        without dropped matches.
        """
        new = list[bytes]()
        for match, text in lines:
            line = f"{text}\n".encode("ascii")
            self._lines.setdefault(match, []).append(line)
            self._size += len(line)
            new.append(line)
            if self._size > MAX_BYTES // 2:
                self._drop(match, new)
        for match in over:
            self._drop(match, new)
        data = b"".join(new)
        if self._file < 0 or self._written_bytes + len(data) > MAX_BYTES:
            self._rewrite()
        else:
            write_all(self._file, data)
            self._written_bytes += len(data)

    def close(self) -> None:
        """Close and delete the file, and forget all matches. Later writes start a new file."""
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size, self._written_bytes, self._lines = -1, 0, 0, {}
        self.path.unlink(missing_ok=True)

    def _drop(self, match: str, new: list[bytes]) -> None:
        """Forget a match's lines, and append the line that announces it to `new`. Does nothing for an unknown match."""
        if match in self._lines:
            self._size -= sum(map(len, self._lines.pop(match)))
            new.append(f'{{"match":"{match}","over":true}}\n'.encode("ascii"))

    def _rewrite(self) -> None:
        """Replace the file by one with only the matches in progress and a new random name in its first line."""
        data = b'{"feed":"%s"}\n' % secrets.token_hex(8).encode()
        data += b"".join(line for lines in self._lines.values() for line in lines)
        temporary = self.path.with_name(f".{FEED}{TEMPORARY}")
        temporary.unlink(missing_ok=True)
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            write_all(file, data)
            os.replace(temporary, self.path)
        except OSError:
            os.close(file)
            temporary.unlink(missing_ok=True)
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file, self._written_bytes = file, len(data)


# -- reading -----------------------------------------------------------------------------------------------------------


class _Row(BaseModel):
    model_config = ConfigDict(strict=True)


class _Image(_Row):
    hash: str
    width: int
    height: int


class _Message(_Row):
    sender: str
    text: str
    images: list[_Image] = []


class _Turn(_Row):
    index: int
    seat: str
    role: str
    policy: str
    version: int
    messages: list[_Message]
    raw: str
    public: str
    private: str
    action: str
    valid: bool
    rewards: dict[str, float]
    finish: str
    tokens: int
    seconds: float
    situation: str = ""
    source: str = "policy"


class _Seat(_Row):
    role: str
    policy: str
    version: int
    trained: bool
    kind: str


class _Head(_Row):
    iteration: int
    game: str
    options: dict[str, Any]
    seed: int
    seats: dict[str, _Seat]
    started: str
    group: int = -1
    stage: str = ""
    source: str = "played"
    parent: str = ""
    parent_turn: int = -1


class _Line(_Row):
    match: str
    head: _Head | None = None
    turn: _Turn | None = None
    over: bool = False


class LiveMatch:
    """Match in the feed: its settings (`head`), and whether it is `over`.

    `turn_spans` has offset and length of each turn's line, `seat` is the last turn's seat, and `last_speech` the
    beginning of its text.
    """

    def __init__(self, head: _Head) -> None:
        self.head, self.turn_spans, self.over = head, list[tuple[int, int]](), False
        self.seat, self.last_speech = "", ""


class FeedReader:
    """Incremental reader of a run's turn feed: `refresh` updates `matches`, by match id. Invalid lines are skipped."""

    def __init__(self, run: Path) -> None:
        self.path = run / FEED
        self.matches: dict[str, LiveMatch] = {}
        self._name, self._offset = b"", 0

    def refresh(self) -> None:
        """Read new lines into `matches`. Starts over if the file was replaced; clears `matches` if the file is gone."""
        with suppress(OSError), self._open() as file:
            name = file.readline(64)
            if name != self._name:
                self.matches, self._name, self._offset = {}, name, len(name)
            file.seek(self._offset)
            *lines, _torn = file.read(2 * MAX_BYTES).split(b"\n")
            for line in lines:
                self._read_line(line)
                self._offset += len(line) + 1
            return
        self.matches, self._name, self._offset = {}, b"", 0

    def row(self, id: str) -> dict[str, Any] | None:
        """Return a match in progress as a row of the log, with its turns so far, status `playing` and no payoffs.

        Returns None if the feed has no such match, or if the file was replaced since the last `refresh`.
        """
        playing, turns = self.matches.get(id), list[dict[str, Any]]()
        if playing is None:
            return None
        with suppress(OSError), self._open() as file:
            if file.readline(64) != self._name:
                return None
            for begin, length in playing.turn_spans:
                file.seek(begin)
                line = _parse_line(file.read(length))
                if line and line.turn:
                    turns.append(line.turn.model_dump())
        outcome = {"status": PLAYING, "reason": "", "payoffs": {}, "report": {}, "rules": 0}
        seconds = float(sum(turn["seconds"] for turn in turns))
        return {"id": id, **playing.head.model_dump(), **outcome, "turns": turns, "seconds": seconds}

    def _open(self) -> BinaryIO:
        """Open the file for reading. Raises OSError if it is missing, a link, or larger than twice `MAX_BYTES`."""
        return open_plain(self.path, 2 * MAX_BYTES, follow_links=False)

    def _read_line(self, text: bytes) -> None:
        line = _parse_line(text)
        if line is None:
            return
        if line.head and (line.match in self.matches or len(self.matches) < MAX_MATCHES):
            self.matches[line.match] = LiveMatch(line.head)  # a known match starts over
        playing = self.matches.get(line.match)
        if playing and line.turn and line.turn.index == len(playing.turn_spans):
            playing.turn_spans.append((self._offset, len(text)))
            playing.seat = line.turn.seat
            playing.last_speech = (line.turn.public or line.turn.action or line.turn.raw)[:MAX_SPEECH]
        if playing and line.over:
            playing.over = True


def _parse_line(text: bytes) -> _Line | None:
    try:
        return _Line.model_validate_json(text) if len(text) <= MAX_LINE else None
    except ValidationError:
        return None
