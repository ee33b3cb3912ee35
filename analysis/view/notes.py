"""Notes on turns and matches, in the run's `notes.jsonl`.

Removing a note appends a line, so that no text is lost.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from analysis.view.index import NOTES, Index
from arena.errors import ConfigError
from arena.plain import clean_text
from arena.store.lines import LineWriter, read_lines

MAX_CHARACTERS, MAX_NOTES = 10_000, 10_000
"""Maximum number of characters of a note, and of notes of a run."""
_LOCK = Lock()


def read_notes(index: Index) -> list[dict[str, Any]]:
    """Return the run's notes, without removed ones, oldest first: `note` (id), `time`, `match`, `turn`, `text`."""
    notes: dict[str, dict[str, Any]] = {}
    for row in read_lines(index.reader.path / NOTES):
        id = str(row.get("note"))
        if row.get("removed"):
            notes.pop(id, None)
        elif isinstance(row.get("text"), str) and isinstance(row.get("match"), str):
            notes[id] = {name: row.get(name) for name in ("note", "time", "match", "turn", "text")}
    return list(notes.values())


def add(index: Index, match: str, turn: int | None, text: str) -> dict[str, Any]:
    """Append a note on a match or on one of its turns (from 0), and return it with its new id as `note`.

    Raises ConfigError if the text is empty or too long, or if the run has `MAX_NOTES` notes.
    """
    if not text.strip() or len(text) > MAX_CHARACTERS:
        raise ConfigError(f"a note has 1 to {MAX_CHARACTERS} characters")
    if len(read_notes(index)) >= MAX_NOTES:
        raise ConfigError(f"the run has {MAX_NOTES} notes: remove some")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    row = {"note": secrets.token_hex(6), "time": now, "match": match, "turn": turn, "text": clean_text(text)}
    _append(index, row)
    return row


def remove(index: Index, note: str) -> None:
    """Mark the note with the id `note` as removed. Raises ConfigError for an unknown id."""
    if note not in {row["note"] for row in read_notes(index)}:
        raise ConfigError("unknown note")
    _append(index, {"note": note, "removed": True})


def _append(index: Index, row: dict[str, Any]) -> None:
    with _LOCK, LineWriter(index.reader.path / NOTES) as file:
        file.append(row)
