"""Every command that a page shows exists, with its options; what takes a moment is run, beside the page's own files."""

import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

import pytest

from arena.cli.run import SelfplayOptions, _build_layers, _compose_experiment
from arena.config.pipeline import read_pipeline
from arena.config.sources import is_pipeline
from arena.config.staging import plan
from tests.factories.commands import arena
from tests.pages import PAGES, ROOT, find_blocks, find_commands, find_names, parse_command, write_files

TARGETS = re.findall(r"^([a-z-]+):(?!=)", (ROOT / "Makefile").read_text("utf-8"), re.M)
ELSEWHERE = {
    "source", "export", "pip", "pre-commit", "tensorboard", "ruff", "mypy", "lint-imports", "cp", "mkdir", "curl",
}  # fmt: skip
"""Programs that are not ours."""
QUICK: set[tuple[str, ...]] = {("list",), ("show", "game"), ("init",), ("check", "role"), ("check", "experiment")}
"""Commands that read no run and end in a moment."""
READING: set[tuple[str, ...]] = {("sql",), ("credit",), ("show",)}
"""Commands that read a run."""


class Shown(NamedTuple):
    """A command line of a page."""

    page: Path
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {shlex.join(self.words)}"[:150]

    def begins(self, known: set[tuple[str, ...]]) -> bool:
        """Whether it is one of these commands of arena."""
        return self.words[0] == "arena" and any(self.words[1 : 1 + len(some)] == some for some in known)


def lines() -> Iterator[Shown]:
    """Every line after a prompt in the blocks of every page, `&&` taken apart, without comment and pipe."""
    for page in PAGES:
        for block in find_blocks(page):
            text = re.sub(r"\\\n\s*", "", block.text)
            for line in re.findall(r"^\$ (.*)$", text, re.M) if block.language == "console" else ():
                for part in line.split(" && "):
                    words = shlex.split(part, comments=True)
                    end = words.index("|") if "|" in words else None
                    yield Shown(page, tuple(word for word in words[:end] if not re.match(r"[A-Z_]+=", word)))


def own_commands() -> Iterator[Shown]:
    """Every whole `arena` command in a block of any language."""
    for page in PAGES:
        for block in find_blocks(page):
            yield from (Shown(page, ("arena", *words)) for words in find_commands(block.text) if "…" not in words)


LINES = list(lines())
OWN = list(dict.fromkeys(own_commands()))


def test_every_line_of_a_console_is_a_command_that_exists() -> None:
    assert len(LINES) > 40
    unknown = [str(line) for line in LINES if not exists(line.words)]
    assert not unknown, "\n".join(unknown)


def exists(words: tuple[str, ...]) -> bool:
    """Whether a program, a target of make or a file of this repository is there."""
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


def test_a_line_that_does_not_exist_is_found() -> None:
    assert not exists(("make", "nothing")) and not exists(("python", "benchmarks/nothing.py")) and not exists(("nix",))


def scripts() -> Iterator[tuple[str, str, list[str]]]:
    """Yield page, script and options of every `python benchmarks/….py` in text, tables and blocks."""
    for page in PAGES:
        texts = [*find_names(page), *(block.text for block in find_blocks(page))]
        for text in texts:
            for script, rest in re.findall(r"python (benchmarks/[\w/]+\.py)([^`\n#]*)", text):
                yield page.name, script, re.findall(r"--[a-z-]+", rest)


def test_every_option_of_a_script_is_one() -> None:
    found = list(scripts())
    mentions = sum(len(re.findall(r"python\s+benchmarks/", page.read_text("utf-8"))) for page in PAGES)
    assert len(found) == mentions and any(options for _, _, options in found)
    unknown = [
        (page, script, option)
        for page, script, options in found
        for option in options
        if f'"{option}"' not in (ROOT / script).read_text("utf-8")
    ]
    assert not unknown


RUNS = [line for line in OWN if line.words[1:3] == ("run", "selfplay")]


@pytest.mark.parametrize("line", RUNS, ids=str)
def test_a_run_that_is_shown_is_an_experiment(line: Shown, tmp_path: Path) -> None:
    """Recipe, arm, settings and files are there; it is composed and checked as `arena run` does, and not begun."""
    context = parse_command(list(line.words[1:]))
    said = context.params
    with chdir(tmp_path):
        begun(line.page)
        settings = [*([f"engine.kind={said['engine']}"] if said["engine"] else []), *(said["set_"] or ())]
        if any(said[name] for name in ("game", "recipe", "config")):
            named = {name: said[name] for name in ("game", "recipe", "config", "arm", "policies", "roles", "scale")}
            asked = SelfplayOptions(**named, settings=settings, iterations=said["iterations"], seed=said["seed"])
            layers = _build_layers(asked)
            if is_pipeline(layers):
                assert plan(read_pipeline(layers), tmp_path / "run", print)
            else:
                assert _compose_experiment(layers, asked.policies).iterations > 0


def begun(page: Path) -> None:
    """The page's own files, and what its `arena init` writes."""
    write_files(page)
    for line in OWN:
        if line.page == page and line.words[1] == "init" and not Path(line.words[3]).exists():
            arena(*line.words[1:])


@pytest.mark.parametrize("line", [line for line in OWN if line.begins(QUICK)], ids=str)
def test_a_command_of_a_moment_runs(line: Shown, tmp_path: Path) -> None:
    with chdir(tmp_path):
        write_files(line.page) if line.words[1] == "init" else begun(line.page)
        told = arena(*line.words[1:])
    assert told.code == 0 and told.out.strip(), told


@pytest.mark.parametrize(
    "line", [line for line in OWN if line.begins(READING) and "runs/latest" in line.words], ids=str
)
def test_a_command_that_reads_a_run_runs(line: Shown, tmp_path: Path, uninterrupted_run: Path) -> None:
    """On a tiny run; numbers of iterations and matches that this has not are made its own."""
    with chdir(tmp_path):
        shutil.copytree(uninterrupted_run, "runs/latest")
        write_files(line.page)
        words = [re.sub(r"^\d{4}-\d{4}$", "0003-0001", word) for word in line.words[1:]]
        words = ["3" if before == "--iteration" else word for before, word in zip(["", *words], words, strict=False)]
        told = arena(*words)
    assert told.code == 0, told
