"""Load a user's corpus of pages and questions from a JSON Lines file.

    {"title": "Aardvark", "text": "The aardvark is a mammal with hair. It eats ants."}
    {"question": "Which mammal eats ants?", "answer": "aardvark", "evidence": ["Aardvark"], "hops": 1}

`answer` may be a list of alternatives; evidence and hops are optional. A run stores no copy of the file, because its
licence may not allow that.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from os.path import expanduser
from pathlib import Path
from typing import Any

from games.base import to_one_line
from games.plain_files import read_plain
from games.untrusted_json import to_unique_dict
from simulators.search.questions import MAX_HOPS, Question
from simulators.search.scoring import normalise

MAX_BYTES = 10**9
"""Maximum file size in bytes."""
MAX_PAGES, MAX_TITLE, MAX_TEXT = 200_000, 200, 20_000
MAX_ANSWERS, MAX_ROW = 100, 10**6
"""Maximum answers or evidence titles of a question, and maximum bytes of a row."""


def load_corpus(path: str) -> tuple[dict[str, str], tuple[Question, ...]]:
    """Load a corpus file: texts by title, and its questions. Raises ValueError that names file, row and problem."""
    file = Path(expanduser(path))
    try:
        lines = read_plain(file, MAX_BYTES).removeprefix(BOM_UTF8).split(b"\n")
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise ValueError(f"{to_one_line(str(file), MAX_TITLE)}: the corpus cannot be read: {why}") from None
    pages: dict[str, str] = {}
    questions: list[tuple[str, Question]] = []
    for location, row in _read_rows(file, lines):
        if "question" in row:
            questions.append((location, _parse_question(location, row)))
        else:
            _add_page(pages, location, row)
    if not pages:
        raise ValueError(f'{file}: the corpus is empty: it needs lines such as {{"title": "…", "text": "…"}}')
    if not questions:
        raise ValueError(f'{file}: there are no questions: add lines such as {{"question": "…", "answer": "…"}}')
    for location, question in questions:
        for title in sorted(question.evidence - set(pages)):
            raise ValueError(f"{location}: no page has the title {to_one_line(title, 60)!r}, which is in evidence")
    return pages, tuple(question for _, question in questions)


def _read_rows(file: Path, lines: list[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(lines, 1):
        location = f"{file}, row {number}"
        if not line.strip():
            continue
        if len(line) > MAX_ROW:
            raise ValueError(f"{location}: it has {len(line):,} bytes, over {MAX_ROW:,}: write one object per line")
        try:
            row = json.loads(line.decode("utf-8"), object_pairs_hook=to_unique_dict)
        except (ValueError, RecursionError) as error:
            why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else "it is not JSON with unique keys"
            raise ValueError(f"{location}: {why}: write one object per line") from None
        if not isinstance(row, dict):
            raise ValueError(f"{location}: a row is an object with a title and a text, or a question and an answer")
        yield location, row


def _add_page(pages: dict[str, str], location: str, row: dict[str, Any]) -> None:
    title = _read_text(location, row, "title", MAX_TITLE)
    if title in pages:
        raise ValueError(f"{location}: another page has the title {to_one_line(title, 60)!r}: rename one")
    if len(pages) == MAX_PAGES:
        raise ValueError(f"{location}: a corpus has at most {MAX_PAGES:,} pages")
    pages[title] = _read_text(location, row, "text", MAX_TEXT)


def _parse_question(location: str, row: dict[str, Any]) -> Question:
    answer = row.get("answer")
    alternatives = answer if isinstance(answer, list) and answer else [answer]
    if len(alternatives) > MAX_ANSWERS:
        raise ValueError(f"{location}: there are {len(alternatives):,} answers, over {MAX_ANSWERS}")
    answers = tuple(_read_text(location, {"answer": each}, "answer", MAX_TITLE) for each in alternatives)
    if not all(map(normalise, answers)):
        raise ValueError(f"{location}: an answer needs a word other than an article")
    evidence, hops = row.get("evidence", []), row.get("hops", 1)
    if not isinstance(evidence, list) or not all(isinstance(title, str) for title in evidence):
        raise ValueError(f"{location}: evidence must be a list of titles")
    if len(evidence) > MAX_ANSWERS:
        raise ValueError(f"{location}: there are {len(evidence):,} titles of evidence, over {MAX_ANSWERS}")
    if isinstance(hops, bool) or not isinstance(hops, int) or not 1 <= hops <= MAX_HOPS:
        raise ValueError(f"{location}: hops must be a whole number from 1 to {MAX_HOPS}")
    return Question(_read_text(location, row, "question", MAX_TEXT), answers, "given", hops, frozenset(evidence))


def _read_text(location: str, row: dict[str, Any], field_name: str, max_length: int) -> str:
    """Return a field of a row as one line. Raises ValueError unless it is non-blank text of up to `max_length`."""
    value = row.get(field_name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{location}: {field_name} must be a text")
    if len(value) > max_length:
        raise ValueError(f"{location}: {field_name} has {len(value):,} characters, over {max_length:,}")
    line = to_one_line(value, max_length)
    if not line:
        raise ValueError(f"{location}: {field_name} has no readable characters")
    return line
