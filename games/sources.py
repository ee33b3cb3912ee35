"""First docstring lines of game classes, read from source without importing the games or their dependencies."""

from __future__ import annotations

import ast
import functools
import importlib.util
from importlib.resources import files


def read_docstring(place: str) -> str | None:
    """Return the first docstring line of the class at `module:Class`, read from the source without importing it.

    None if the class is neither defined in that module nor imported there by name, if it has no docstring, or if the
    module imports a package that is not installed.
    """
    module, _, name = place.partition(":")
    tree = ast.parse(_read_source(module))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            doc = ast.get_docstring(node)
            return doc.split("\n", 1)[0] if doc and all(map(_is_installed, _find_imports(tree))) else None
        if isinstance(node, ast.ImportFrom) and name in (alias.name for alias in node.names if not alias.asname):
            return read_docstring(f"{node.module}:{name}")
    return None


def _read_source(module: str) -> str:
    """Return the source text of a module by its dotted name; for a package, of its `__init__.py`."""
    package, *folders, name = module.split(".")
    folder = files(package).joinpath(*folders)
    file = folder / f"{name}.py"
    return (file if file.is_file() else folder / name / "__init__.py").read_text(encoding="utf-8")


def _find_imports(tree: ast.Module) -> set[str]:
    """Return the top-level packages that a module imports at its top level, outside of classes and functions."""
    statements = [node for node in tree.body if not isinstance(node, ast.ClassDef | ast.FunctionDef)]
    nodes = [node for statement in statements for node in ast.walk(statement)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {name.partition(".")[0] for name in names}


@functools.cache
def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
