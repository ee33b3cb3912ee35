"""docs/architecture.md says what is: its tree is made of the modules' own first lines, and what it names is there.

And imports run downwards, those inside of functions and those by name too.

python -m tests.test_architecture    # renews the tree
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
ROOMS = ("arena", "agents", "games", "simulators", "analysis")
FENCE = re.compile(r"(```text tree\n)(.*?)(```\n)", re.S)


def tree() -> str:
    """Every module with the first line of its documentation, folder by folder."""
    lines: list[str] = []
    for room in ROOMS:
        lines += _folder(ROOT / room, 0)
    return "".join(f"{line}\n" for line in lines)


def _folder(folder: Path, depth: int) -> list[str]:
    indent = "  " * depth
    lines = [f"{indent}{folder.name}/ · {_first_line(folder / '__init__.py')}"]
    for file in sorted(folder.glob("*.py")):
        if file.name != "__init__.py":
            lines.append(f"{indent}  {file.name} · {_first_line(file)}")
    for inner in sorted(path.parent for path in folder.glob("*/__init__.py")):
        lines += _folder(inner, depth + 1)
    return lines


def _first_line(file: Path) -> str:
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return text.split("\n", 1)[0].rstrip(".")


def test_the_tree_is_that_of_the_checkout() -> None:
    found = FENCE.search(PAGE.read_text("utf-8"))
    assert found and found[2] == tree(), "renew it: python -m tests.test_architecture"


def test_every_place_that_is_named_is_there() -> None:
    """`path.py` and `path.py:name` or `path.py:Class.method`, outside of the tree."""
    text = FENCE.sub("", PAGE.read_text("utf-8"))
    places = re.findall(r"`([a-z_]+/[\w/]+\.py)(?::([\w.]+))?`", text)
    new = {place for place in re.findall(r"new `([a-z_]+/[\w/]+\.py)`", text)}
    assert len(places) > 30
    for file, name in places:
        if file in new:
            assert not (ROOT / file).exists(), f"{file} is there already"
            continue
        assert (ROOT / file).is_file(), file
        assert not name or _defines((ROOT / file).read_text("utf-8"), name), f"{file}:{name}"


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


# -- imports -----------------------------------------------------------------------------------------------


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
                yield from {inner if inner in known else node.module} & known.keys()
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


def test_no_module_imports_one_that_lies_above_it() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["arena"])
    height = {name: -n for n, layer in enumerate(layers) for name in layer.split(" | ")}
    for module, imported in imports().items():
        for other in imported:
            if module.startswith("arena.") and other.startswith("arena."):
                lower, upper = (height[name.split(".")[1]] for name in (other, module))
                assert lower <= upper, f"{module} imports {other}, which lies above it"
            elif other.startswith("arena"):
                assert module.split(".")[0] in ("arena", "analysis"), f"{module} imports {other}"


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


if __name__ == "__main__":
    PAGE.write_text(FENCE.sub(lambda found: found[1] + tree() + found[3], PAGE.read_text("utf-8")), "utf-8")
