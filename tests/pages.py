"""Parsers for the pages of README and docs/: fenced blocks, names between backticks, commands."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer

from arena.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


class Block(NamedTuple):
    """Fenced block: its page and line, language, file name (if any) and text."""

    page: Path
    line: int
    language: str
    file: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def find_blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    text = page.read_text("utf-8")
    fenced = re.finditer(r"(?:^`([\w./-]+)`\n\n)?^```(\w*)[^\n]*\n(.*?)^```$", text, re.S | re.M)
    return [Block(page, text[: m.start(2)].count("\n") + 1, m[2], m[1], m[3]) for m in fenced]


def find_names(page: Path) -> list[str]:
    """Return the texts between backticks in a page's prose and tables, with broken lines joined.

    Skips the changelog's removed and renamed names.
    """
    prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.S | re.M)
    if page.name == "CHANGELOG.md":
        prose = re.sub(r"^### (Removed|Renamed)$.*?(?=^##)", "", prose, flags=re.S | re.M)
    return [re.sub(r"\s*\n\s*", " ", name).replace("\\|", "|") for name in re.findall(r"`([^`]+)`", prose)]


def write_files(page: Path) -> None:
    """Write the files that a page shows into the working directory."""
    for block in find_blocks(page):
        if block.file:
            Path(block.file).parent.mkdir(parents=True, exist_ok=True)
            Path(block.file).write_text(block.text, "utf-8")


def find_commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each `arena` command, without comments and pipes."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if re.match(r"(\$ )?arena ", line):
            words = shlex.split(line.removeprefix("$ "), comments=True)
            yield words[1 : words.index("|") if "|" in words else None]


def parse_command(arguments: list[str]) -> Any:
    """Parse the arguments of `arena` without running it. Raises click's errors."""
    command, name = typer.main.get_command(app), "arena"
    context = None
    while hasattr(command, "resolve_command"):
        context = command.make_context(name, list(arguments), parent=context)
        found, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
        name = str(found)
    return command.make_context(name, list(arguments), parent=context)
