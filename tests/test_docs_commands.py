"""Commands in the docs exist with their options; quick ones are run beside the page's own files."""

import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

import pytest

from arena.cli.run import _build_layers, _compose_experiment
from arena.config.pipeline import read_pipeline
from arena.config.sources import is_pipeline
from arena.config.staging import plan
from tests.factories.commands import arena
from tests.pages import PAGES, ROOT, find_blocks, find_commands, find_names, parse_command, write_files

TARGETS = re.findall(r"^([a-z-]+):(?!=)", (ROOT / "Makefile").read_text("utf-8"), re.M)
ELSEWHERE = {
    "source", "export", "pip", "pre-commit", "tensorboard", "ruff", "mypy", "lint-imports", "cp", "mkdir", "curl",
}  # fmt: skip
"""Programs of other projects."""
QUICK: set[tuple[str, ...]] = {("list",), ("show", "game"), ("init",), ("check", "role"), ("check", "experiment")}
"""Commands that read no run and end in a moment."""
READING: set[tuple[str, ...]] = {("sql",), ("credit",), ("show",)}
"""Commands that read a run."""


class ShownCommand(NamedTuple):
    """A command line on a page."""

    page: Path
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {shlex.join(self.words)}"[:150]

    def is_one_of(self, known: set[tuple[str, ...]]) -> bool:
        """Return whether this is one of these commands of arena."""
        return self.words[0] == "arena" and any(self.words[1 : 1 + len(words)] == words for words in known)


def list_lines() -> Iterator[ShownCommand]:
    """Yield every line after a prompt on every page, split at `&&`, without comment and pipe."""
    for page in PAGES:
        for block in find_blocks(page):
            text = re.sub(r"\\\n\s*", "", block.text)
            for line in re.findall(r"^\$ (.*)$", text, re.M) if block.language == "console" else ():
                for part in line.split(" && "):
                    words = shlex.split(part, comments=True)
                    end = words.index("|") if "|" in words else None
                    yield ShownCommand(page, tuple(word for word in words[:end] if not re.match(r"[A-Z_]+=", word)))


def list_arena_commands() -> Iterator[ShownCommand]:
    """Yield every complete `arena` command in a block of any language."""
    for page in PAGES:
        for block in find_blocks(page):
            yield from (
                ShownCommand(page, ("arena", *words)) for words in find_commands(block.text) if "…" not in words
            )


CONSOLE_LINES = list(list_lines())
ARENA_COMMANDS = list(dict.fromkeys(list_arena_commands()))


def test_every_console_line_is_an_existing_command() -> None:
    assert len(CONSOLE_LINES) > 40
    unknown = [str(line) for line in CONSOLE_LINES if not command_exists(line.words)]
    assert not unknown, "\n".join(unknown)


def command_exists(words: tuple[str, ...]) -> bool:
    """Return whether the program, make target or file of a command exists."""
    program, *arguments = words
    if program == "arena":
        parse_command(arguments)
        return True
    if program == "make":
        return {word for word in arguments if "=" not in word} <= set(TARGETS)
    if program in ("python", "python3", "pytest"):
        files = [argument for argument in arguments if argument.startswith(("benchmarks/", "tests/", "docs/"))]
        return all((ROOT / file.partition("::")[0]).exists() for file in files)
    return program in ELSEWHERE


def test_missing_command_is_found() -> None:
    assert (
        not command_exists(("make", "nothing"))
        and not command_exists(("python", "benchmarks/nothing.py"))
        and not command_exists(("nix",))
    )


def list_scripts() -> Iterator[tuple[str, str, list[str]]]:
    """Yield page, script and options of every `python benchmarks/….py` in text, tables and blocks."""
    for page in PAGES:
        texts = [*find_names(page), *(block.text for block in find_blocks(page))]
        for text in texts:
            for script, rest in re.findall(r"python (benchmarks/[\w/]+\.py)([^`\n#]*)", text):
                yield page.name, script, re.findall(r"--[a-z-]+", rest)


def test_every_option_of_a_script_exists() -> None:
    found = list(list_scripts())
    mentions = sum(len(re.findall(r"python\s+benchmarks/", page.read_text("utf-8"))) for page in PAGES)
    assert len(found) == mentions and any(options for _, _, options in found)
    unknown = [
        (page, script, option)
        for page, script, options in found
        for option in options
        if f'"{option}"' not in (ROOT / script).read_text("utf-8")
    ]
    assert not unknown


RUNS = [line for line in ARENA_COMMANDS if line.words[1:3] == ("run", "selfplay")]


@pytest.mark.parametrize("line", RUNS, ids=str)
def test_shown_run_is_a_valid_experiment(line: ShownCommand, tmp_path: Path) -> None:
    """It is composed and checked like `arena run` with its recipe, arm, settings and files, but not started."""
    context = parse_command(list(line.words[1:]))
    options = context.params
    with chdir(tmp_path):
        write_page_files(line.page)
        settings = [*([f"engine.kind={options['engine']}"] if options["engine"] else []), *(options["set_"] or ())]
        if any(options[name] for name in ("game", "recipe", "config")):
            names = ("game", "recipe", "config", "arm", "roles", "iterations", "seed", "scale")
            layers = _build_layers(**{name: options[name] for name in names}, settings=settings)
            if is_pipeline(layers):
                assert plan(read_pipeline(layers), tmp_path / "run", print)
            else:
                assert _compose_experiment(layers, options["policies"]).iterations > 0


def write_page_files(page: Path) -> None:
    """Write the page's own files and those of its `arena init` commands."""
    write_files(page)
    for line in ARENA_COMMANDS:
        if line.page == page and line.words[1] == "init" and not Path(line.words[3]).exists():
            arena(*line.words[1:])


@pytest.mark.parametrize("line", [line for line in ARENA_COMMANDS if line.is_one_of(QUICK)], ids=str)
def test_quick_command_runs(line: ShownCommand, tmp_path: Path) -> None:
    with chdir(tmp_path):
        write_files(line.page) if line.words[1] == "init" else write_page_files(line.page)
        result = arena(*line.words[1:])
    assert result.code == 0 and result.out.strip(), result


@pytest.mark.parametrize(
    "line", [line for line in ARENA_COMMANDS if line.is_one_of(READING) and "runs/latest" in line.words], ids=str
)
def test_command_that_reads_a_run_works(line: ShownCommand, tmp_path: Path, uninterrupted_run: Path) -> None:
    """Runs on a tiny run; iteration and match numbers are replaced by existing ones."""
    with chdir(tmp_path):
        shutil.copytree(uninterrupted_run, "runs/latest")
        write_files(line.page)
        words = [re.sub(r"^\d{4}-\d{4}$", "0003-0001", word) for word in line.words[1:]]
        words = ["3" if before == "--iteration" else word for before, word in zip(["", *words], words, strict=False)]
        result = arena(*words)
    assert result.code == 0, result
