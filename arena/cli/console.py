"""The console of all commands, which prints plain text that cannot steer the terminal."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from arena.store.outputs import results_kind, write_output


class PlainConsole(Console):
    """Rich console without markup that removes control and format characters from all text."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the renderable's segments without characters that could steer the terminal."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=_remove_control_characters(segment.text))


def note(text: str) -> None:
    """Print a one-line notice on stderr, apart from the output that scripts read."""
    from arena.plain import printable  # loads NumPy

    print(f"arena: {printable(text)}", file=sys.stderr)


def write_results(command: str, data: dict[str, Any], out: Path | None, as_json: bool) -> None:
    """Write results as JSON to `out`, if given, and to stdout if `as_json`. The key `by` names the command."""
    data = {"by": f"arena {command}", **data}
    if out:
        write_output("--out", out, results_kind(command), (json.dumps(data, indent=1) + "\n").encode())
    if as_json:
        print(json.dumps(data))


def _remove_control_characters(text: str) -> str:
    """Remove characters that could steer a terminal or reorder the text; keep line ends."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    from arena.plain import clean_text

    return "".join(c for c in clean_text(text) if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Co"))
