"""Tests of docs/architecture.md: its picture is current, and rooms import only what it allows.

Imports run downwards, including those inside functions and by name. test_docs_names.py checks that named files exist.
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


def test_picture_is_current() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "diagram.py"))
    assert script["PICTURE"].read_text("utf-8") == script["draw_picture"](), "renew it: python docs/diagram.py"


def test_every_path_in_the_picture_exists_and_fits_its_box() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "diagram.py"))
    places = [place for row in script["STEPS"].values() for place in row.values()]
    assert len(places) > 15 and not [place for place in places if not (ROOT / place).exists()]
    assert max(map(len, places)) * 6 < script["WIDTH"], "10 px of a monospaced font are 6 wide"


def test_picture_has_the_order_of_an_iteration() -> None:
    steps = runpy.run_path(str(ROOT / "docs" / "diagram.py"))["STEPS"]
    iterate = (
        (ROOT / "arena" / "lab.py").read_text("utf-8").partition("async def iterate(")[2].partition("async def")[0]
    )
    places = [iterate.index(f"self.{step}(") for step in ("play", "credit", "learn", *steps["keep"])]
    assert places == sorted(places)


# -- imports -----------------------------------------------------------------------------------------------


@cache
def read_imports() -> dict[str, set[str]]:
    """Return the imported modules of this repository by module.

    Imports count anywhere in a file, for types only too, and so do texts that name a module or a member, as
    `import_module` and tables of parts take them: "games.nim" and "games.nim:Nim". Lazy imports of commands count, too.
    """
    files = {name_module(file): file for room in ROOMS for file in (ROOT / room).rglob("*.py")}
    return {
        module: set(list_imported(ast.parse(file.read_text("utf-8")), files)) - {module}
        for module, file in files.items()
    }


def name_module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def list_imported(tree: ast.Module, known: dict[str, Path]) -> Iterator[str]:
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
        TopologicalSorter(read_imports()).prepare()
    except CycleError as error:
        raise AssertionError(f"a circle: {' → '.join(reversed(error.args[1]))}") from None


def test_imports_by_name_and_in_functions_are_found() -> None:
    """Otherwise the test above could not fail."""
    found = read_imports()
    assert "games.nim" in found["games"], "an import by name"
    assert "arena.credit.critics.archer" in found["arena.credit.critics"], "an import inside a function"
    assert "arena.policies" in found["arena.credit.critics.base"], "an import for types"


def test_rooms_import_exactly_what_the_page_allows() -> None:
    allowed = {row[0]: re.findall(r"`([\w.]+)`", row[2]) for row in read_table("contains")}
    used = set()
    for module, imported in read_imports().items():
        room = module.split(".")[0]
        if module.startswith("analysis.notebooks."):  # notebooks use the whole public interface
            continue
        for other in imported:
            if other.split(".")[0] != room:
                allowed_names = [name for name in allowed[room] if f"{other}.".startswith(f"{name}.")]
                assert allowed_names, f"{module} imports {other}: docs/architecture.md does not say so"
                used |= {(room, name) for name in allowed_names}
    assert used == {(room, name) for room, names in allowed.items() for name in names}


def test_contracts_forbid_what_the_page_does_not_allow() -> None:
    """If the page names modules of a room, the room may be forbidden except for these."""
    forbidden = {c["source_modules"][0]: c["forbidden_modules"] for c in read_contracts() if c["type"] == "forbidden"}
    for room, _, cell in read_table("contains"):
        names = re.findall(r"`([\w.]+)`", cell)
        free = set(ROOMS) - {room} - set(forbidden[room])
        assert set(names) & set(ROOMS) <= free <= {name.split(".")[0] for name in names}, room
    assert "torch" in forbidden["analysis"]


def test_the_page_shows_the_arena_in_the_order_of_its_contract() -> None:
    (text,) = re.findall(r"from top to bottom:\n\n(.*?)\n\n", PAGE.read_text("utf-8"), re.S)
    shown = [re.findall(r"`(\w+)`", layer) for layer in text.split("·")]
    (layers,) = (contract["layers"] for contract in read_contracts() if contract.get("containers") == ["arena"])
    assert shown == [layer.split(" | ") for layer in layers if layer != "__main__"]


def read_contracts() -> list[dict[str, Any]]:
    """Return the contracts of import-linter."""
    found: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    return found


def read_table(column: str) -> list[list[str]]:
    """Return the cells of the page's table with this column; first cells without their markup."""
    _, _, table = PAGE.read_text("utf-8").partition(f"| {column} |")
    lines = table.split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [[first.strip("` /"), *others] for first, *others in cells]


def test_no_module_imports_a_higher_layer() -> None:
    (layers,) = (contract["layers"] for contract in read_contracts() if contract.get("containers") == ["arena"])
    height = {name: -n for n, layer in enumerate(layers) for name in layer.split(" | ")}
    for module, imported in read_imports().items():
        for other in imported:
            if module.startswith("arena.") and other.startswith("arena."):
                lower, upper = (height[name.split(".")[1]] for name in (other, module))
                assert lower <= upper, f"{module} imports {other}, which lies above it"
            elif other.startswith("arena"):
                assert module.split(".")[0] in ("arena", "analysis"), f"{module} imports {other}"


def test_no_test_is_imported() -> None:
    """Shared code is in tests/factories or a conftest.py; texts of child processes count, too."""
    pattern = re.compile(
        r"^\s*(from [\w.]*\btest_\w+ import|import [\w.]*\btest_\w+|from [\w.]+ import .*\btest_)", re.M
    )
    assert all(map(pattern.search, ("from tests.arena import test_lab", "  from tests.test_docs import x")))
    files = [file for room in ("tests", "benchmarks") for file in (ROOT / room).rglob("*.py")]
    assert len(files) > 300
    assert not [str(file.relative_to(ROOT)) for file in files if pattern.search(file.read_text("utf-8"))]


def test_games_are_typed_and_never_probed() -> None:
    """No room or benchmark types a game as Any or probes it for attributes."""
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


def test_shared_types_are_defined_once() -> None:
    """All rooms share the same messages, views, images and games."""
    homes: dict[str, list[str]] = {name: [] for name in ("Message", "View", "Image", "Game")}
    for room in ROOMS:
        for file in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef) and node.name in homes:
                    homes[node.name].append(str(file.relative_to(ROOT)))
    assert homes == {name: ["games/contracts.py"] for name in homes}


def test_top_level_of_arena_has_few_files() -> None:
    assert len(list((ROOT / "arena").glob("*.py"))) <= 15


def test_no_function_is_longer_than_a_screen() -> None:
    """50 lines with documentation; commands are excluded, because their options take a line each."""
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
