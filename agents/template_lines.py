"""The lines of a template: what one writes is what comes, and a tag alone on its line leaves nothing of that line.

Jinja can keep the line break after every tag, and then a loop written over lines leaves empty ones, or after none
(`trim_blocks`), and then a line that ends in a tag runs into the next. Here, as in Mustache, a line that holds tags and
comments only is no line of the text; any other line ends where it ends. Jinja's own `-%}` and `+%}` hold as ever.
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
    """A stretch of a template's source: a tag or comment, or anything else."""

    text: str
    tag: bool


def own_lines(source: str, environment: Environment) -> str:
    """The source without the line breaks and blanks around tags that have a line for themselves.

    A break is moved into the tag before it, so that lines keep their numbers. TemplateSyntaxError as from Jinja.
    """
    lines: list[list[Piece]] = [[]]
    for piece in _pieces(environment.lex(source)):
        first, *others = [piece.text] if piece.tag else piece.text.split("\n")
        lines[-1].append(Piece(first, piece.tag))
        lines.extend([Piece(text, False)] for text in others)
    texts, kept = [_of_tags(line) for line in lines], ["".join(piece.text for piece in line) for line in lines]
    last = len(lines) - 1
    joined = (kept[n] + "\n" * (n < last) if text is None else _broken(text, n < last) for n, text in enumerate(texts))
    return "".join(joined)


def _pieces(tokens: Iterable[tuple[int, str, str]]) -> Iterator[Piece]:
    """Tags whole, and what stands between them; what is raw, or a value, is text like any other."""
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


def _of_tags(line: list[Piece]) -> str | None:
    """The tags of a line that holds nothing else; None for any other line, and where a `+` asks to keep it."""
    tags = "".join(piece.text for piece in line if piece.tag)
    text = "".join(piece.text for piece in line if not piece.tag)
    return tags if tags and not text.strip(" \t") and not re.search(r"\{%\+|\+%\}", tags) else None


def _broken(tags: str, broken: bool) -> str:
    """The tags with the line's break inside of the last of them, where it is but a blank."""
    end = re.search(r"-?[%#]\}\s*$", tags)
    assert end is not None, "a tag ends as tags do"
    return tags[: end.start()] + "\n" * broken + tags[end.start() :]
