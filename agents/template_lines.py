"""Remove the lines of a template that contain only tags.

Jinja either keeps the line break after every tag, which leaves empty lines, or removes all of them (`trim_blocks`),
which joins lines. Here, as in Mustache, a line with only tags and comments prints nothing, and any other line keeps its
line break. Jinja's own `-%}` and `+%}` work as usual.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jinja2 import Environment

ENDS = {"block_begin": "block_end", "comment_begin": "comment_end", "variable_begin": "variable_end"}
ENDS["raw_begin"] = "raw_end"
TAGS = ("block_begin", "comment_begin")


class Piece(NamedTuple):
    """A part of a template's source: a tag or comment, or other text."""

    text: str
    is_tag: bool


def strip_tag_lines(source: str, environment: Environment) -> str:
    """Remove the line breaks and blanks around tags that fill a line of a Jinja template; return the new source.

    The break moves into the tag before it, so that line numbers stay equal. Raises TemplateSyntaxError as Jinja does.
    """
    lines: list[list[Piece]] = [[]]
    for piece in _group_tokens(environment.lex(source)):
        first, *others = [piece.text] if piece.is_tag else piece.text.split("\n")
        lines[-1].append(Piece(first, piece.is_tag))
        lines.extend([Piece(text, False)] for text in others)
    texts = ["".join(piece.text for piece in line) for line in lines]
    lone_tags = [_find_lone_tags(line) for line in lines]
    last = len(lines) - 1
    joined = (
        texts[n] + "\n" * (n < last) if tags is None else _add_break(tags, n < last) for n, tags in enumerate(lone_tags)
    )
    return "".join(joined)


def _group_tokens(tokens: Iterable[tuple[int, str, str]]) -> Iterator[Piece]:
    """Group Jinja tokens into complete tags and the text between them; raw blocks and printed values count as text."""
    text, opened = "", ""
    for _, kind, value in tokens:
        if not opened and kind in ENDS:
            if text and kind in TAGS:
                yield Piece(text, False)
                text = ""
            opened = kind
        text += value
        if opened and kind == ENDS[opened]:
            if opened in TAGS:
                yield Piece(text, True)
                text = ""
            opened = ""
    yield Piece(text, False)


def _find_lone_tags(line: list[Piece]) -> str | None:
    """Return a line's tags if it has no other text; None for other lines, and if a `+` keeps the line."""
    tags = "".join(piece.text for piece in line if piece.is_tag)
    text = "".join(piece.text for piece in line if not piece.is_tag)
    return tags if tags and not text.strip(" \t") and not re.search(r"\{%\+|\+%\}", tags) else None


def _add_break(tags: str, has_break: bool) -> str:
    """Return the tags; if `has_break`, with a line break inside the last tag, where it is insignificant."""
    end = re.search(r"-?[%#]\}\s*$", tags)
    assert end is not None, "a tag ends as tags do"
    return tags[: end.start()] + "\n" * has_break + tags[end.start() :]
