"""The field's words: no function, setting or page keeps an old name of docs/glossary.md."""

import ast
import io
import json
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from analysis.columns import TABLES
from arena.config.sources import recipe_names
from arena.parts.renamed import SETTINGS
from arena.store.schema import CREDIT, MATCHES, paths

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
ROOMS = ("arena", "agents", "games", "simulators", "analysis")
MODULES = sorted(path for room in (*ROOMS, "benchmarks") for path in (ROOT / room).rglob("*.py"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
HISTORY = ("glossary.md", "CHANGELOG.md", "negotiation_before.md")
"""Pages which say how things were called."""
KINDS = ("setting", "module", "name", "function", "phrase")


class Row(NamedTuple):
    """A line of the glossary's table."""

    old: str
    new: str
    what: str
    places: tuple[str, ...]

    def holds(self, path: Path) -> bool:
        """Whether the line is about this file."""
        name = str(path.relative_to(ROOT))
        return not self.places or any(name == place or name.startswith(f"{place}/") for place in self.places)

    def __str__(self) -> str:
        return f"{self.what}-{self.old}"


def rows() -> Iterator[Row]:
    """The table of names that were replaced."""
    table = GLOSSARY.read_text("utf-8").partition("## Names that were replaced")[2].partition("\n## ")[0]
    for line in table.splitlines():
        if line.startswith("| `"):
            old, new, what, where = (cell.strip() for cell in line.strip("|").split("|"))
            yield Row(old.strip("`"), new, what, tuple(filter(None, (place.strip() for place in where.split(",")))))


ROWS = list(rows())
NAMES = [row for row in ROWS if row.what in ("name", "function")]
PHRASES = re.compile(rf"\b({'|'.join(row.old for row in ROWS if row.what == 'phrase')})\b", re.I)


@cache
def source(path: Path) -> str:
    return path.read_text("utf-8")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(source(path))


@cache
def defined() -> dict[str, list[tuple[Path, int, bool]]]:
    """Where modules give each name to what: file, line, and whether to a function or class.

    Else it is a parameter's, a field's or an attribute's.
    """
    places = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                places[node.name].append((path, node.lineno, True))
            elif isinstance(node, ast.arg):
                places[node.arg].append((path, node.lineno, False))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                places[node.target.id].append((path, node.lineno, False))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                places[node.attr].append((path, node.lineno, False))
    return places


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings and comments of a module, with their lines."""
    strings = {
        node.lineno: node.value.value
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    yield from strings.items()
    for token in tokenize.generate_tokens(io.StringIO(source(path)).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def first_lines(module: ast.Module) -> Iterator[tuple[int, str]]:
    """The first line of the docstring of a module and of each class and function in it, with where that is."""
    for node in ast.walk(module):
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text.splitlines()[0]


def without_values(text: str) -> str:
    """A text without what it quotes, such as a column's values, and without what a program printed."""
    text = re.sub(r"```(?:text|console)?\n.*?```", "", text, flags=re.S)
    return re.sub(r"model, brain, endpoint or human|`[^`\n]*`|\"[^\"\n]*\"", "", text)


def test_the_table_can_be_read() -> None:
    assert len(ROWS) > 60 and {row.what for row in ROWS} == set(KINDS)
    assert all(row.old and row.new for row in ROWS)
    assert all((ROOT / place).exists() for row in ROWS for place in row.places), "a place that is not there"


def test_names_are_found_where_modules_give_them() -> None:
    """Else the test below could not fail: a class, a function, a parameter, a field, an attribute."""
    here = ROOT / "arena" / "play" / "match.py"
    kinds = {"MatchPlan": True, "play_match": True, "keep_turns": False, "draws": False, "cut": False}
    assert all({(path, kind) for path, _, kind in defined()[name]} >= {(here, kinds[name])} for name in kinds)


@pytest.mark.parametrize("row", NAMES, ids=str)
def test_no_name_is_an_old_one(row: Row) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path, line, is_function in defined().get(row.old, [])
        if row.holds(path) and (is_function or row.what != "function")
    ]
    assert not found, f"{row.old} is {row.new} now"


def test_no_column_has_an_old_name() -> None:
    """Of the log, of credit and of the tables of analysis."""
    columns = {name for schema in (MATCHES, CREDIT) for path in paths(schema) for name in path.split(".")}
    columns |= {field.name for fields in TABLES.values() for field in fields}
    assert len(columns) > 60 and not columns & {row.old for row in NAMES}


def test_no_page_gives_a_name_that_is_an_old_one() -> None:
    """In code, alone or called; but for the old words that stay, and names that are old at some place only."""
    stay = re.findall(r"^\| `(\w+)`", GLOSSARY.read_text("utf-8").partition("## Old words that stay")[2], re.M)
    old = "|".join({row.old for row in NAMES if not row.places} - {*stay})
    pattern = re.compile(rf"`(?:{old})(?:\([^`\n]*\))?`")
    assert pattern.search("see `make_brain`") and pattern.search("`give_back()`")
    pages = [page for page in PAGES if page.name not in HISTORY]
    assert not [(page.name, match[0]) for page in pages for match in pattern.finditer(page.read_text("utf-8"))]


def test_no_module_has_an_old_name() -> None:
    for row in (row for row in ROWS if row.what == "module"):
        assert not [path for path in MODULES if row.holds(path) and path.stem == row.old]


def test_settings_of_the_table_are_those_that_are_refused() -> None:
    table = {row.old: row.new.strip("`") for row in ROWS if row.what == "setting"}
    assert table == dict(SETTINGS)


def test_no_setting_has_an_old_name() -> None:
    """In the schema, recipes, starts and pages."""
    schema = json.loads((ROOT / "arena/recipes/experiment.schema.json").read_text("utf-8"))
    keys = {key for model in [schema, *schema["$defs"].values()] for key in model.get("properties", {})}
    old = {row.old.rpartition(".")[2] for row in ROWS if row.what == "setting"}
    assert not keys & old
    files = [ROOT / "arena/recipes" / f"{name}.yaml" for name in recipe_names()]
    files += [*(ROOT / "arena/cli/starts").iterdir(), *(page for page in PAGES if page.name not in HISTORY)]
    pattern = re.compile(r"learn\.shown\b|\bbrains: ?[\[\n]|imitate\.brains")
    assert not [str(file) for file in files if file.is_file() and pattern.search(file.read_text("utf-8"))]


def test_no_docstring_or_comment_speaks_the_old_words() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]}"
        for path in MODULES
        if path.name != "renamed.py"
        for line, text in prose(path)
        if (match := PHRASES.search(without_values(text)))
    ]
    assert not found, "\n".join(found)


ASIDES = re.compile(
    r"(What|Who|Whose|Whom|Which|Whether|Where|When|How|Of|By|With|To|In|As if|That|Has|Is|Lets|Gives)\b"
)
"""Beginnings of a line that is a clause or what is left of a sentence, and no imperative or noun phrase."""


def test_first_lines_of_docstrings_stand_by_themselves() -> None:
    """Of a module, a class, a function: an imperative or a noun phrase. A field may say "whether", as elsewhere."""
    assert all(map(ASIDES.match, ("What it is.", "Of a run, the last.", "Whether it ends."))), "else nothing is found"
    assert not any(map(ASIDES.match, ("Total of a run.", "Whitespace.", "Index.", "Bytes.")))
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in MODULES
        for line, text in first_lines(tree(path))
        if ASIDES.match(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in HISTORY], ids=lambda page: page.name)
def test_no_page_speaks_the_old_words(page: Path) -> None:
    text = without_values(page.read_text("utf-8"))
    assert not (found := [match[0] for match in PHRASES.finditer(text)]), found
