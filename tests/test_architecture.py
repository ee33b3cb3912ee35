"""docs/architecture.md says what is: its picture is current, and rooms import what it allows.

Imports run downwards, those inside of functions and those by name too. That what it names is there: test_docs_names.py.
"""

import ast
import re
import runpy
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
ROOMS = ("arena", "agents", "games", "simulators", "analysis")


def test_the_picture_is_the_one_that_its_script_draws() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "diagram.py"))
    assert script["PICTURE"].read_text("utf-8") == script["draw_picture"](), "renew it: python docs/diagram.py"


def test_every_place_in_the_picture_is_there_and_fits_its_box() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "diagram.py"))
    places = [place for row in script["STEPS"].values() for place in row.values()]
    assert len(places) > 15 and not [place for place in places if not (ROOT / place).exists()]
    assert max(map(len, places)) * 6 < script["WIDTH"], "10 px of a monospaced font are 6 wide"


def test_the_picture_ends_as_an_iteration_does() -> None:
    steps = runpy.run_path(str(ROOT / "docs" / "diagram.py"))["STEPS"]
    iterate = (
        (ROOT / "arena" / "lab.py").read_text("utf-8").partition("async def iterate(")[2].partition("async def")[0]
    )
    places = [iterate.index(f"self.{step}(") for step in ("play", "credit", "learn", *steps["keep"])]
    assert places == sorted(places)


# -- imports -----------------------------------------------------------------------------------------------


@cache
def imports() -> dict[str, set[str]]:
    """By module, the modules of ours that it imports: anywhere in it, for types alone too, or by a text that names one.

    A text counts that is the name of a module, or of one and what is in it, as `import_module` and tables of places
    take it: "games.nim" and "games.nim:Nim". Nothing is left out, the commands' lazy imports neither.
    """
    files = {_module(file): file for room in ROOMS for file in (ROOT / room).rglob("*.py")}
    return {
        module: set(_imported(ast.parse(file.read_text("utf-8")), files)) - {module} for module, file in files.items()
    }


