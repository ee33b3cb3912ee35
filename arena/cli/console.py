"""The console of all commands: whatever is printed is plain text and never steers the terminal."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from arena.store.outputs import results, write_output


class PlainConsole(Console):
    """A rich console without markup that drops control and format characters, but for its own styles."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of anything, their texts harmless."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=_harmless(segment.text))


def note(text: str) -> None:
    """Print a notice for the user in one line on stderr, which scripts do not read."""
    from arena.plain import printable

    print(f"arena: {printable(text)}", file=sys.stderr)


def print_rows(rows: Sequence[dict[str, str]], as_json: bool) -> None:
    """Rows of one shape as a table, or as JSON for scripts."""
    if as_json:
        print(json.dumps(rows))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for n, name in enumerate(rows[0] if rows else ()):
        table.add_column(name, overflow="fold", no_wrap=n == 0)
    for row in rows:
        table.add_row(*(Text(value) for value in row.values()))
    PlainConsole().print(table)


def _harmless(text: str) -> str:
    """The text without what could steer a terminal or reorder what is read; line ends stay."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    from arena.plain import clean_text

    kept = (c for c in clean_text(text) if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Co"))
    return "".join(kept)


def close(command: str, data: dict[str, Any], out: Path | None, as_json: bool) -> None:
    """Write and print what scripts read; `by` says which command's it is."""
    data = {"by": f"arena {command}", **data}
    if out:
        write_output("--out", out, results(command), (json.dumps(data, indent=1) + "\n").encode())
    if as_json:
        print(json.dumps(data))
