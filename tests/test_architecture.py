"""docs/architecture.md says what is: its tree is made of the modules' own first lines, and what it names is there.

python -m tests.test_architecture    # renews the tree
"""

import ast
import re
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


def test_the_top_of_the_arena_is_a_page() -> None:
    assert len(list((ROOT / "arena").glob("*.py"))) <= 15


if __name__ == "__main__":
    PAGE.write_text(FENCE.sub(lambda found: found[1] + tree() + found[3], PAGE.read_text("utf-8")), "utf-8")