def _module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imported(tree: ast.Module, known: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports name the whole module"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from {inner if inner in known else str(node.module)} & known.keys()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from {node.value.partition(":")[0]} & known.keys() - set(ROOMS)


def test_no_imports_run_in_a_circle() -> None:
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        raise AssertionError(f"a circle: {' → '.join(reversed(error.args[1]))}") from None


def test_imports_by_name_and_in_functions_are_seen() -> None:
    """Else the test above could not fail."""
    found = imports()
    assert "games.nim" in found["games"], "by a text"
    assert "arena.credit.critics.archer" in found["arena.credit.critics"], "inside of a function"
    assert "arena.policies" in found["arena.credit.critics.base"], "for types alone"


def test_rooms_import_what_the_page_allows_and_all_of_that() -> None:
    allowed = {row[0]: re.findall(r"`([\w.]+)`", row[2]) for row in rows("contains")}
    used = set()
    for module, imported in imports().items():
        room = module.split(".")[0]
        if module.startswith("analysis.notebooks."):  # pages to read, which use all that is public
            continue
        for other in imported:
            if other.split(".")[0] != room:
                through = [name for name in allowed[room] if f"{other}.".startswith(f"{name}.")]
                assert through, f"{module} imports {other}: docs/architecture.md does not say so"
                used |= {(room, name) for name in through}
    assert used == {(room, name) for room, names in allowed.items() for name in names}


def test_the_contracts_forbid_what_the_page_does_not_allow() -> None:
    """A room of which the page names some modules may be forbidden but for these."""
    forbidden = {c["source_modules"][0]: c["forbidden_modules"] for c in contracts() if c["type"] == "forbidden"}
    for room, _, cell in rows("contains"):
        names = re.findall(r"`([\w.]+)`", cell)
        free = set(ROOMS) - {room} - set(forbidden[room])
        assert set(names) & set(ROOMS) <= free <= {name.split(".")[0] for name in names}, room
    assert "torch" in forbidden["analysis"]


def test_the_page_shows_the_arena_in_the_order_of_its_contract() -> None:
    (text,) = re.findall(r"from top to bottom:\n\n(.*?)\n\n", PAGE.read_text("utf-8"), re.S)
    shown = [re.findall(r"`(\w+)`", layer) for layer in text.split("·")]
    (layers,) = (contract["layers"] for contract in contracts() if contract.get("containers") == ["arena"])
    assert shown == [layer.split(" | ") for layer in layers if layer != "__main__"]


def contracts() -> list[dict[str, Any]]:
    """What import-linter holds."""
    found: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    return found


def rows(column: str) -> list[list[str]]:
    """The rows of the page's table that has a column of this name: the text of each cell, of the first its code."""
    _, _, table = PAGE.read_text("utf-8").partition(f"| {column} |")
    lines = table.split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [[first.strip("` /"), *others] for first, *others in cells]


def test_no_module_imports_one_that_lies_above_it() -> None:
    (layers,) = (contract["layers"] for contract in contracts() if contract.get("containers") == ["arena"])
    height = {name: -n for n, layer in enumerate(layers) for name in layer.split(" | ")}
    for module, imported in imports().items():
        for other in imported:
            if module.startswith("arena.") and other.startswith("arena."):
                lower, upper = (height[name.split(".")[1]] for name in (other, module))
                assert lower <= upper, f"{module} imports {other}, which lies above it"
            elif other.startswith("arena"):
                assert module.split(".")[0] in ("arena", "analysis"), f"{module} imports {other}"


def test_no_test_is_imported() -> None:
    """What tests share is made in tests/factories, or is a fixture in a conftest.py; texts of child processes count."""
    taken = re.compile(r"^\s*(from [\w.]*\btest_\w+ import|import [\w.]*\btest_\w+|from [\w.]+ import .*\btest_)", re.M)
    assert all(map(taken.search, ("from tests.arena import test_lab", "  from tests.test_docs import x")))
    files = [file for room in ("tests", "benchmarks") for file in (ROOT / room).rglob("*.py")]
    assert len(files) > 300
    assert not [str(file.relative_to(ROOT)) for file in files if taken.search(file.read_text("utf-8"))]


def test_games_are_typed_and_asked_by_isinstance() -> None:
    """No room or measure takes a game for anything at all, and none probes it for attributes."""
    files = [file for room in (*ROOMS, "tests", "benchmarks") for file in (ROOT / room).rglob("*.py")]
    untyped, probe = re.compile(r"\bgame: " + "Any"), re.compile(r"\b(get|has)attr\((self\.)?_?game\b")
    found = [
        f"{file.relative_to(ROOT)}:{number} {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        if untyped.search(line) or (probe.search(line) and file.relative_to(ROOT).parts[0] in ROOMS)
    ]
    assert len(files) > 500 and not found


def test_every_room_ships_its_types() -> None:
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-data"]
    assert "py.typed" in shipped["*"] and all((ROOT / room / "py.typed").is_file() for room in ROOMS)


def test_a_message_exists_once() -> None:
    """And so do views, acts and games: all rooms speak of the same ones."""
    homes: dict[str, list[str]] = {name: [] for name in ("Message", "View", "Image", "Game")}
    for room in ROOMS:
        for file in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef) and node.name in homes:
                    homes[node.name].append(str(file.relative_to(ROOT)))
    assert homes == {name: ["games/contracts.py"] for name in homes}


def test_the_top_of_the_arena_is_a_page() -> None:
    assert len(list((ROOT / "arena").glob("*.py"))) <= 15


def test_no_function_is_longer_than_a_screen() -> None:
    """50 lines with its documentation; commands, whose options are lines of their own, are not counted."""
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py") if file.parent != ROOT / "arena" / "cli"]
    functions = [
        (file, node)
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(functions) > 1000
    long = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"
        for file, node in functions
        if (node.end_lineno or 0) - node.lineno >= 50
    ]
    assert not long
