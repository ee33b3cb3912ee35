"""What of the site is made when it is built: pages from the top of the repository, the reference, the figures.

mkdocs calls `on_files` once and `on_page_markdown` for every page (mkdocs.yml, `hooks`).
"""

import ast
import importlib
import inspect
import itertools
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
FIGURES = "benchmarks/results"
ROOMS = ("arena", "agents", "games", "simulators", "analysis")
TOP = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md"}
TOP |= {"changelog.md": "CHANGELOG.md"}
"""Pages of the site that stand at the top of the repository."""
STABLE = """\
What is on this page is stable: it keeps its name, its parameters and what it means from one minor version to the next.
How to use it: [train from Python](../python.md).

**Deprecation.** What is to go still works for one minor version at least, warns with `DeprecationWarning` and says what
to use instead; the changelog names it. Parameters may be added, with defaults; rows of metrics and tables may gain
columns. Files have versions of their own: old run folders stay readable. What is not listed here, however it is
called, may change with any version.
"""
PUBLIC = ("arena", "analysis", "arena.errors", "games.base", "games.contracts")
"""Modules whose public names are stable."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that nobody writes by hand, and the figures and raw numbers that pages link to."""
    for uri, page in pages():
        files.append(File.generated(config, uri, content=page))
    for path in sorted((ROOT / FIGURES).iterdir()):
        files.append(File.generated(config, f"{FIGURES}/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Shorten links that leave docs/ by one step up: figures and the pages of the top are inside of the site."""
    shorter = re.sub(rf"\]\(\.\./((?:\.\./)*{FIGURES}/)", r"](\1", markdown)
    return re.sub(r"\]\(\.\./((?:\.\./)*)(CONTRIBUTING|SECURITY|CHANGELOG)\.md", lower, shorter)


def lower(link: re.Match[str]) -> str:
    """A link to a page of the top, as the site calls it."""
    return f"]({link[1]}{link[2].lower()}.md"


def within_docs(page: str) -> str:
    """A page of the top of the repository with links as from inside of docs/."""
    return re.sub(r"\]\(()(CONTRIBUTING|SECURITY|CHANGELOG)\.md", lower, page.replace("](docs/", "]("))


def pages() -> Iterator[tuple[str, str]]:
    """Each made page: its place in the site, and its Markdown."""
    for uri, name in TOP.items():
        yield uri, within_docs((ROOT / name).read_text("utf-8"))
    yield "reference/commands.md", commands()
    yield "reference/experiment.md", experiment()
    yield "reference/parts.md", parts()
    yield "reference/games.md", games()
    yield "reference/players.md", players()
    yield "reference/tables.md", tables()
    yield "reference/python.md", python()
    yield "reference/tree.md", tree()


def commands() -> str:
    """Every command as its `--help` tells it."""
    typer = [sys.executable, "-m", "typer", "arena.cli.app", "utils", "docs", "--name", "arena", "--title", "Commands"]
    return subprocess.run(typer, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def experiment() -> str:
    """Every field of an experiment, by the model it stands in."""
    from arena.config.experiment import Experiment
    from arena.config.schema import Generator

    schema = Experiment.model_json_schema(schema_generator=Generator)
    models = {"Experiment": schema} | {n: s for n, s in schema["$defs"].items() if "properties" in s}
    made = [
        "# The experiment\n",
        "Every key of an experiment's YAML, and of `--set key=value`. What is not listed is an error.\n",
    ]
    for name, model in models.items():
        made += [f"## {name}\n", model.get("description", "") + "\n"]
        rows = []
        for field, said in model["properties"].items():
            default = "required" if field in model.get("required", ()) else defaulted(said.get("default", ""))
            rows.append((code(field), typed(said), default, said.get("description", "")))
        made.append(table(("key", "type", "default", "what"), rows))
    return "\n".join(made)


def defaulted(value: Any) -> str:
    """A default as YAML writes it: of parts their names, of a model with defaults of its own nothing."""
    if isinstance(value, dict) and value:
        parts = [value, *value.values()]
        return ", ".join(
            code(part["name"]) for part in parts if isinstance(part, dict) and {"kind", "name"} <= part.keys()
        )
    return code(value) if isinstance(value, dict | str) else code(json.dumps(value))


def typed(said: Mapping[str, Any]) -> str:
    """A JSON schema's type in a few words, with links to the models on the same page."""
    from arena.config.kinds import KINDS
    from arena.parts.chosen import PLACE

    if PLACE in said:
        kind = said[PLACE]
        return f"[{kind}](parts.md#{KINDS[kind].plural if kind in KINDS else kind})"
    if "$ref" in said:
        name = said["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in said:
        return " or ".join(dict.fromkeys(map(typed, said["anyOf"])))
    if "enum" in said or "const" in said:
        return ", ".join(map(code, said.get("enum", [said.get("const")])))
    kind = said.get("type", "any")
    if kind == "array":
        return f"list of {typed(said.get('items', {}))}"
    if kind == "object" and isinstance(said.get("additionalProperties"), dict):
        return f"{typed(said['additionalProperties'])} by name"
    limits = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {said[key]:g}" for key, sign in limits.items() if key in said]
    return " ".join([kind, *bounds])


def parts() -> str:
    """Every part that is chosen by name, with its settings and all that it says of itself."""
    from arena.config.kinds import KINDS
    from arena.parts.chosen import describe_parts

    made = ["# Parts of credit and learning\n", "Chosen by name, with settings: `estimator: {rae: {decay: 0.9}}`.\n"]
    for kind in KINDS.values():
        made.append(f"## {kind.plural.capitalize()}\n")
        for row in describe_parts(kind):
            said = inspect.getdoc(kind.table[row[kind.name]]) or ""
            made += [f"### {row[kind.name]}\n", f"Settings: {row['settings']}\n", said + "\n"]
    return "\n".join(made)


def games() -> str:
    """Every game that comes with Arena, as `arena show game` tells it."""
    import games as ours
    from arena.cli.show_game import describe
    from games.base import TextGame

    said = (
        "As `arena show game NAME` tells it; all take the [shared options](../games.md#options-that-all-games-share)."
    )
    made = ["# Games and their options\n", said + "\n"]
    for name in sorted(ours.GAMES):
        told = describe(name)
        shared = set(inspect.signature(TextGame.__init__).parameters)
        options = [
            (code(o), code(kind), code(default)) for o, (kind, default) in told["options"].items() if o not in shared
        ]
        theory = ", ".join(f"{what} {value:g}" for what, value in told["theory"].items()) or "none stated"
        made += [f"## {name}\n", told["what"] + "\n", "> " + told["rules"].replace("\n", "\n> ") + "\n"]
        made += [table(("option", "type", "default"), options)] if options else []
        made += [f"Seats: {', '.join(told['seats'])}. Theory: {theory}. Played by: {', '.join(told['players'])}.\n"]
    return "\n".join(made)


def players() -> str:
    """Roles, policies, opponents and recipes that can be named."""
    from arena.cli.catalogue import entries

    made = ["# Roles, players, recipes\n"]
    for kind in ("roles", "policies", "opponents", "engines", "recipes"):
        rows = [{k: v for k, v in row.items() if k not in ("file", "state")} for row in entries(kind)]
        made += [f"## {kind.capitalize()}\n", table(list(rows[0]), [list(row.values()) for row in rows])]
    return "\n".join(made)


def tables() -> str:
    """Every column of the tables that `analysis.load` gives."""
    from analysis.columns import GROWN, TABLES, doc

    made = ["# Tables of runs\n", "What `analysis.load` gives and `arena sql` asks: [analyse runs](../analysis.md).\n"]
    for name, schema in TABLES.items():
        types = (str(field.type).removeprefix("timestamp[us, tz=").rstrip("]") for field in schema)
        rows = [(code(field.name), kind, doc(field)) for field, kind in zip(schema, types, strict=True)]
        rows += [(code(GROWN[name][0]), "", GROWN[name][1])] if name in GROWN else []
        made += [f"## {name}\n", table(("column", "type", "what it is"), rows)]
    return "\n".join(made)


def python() -> str:
    """Every public name of the modules that are stable: its signature, what it says of itself, and what is in it."""
    made = ["# Python\n", STABLE]
    for module in map(importlib.import_module, PUBLIC):
        made += [f"## {module.__name__}\n", (inspect.getdoc(module) or "").split("\n", 1)[0] + "\n"]
        for name, thing in public(module):
            made += [f"### {module.__name__}.{name}\n", f"```text\n{name}{signature(thing)}\n```\n"]
            made.append(prose(inspect.getdoc(thing)) + "\n")
            rows = [(code(f"{inner}{signature(value)}"), prose(said)) for inner, value, said in members(thing)]
            made += [table(("in it", "what it is"), rows)] if rows else []
    return "\n".join(made)


def public(module: Any) -> Iterator[tuple[str, Any]]:
    """What a module exports: the names in its `__all__`, else the classes and functions that it defines itself."""
    own = [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__
        and not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
    ]
    yield from ((name, getattr(module, name)) for name in getattr(module, "__all__", own))


def members(thing: Any) -> Iterator[tuple[str, Any, str]]:
    """Of a class: its documented attributes, properties and methods, with the first sentence of each."""
    if not inspect.isclass(thing):
        return
    for name, said in attributes(thing):
        yield name, None, said
    for name, value in vars(thing).items():
        if name.startswith("_") or not (callable(value) or isinstance(value, property | cached_property)):
            continue
        if (told := inspect.getdoc(value)) is not None:
            yield name, value if callable(value) else None, told.split("\n\n")[0]


def attributes(thing: Any) -> Iterator[tuple[str, str]]:
    """Fields of a class, and what its `__init__` sets, where a text after them says what they are."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    assert isinstance(tree, ast.ClassDef)
    begins = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    for body in (tree.body, *(begin.body for begin in begins)):
        for node, after in itertools.pairwise(body):
            target = node.target if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [None])[0]
            name = getattr(target, "attr", getattr(target, "id", "_"))
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and not name.startswith("_"):
                yield name, str(after.value.value)


def signature(thing: Any) -> str:
    """The parameters of a function or class, without types; nothing where there are none to be had."""
    try:
        found = inspect.signature(thing) if callable(thing) else None
    except (TypeError, ValueError):
        return ""
    if found is None or issubclass(thing if inspect.isclass(thing) else object, BaseException):
        return ""
    bare = [p.replace(annotation=p.empty) for name, p in found.parameters.items() if name != "self"]
    return str(found.replace(parameters=bare, return_annotation=found.empty))


def prose(text: str | None) -> str:
    """A docstring as Markdown: its examples, which are code, in a block of their own."""
    lines = (text or "").split("\n")
    first = next((n for n, line in enumerate(lines) if line.startswith(">>> ")), len(lines))
    example = "\n".join(lines[first:])
    return "\n".join(lines[:first]).strip() + (f"\n\n```pycon\n{example}\n```" if example else "")


def tree() -> str:
    """Every folder and module with the first line of its documentation; notebooks, which have none, by their folder."""
    made = [
        "# The tree\n",
        "What each file is, in its own first line. How they fit: [architecture](../architecture.md).\n",
    ]
    for folder in (init.parent for room in ROOMS for init in sorted((ROOT / room).rglob("__init__.py"))):
        modules = [file for file in sorted(folder.glob("*.py")) if file.name != "__init__.py"]
        rows = [(code(file.name), said) for file in modules if (said := first_line(file))]
        path = folder.relative_to(ROOT).as_posix()
        made += [f"{'###' if '/' in path else '##'} {path}\n", first_line(folder / "__init__.py") + "\n"]
        made += [table(("file", "what it is"), rows)] if rows else []
    return "\n".join(made)


def first_line(file: Path) -> str:
    """The first line of a module's documentation; empty where it has none."""
    return (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").split("\n", 1)[0]


def code(value: Any) -> str:
    """A value as code; nothing for nothing."""
    return f"`{value}`" if value != "" else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars and line breaks inside of a cell are kept from cutting it."""
    lines = [head, ["---"] * len(head), *rows]
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells) + "\n"
