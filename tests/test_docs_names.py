"""Names between backticks in README and docs/ exist: files and their members, modules, settings, commands.

Also bounds the length of pages, and requires a command for every result.
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
"""Columns of tables that look like settings."""
MAX_WORDS = 1500
"""Maximum number of words on a page."""


def find_backticked_names(pattern: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield each page and match of a backticked name that fits the pattern entirely."""
    for page in PAGES:
        for name in find_names(page):
            if match := re.fullmatch(pattern, name):
                yield page.relative_to(ROOT).as_posix(), match


# -- files, and what is in them ----------------------------------------------------------------------------


def test_every_named_file_exists() -> None:
    """`folder/`, `folder/file*.py`, `file.py:name` and `file.py:Class.method`, from the top of the repository."""
    made = {"runs", "site", "build", "dist"}  # written by commands
    top = "|".join(p.name for p in ROOT.iterdir() if p.is_dir() and p.name[0] not in "._" and p.name not in made)
    places = list(find_backticked_names(rf"((?:{top})/[\w./*-]*)(?::([A-Za-z_][\w.]*))?"))
    missing = [f"{page}: {place[0]}" for page, place in places if not path_exists(place[1], place[2])]
    assert len(places) > 100 and not missing


def path_exists(pattern: str, name: str | None) -> bool:
    files = list(ROOT.glob(pattern.rstrip("/")))
    return bool(files) and (not name or defines(files[0].read_text("utf-8"), name))


def defines(text: str, name: str) -> bool:
    nodes: list[ast.AST] = [ast.parse(text)]
    for part in name.split("."):
        nodes = [
            inner
            for node in nodes
            for inner in ast.walk(node)
            if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and inner.name == part
        ]
    return bool(nodes)


def test_every_named_module_member_exists() -> None:
    """`arena.store`, `games.base.TALK`, `analysis.load(…)`."""
    dotted = list(find_backticked_names(rf"((?:{'|'.join(ROOMS)})(?:\.\w+)+)(?:\(.*\))?"))
    known = entry_points().groups
    missing = [f"{page}: {name[0]}" for page, name in dotted if name[1] not in known and not is_importable(name[1])]
    assert len(dotted) > 15 and not missing


def is_importable(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    if importlib.util.find_spec(module) is None:
        return is_importable(module)
    return hasattr(importlib.import_module(module), attribute) or importlib.util.find_spec(name) is not None


# -- settings ----------------------------------------------------------------------------------------------


def test_every_named_setting_exists() -> None:
    """`learn.lr`, `learn.loss: grpo`, `policies.NAME.model`: keys of an experiment, with or without a value."""
    top = "|".join(SCHEMA["properties"])
    keys = [(page, key[1]) for page, key in find_backticked_names(rf"((?:{top})(?:\.\w+)+)(?:(?:: ?|=).*)?")]
    missing = [f"{page}: {key}" for page, key in keys if key not in METRICS and not is_setting(SCHEMA, key.split("."))]
    assert len(keys) > 50 and not missing


def is_setting(schema: Mapping[str, Any], path: list[str]) -> bool:
    """Return whether a JSON Schema allows a value at the path; free names match any."""
    if "$ref" in schema:
        return is_setting(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], path)
    if not path:
        return True
    inside = [schema["properties"][path[0]]] if path[0] in schema.get("properties", {}) else []
    inside += [schema.get("additionalProperties") or {}, *schema.get("patternProperties", {}).values()]
    others = [other for combination in ("anyOf", "oneOf", "allOf") for other in schema.get(combination, ())]
    return any(is_setting(s, path[1:]) for s in inside if s) or any(is_setting(other, path) for other in others)


def test_missing_setting_is_found() -> None:
    """Otherwise the test above could not fail."""
    assert is_setting(SCHEMA, ["learn", "loss", "policy_gradient", "clip"])
    assert not is_setting(SCHEMA, ["learn", "loss", "policy_gradient", "clop"])
    assert not is_setting(SCHEMA, ["policies", "NAME", "modal"])


# -- commands ----------------------------------------------------------------------------------------------


def list_commands() -> list[str]:
    """Return each command in the text, after its page."""
    return sorted(
        {
            f"{page}: {line}"
            for page, match in find_backticked_names(r"arena [a-z]+( .*)?")
            for line in expand_alternatives(match[0])
        }
    )


def expand_alternatives(line: str) -> list[str]:
    """Return the command once for each of its alternatives `a|b`."""
    words = next((word for word in line.split() if re.fullmatch(r"\w+(\|\w+)+", word)), "")
    return [line.replace(words, word) for word in words.split("|")] if words else [line]


@pytest.mark.parametrize("command", list_commands())
def test_every_command_in_the_text_parses(command: str) -> None:
    """`arena list games|roles` is two commands; arguments that the sentence leaves out may be missing."""
    words = shlex.split(command.partition(": ")[2])
    try:
        parse_command([word for word in words[1:] if word != "…"])
    except typer.BadParameter as error:
        assert error.format_message().startswith("Missing")


def test_every_make_target_and_script_exists() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    made = list(find_backticked_names(r"make ([a-z-]+)"))
    scripts = list(find_backticked_names(r"python ([\w./-]+\.py)( .*)?"))
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
def test_pages_are_short(page: Path) -> None:
    """Except the changelog, which grows."""
    if page.name == "CHANGELOG.md":
        return
    assert len(page.read_text("utf-8").split()) <= MAX_WORDS
