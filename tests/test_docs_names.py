"""What README and docs/ set between backticks is there: files, what is in them, modules, settings, commands.

Beside that: how long a page may be, and that every result has the command that produced it.
"""

import ast
import importlib
import re
import shlex
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import typer

from arena.config.schema import make_schema
from tests.pages import PAGES, ROOT, find_names, parse_command

ROOMS = ("arena", "agents", "games", "simulators", "analysis")
SCHEMA = make_schema("experiment")
METRICS = {"learn.shared.kl", "learn.shared.correction"}
"""Columns of tables that begin as settings do."""
LONG = 1500
"""Words of a page."""


def said(pattern: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Each page with what it has between backticks, where that is this pattern from its beginning to its end."""
    for page in PAGES:
        for name in find_names(page):
            if match := re.fullmatch(pattern, name):
                yield page.relative_to(ROOT).as_posix(), match


# -- files, and what is in them ----------------------------------------------------------------------------


def test_every_file_that_is_named_is_there() -> None:
    """`folder/`, `folder/file*.py`, `file.py:name` and `file.py:Class.method`, from the top of the repository."""
    made = {"runs", "site", "build", "dist"}  # by commands, here and there
    top = "|".join(p.name for p in ROOT.iterdir() if p.is_dir() and p.name[0] not in "._" and p.name not in made)
    places = list(said(rf"((?:{top})/[\w./*-]*)(?::([A-Za-z_][\w.]*))?"))
    missing = [f"{page}: {place[0]}" for page, place in places if not _there(place[1], place[2])]
    assert len(places) > 100 and not missing


def _there(pattern: str, name: str | None) -> bool:
    files = list(ROOT.glob(pattern.rstrip("/")))
    return bool(files) and (not name or _defines(files[0].read_text("utf-8"), name))


def _defines(text: str, name: str) -> bool:
    nodes: list[ast.AST] = [ast.parse(text)]
    for part in name.split("."):
        nodes = [
            inner
            for node in nodes
            for inner in ast.walk(node)
            if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and inner.name == part
        ]
    return bool(nodes)


def test_every_module_and_what_is_named_of_it_is_there() -> None:
    """`arena.store`, `games.base.TALK`, `analysis.load(…)`."""
    dotted = list(said(rf"((?:{'|'.join(ROOMS)})(?:\.\w+)+)(?:\(.*\))?"))
    known = entry_points().groups
    missing = [f"{page}: {name[0]}" for page, name in dotted if name[1] not in known and not _importable(name[1])]
    assert len(dotted) > 15 and not missing


def _importable(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    if importlib.util.find_spec(module) is None:
        return _importable(module)
    return hasattr(importlib.import_module(module), attribute) or importlib.util.find_spec(name) is not None


# -- settings ----------------------------------------------------------------------------------------------


def test_every_setting_that_is_named_exists() -> None:
    """`learn.lr`, `learn.loss: grpo`, `policies.NAME.model`: keys of an experiment, with or without a value."""
    top = "|".join(SCHEMA["properties"])
    keys = [(page, key[1]) for page, key in said(rf"((?:{top})(?:\.\w+)+)(?:(?:: ?|=).*)?")]
    missing = [f"{page}: {key}" for page, key in keys if key not in METRICS and not _setting(SCHEMA, key.split("."))]
    assert len(keys) > 50 and not missing


def _setting(schema: Mapping[str, Any], path: list[str]) -> bool:
    """Whether an object of this JSON Schema may have something at the path; names of its own choice are any."""
    if "$ref" in schema:
        return _setting(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], path)
    if not path:
        return True
    inside = [schema["properties"][path[0]]] if path[0] in schema.get("properties", {}) else []
    inside += [schema.get("additionalProperties") or {}, *schema.get("patternProperties", {}).values()]
    others = [other for how in ("anyOf", "oneOf", "allOf") for other in schema.get(how, ())]
    return any(_setting(s, path[1:]) for s in inside if s) or any(_setting(other, path) for other in others)


def test_a_setting_that_does_not_exist_is_found() -> None:
    """Else the test above could not fail."""
    assert _setting(SCHEMA, ["learn", "loss", "policy_gradient", "clip"])
    assert not _setting(SCHEMA, ["learn", "loss", "policy_gradient", "clop"])
    assert not _setting(SCHEMA, ["policies", "NAME", "modal"])


# -- commands ----------------------------------------------------------------------------------------------


def _commands() -> list[str]:
    """Each command in the text, the page before it."""
    return sorted({f"{page}: {line}" for page, match in said(r"arena [a-z]+( .*)?") for line in _each(match[0])})


def _each(line: str) -> list[str]:
    """A command with alternatives, as each of them."""
    words = next((word for word in line.split() if re.fullmatch(r"\w+(\|\w+)+", word)), "")
    return [line.replace(words, one) for one in words.split("|")] if words else [line]


@pytest.mark.parametrize("command", _commands())
def test_every_command_in_the_text_is_one(command: str) -> None:
    """`arena list games|roles`: each of the two. What a sentence leaves out of a command may be missing."""
    words = shlex.split(command.partition(": ")[2])
    try:
        parse_command([word for word in words[1:] if word != "…"])
    except typer.BadParameter as error:
        assert error.format_message().startswith("Missing")


def test_every_target_of_make_and_every_script_is_there() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    made = list(said(r"make ([a-z-]+)"))
    scripts = list(said(r"python ([\w./-]+\.py)( .*)?"))
    assert len(made) > 15 and not [f"{page}: {target[0]}" for page, target in made if target[1] not in targets]
    own = [(page, script[1]) for page, script in scripts if "/" in script[1]]
    assert len(own) > 15 and not [f"{page}: {script}" for page, script in own if not (ROOT / script).is_file()]


# -- results, and how long pages are -----------------------------------------------------------------------


def test_every_result_has_its_command() -> None:
    """Every table of the page has the column, and every row a command in its last cell."""
    page = (ROOT / "docs" / "results.md").read_text("utf-8")
    tables = re.findall(r"^\| claim \|.*\| command \|\n\|[-|]+\|\n((?:\|.*\|\n)+)", page, re.M)
    rows = [row.strip().strip("|") for table in tables for row in table.splitlines()]
    lines = len(re.findall(r"^\|", page, re.M))
    assert tables and len(rows) == lines - 2 * len(re.findall(r"^\|[-|]+\|$", page, re.M))
    assert not [row for row in rows if not re.search(r"`[^`]+`|claims\.md\)|^ the same ", row.rpartition("|")[2])]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_page_is_longer_than_one_reads_at_a_sitting(page: Path) -> None:
    """But the changelog, which nobody reads as a page, and which grows."""
    if page.name == "CHANGELOG.md":
        return
    assert len(page.read_text("utf-8").split()) <= LONG
