"""Generate pages of the site when it is built: pages from the top of the repository, the reference, the figures.

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
"""Pages of the site whose source is at the top of the repository."""
STABLE = """\
The names on this page are stable: names, parameters and meanings stay the same between minor versions. For usage, see
[train from Python](../python.md).

**Deprecation.** A deprecated name works for at least one more minor version and warns with `DeprecationWarning`, which
names the replacement; the changelog lists it. Parameters may be added, with defaults; metrics and tables may gain
columns. Files have versions of their own: old run folders stay readable. All other names may change with any version.
"""
PUBLIC = ("arena", "analysis", "arena.errors", "games.base", "games.contracts")
"""Modules whose public names are stable."""


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages, and the figures and raw numbers that pages link to."""
    for uri, page in build_pages():
        files.append(File.generated(config, uri, content=page))
    for path in sorted((ROOT / FIGURES).iterdir()):
        files.append(File.generated(config, f"{FIGURES}/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Shorten links from docs/ to figures and to pages of the top, which are inside the site."""
    shorter = re.sub(rf"\]\(\.\./((?:\.\./)*{FIGURES}/)", r"](\1", markdown)
    return re.sub(r"\]\(\.\./((?:\.\./)*)(CONTRIBUTING|SECURITY|CHANGELOG)\.md", lower_link, shorter)


def lower_link(link: re.Match[str]) -> str:
    """Return a link to a page of the top under its name on the site."""
    return f"]({link[1]}{link[2].lower()}.md"


def rewrite_links(page: str) -> str:
    """Rewrite the links of a page from the top of the repository as if it were in docs/."""
    return re.sub(r"\]\(()(CONTRIBUTING|SECURITY|CHANGELOG)\.md", lower_link, page.replace("](docs/", "]("))


def build_pages() -> Iterator[tuple[str, str]]:
    """Yield each generated page: its path on the site, and its Markdown."""
    for uri, name in TOP.items():
        yield uri, rewrite_links((ROOT / name).read_text("utf-8"))
    yield "reference/commands.md", describe_commands()
    yield "reference/experiment.md", describe_experiment()
    yield "reference/parts.md", describe_parts()
    yield "reference/games.md", describe_games()
    yield "reference/players.md", describe_players()
    yield "reference/tables.md", describe_tables()
    yield "reference/python.md", describe_python()
    yield "reference/tree.md", describe_tree()


def describe_commands() -> str:
    """Return the page of all commands, with their `--help` texts."""
    typer = [sys.executable, "-m", "typer", "arena.cli.app", "utils", "docs", "--name", "arena", "--title", "Commands"]
    return subprocess.run(typer, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def describe_experiment() -> str:
    """Return the page of all fields of an experiment, by model."""
    from arena.config.experiment import Experiment
    from arena.config.schema import Generator

    schema = Experiment.model_json_schema(schema_generator=Generator)
    models = {"Experiment": schema} | {n: s for n, s in schema["$defs"].items() if "properties" in s}
    blocks = [
        "# The experiment\n",
        "All keys of an experiment's YAML and of `--set key=value`. Other keys are errors.\n",
    ]
    for name, model in models.items():
        blocks += [f"## {name}\n", model.get("description", "") + "\n"]
        rows = []
        for field, field_schema in model["properties"].items():
            default = (
                "required" if field in model.get("required", ()) else format_default(field_schema.get("default", ""))
            )
            rows.append((format_code(field), format_type(field_schema), default, field_schema.get("description", "")))
        blocks.append(format_table(("key", "type", "default", "description"), rows))
    return "\n".join(blocks)


def format_default(value: Any) -> str:
    """Format a default as in YAML: parts by their names; nothing for a model with its own defaults."""
    if isinstance(value, dict) and value:
        parts = [value, *value.values()]
        return ", ".join(
            format_code(part["name"]) for part in parts if isinstance(part, dict) and {"kind", "name"} <= part.keys()
        )
    return format_code(value) if isinstance(value, dict | str) else format_code(json.dumps(value))


def format_type(schema: Mapping[str, Any]) -> str:
    """Format the type of a JSON schema, with links to models on the same page."""
    from arena.config.kinds import KINDS
    from arena.parts.part_config import PLACE

    if PLACE in schema:
        kind = schema[PLACE]
        return f"[{kind}](parts.md#{KINDS[kind].plural if kind in KINDS else kind})"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(format_type, schema["anyOf"])))
    if "enum" in schema or "const" in schema:
        return ", ".join(map(format_code, schema.get("enum", [schema.get("const")])))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {format_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"{format_type(schema['additionalProperties'])} by name"
    limits = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {schema[key]:g}" for key, sign in limits.items() if key in schema]
    return " ".join([kind, *bounds])


def describe_parts() -> str:
    """Return the page of all parts that are chosen by name, with their settings and docstrings."""
    from arena.config.kinds import KINDS
    from arena.parts.part_config import describe_parts

    blocks = ["# Parts of credit and learning\n", "Chosen by name, with settings: `estimator: {rae: {decay: 0.9}}`.\n"]
    for kind in KINDS.values():
        blocks.append(f"## {kind.plural.capitalize()}\n")
        for row in describe_parts(kind):
            docstring = inspect.getdoc(kind.table[row[kind.name]]) or ""
            blocks += [f"### {row[kind.name]}\n", f"Settings: {row['settings']}\n", docstring + "\n"]
    return "\n".join(blocks)


def describe_games() -> str:
    """Return the page of all games of Arena, with the content of `arena show game`."""
    import games as ours
    from arena.cli.show_game import describe
    from games.base import TextGame

    introduction = (
        "From `arena show game NAME`. All games have the [shared options](../games.md#options-that-all-games-share)."
    )
    blocks = ["# Games and their options\n", introduction + "\n"]
    for name in sorted(ours.GAMES):
        info = describe(name)
        shared = set(inspect.signature(TextGame.__init__).parameters)
        options = [
            (format_code(o), format_code(kind), format_code(default))
            for o, (kind, default) in info["options"].items()
            if o not in shared
        ]
        theory = ", ".join(f"{label} {value:g}" for label, value in info["theory"].items()) or "none stated"
        blocks += [f"## {name}\n", info["description"] + "\n", "> " + info["rules"].replace("\n", "\n> ") + "\n"]
        blocks += [format_table(("option", "type", "default"), options)] if options else []
        blocks += [f"Seats: {', '.join(info['seats'])}. Theory: {theory}. Played by: {', '.join(info['players'])}.\n"]
    return "\n".join(blocks)


def describe_players() -> str:
    """Return the page of all roles, policies, opponents, engines and recipes that can be named."""
    from arena.cli.catalogue import list_entries

    blocks = ["# Roles, players, recipes\n"]
    for kind in ("roles", "policies", "opponents", "engines", "recipes"):
        rows = [{k: v for k, v in row.items() if k not in ("file", "state")} for row in list_entries(kind)]
        blocks += [f"## {kind.capitalize()}\n", format_table(list(rows[0]), [list(row.values()) for row in rows])]
    return "\n".join(blocks)


def describe_tables() -> str:
    """Return the page of all columns of the tables that `analysis.load` returns."""
    from analysis.columns import RUN_COLUMNS, TABLES, doc

    blocks = ["# Tables of runs\n", "Tables of `analysis.load` and `arena sql`: [analyse runs](../analysis.md).\n"]
    for name, schema in TABLES.items():
        types = (str(field.type).removeprefix("timestamp[us, tz=").rstrip("]") for field in schema)
        rows = [(format_code(field.name), kind, doc(field)) for field, kind in zip(schema, types, strict=True)]
        rows += [(format_code(RUN_COLUMNS[name][0]), "", RUN_COLUMNS[name][1])] if name in RUN_COLUMNS else []
        blocks += [f"## {name}\n", format_table(("column", "type", "what it is"), rows)]
    return "\n".join(blocks)


def describe_python() -> str:
    """Return the page of all public names of the stable modules, with signatures, docstrings and members."""
    blocks = ["# Python\n", STABLE]
    for module in map(importlib.import_module, PUBLIC):
        blocks += [f"## {module.__name__}\n", (inspect.getdoc(module) or "").split("\n", 1)[0] + "\n"]
        for name, thing in list_public(module):
            blocks += [f"### {module.__name__}.{name}\n", f"```text\n{name}{format_signature(thing)}\n```\n"]
            blocks.append(format_docstring(inspect.getdoc(thing)) + "\n")
            rows = [
                (format_code(f"{inner}{format_signature(value)}"), format_docstring(docstring))
                for inner, value, docstring in list_members(thing)
            ]
            blocks += [format_table(("in it", "what it is"), rows)] if rows else []
    return "\n".join(blocks)


def list_public(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield a module's exported names and values: those in `__all__`, else its own classes and functions."""
    own = [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__
        and not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
    ]
    yield from ((name, getattr(module, name)) for name in getattr(module, "__all__", own))


def list_members(thing: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield a class's documented members as (name, value or None, first paragraph of the docstring)."""
    if not inspect.isclass(thing):
        return
    for name, docstring in list_attributes(thing):
        yield name, None, docstring
    for name, value in vars(thing).items():
        if name.startswith("_") or not (callable(value) or isinstance(value, property | cached_property)):
            continue
        if (info := inspect.getdoc(value)) is not None:
            yield name, value if callable(value) else None, info.split("\n\n")[0]


def list_attributes(thing: Any) -> Iterator[tuple[str, str]]:
    """Yield names and docstrings of a class's documented fields and attributes set in `__init__`."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    assert isinstance(tree, ast.ClassDef)
    begins = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    for body in (tree.body, *(begin.body for begin in begins)):
        for node, after in itertools.pairwise(body):
            target = node.target if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [None])[0]
            name = getattr(target, "attr", getattr(target, "id", "_"))
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and not name.startswith("_"):
                yield name, str(after.value.value)


def format_signature(thing: Any) -> str:
    """Format the parameters of a function or class without types; "" if they are unknown."""
    try:
        signature = inspect.signature(thing) if callable(thing) else None
    except (TypeError, ValueError):
        return ""
    if signature is None or issubclass(thing if inspect.isclass(thing) else object, BaseException):
        return ""
    bare = [p.replace(annotation=p.empty) for name, p in signature.parameters.items() if name != "self"]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def format_docstring(text: str | None) -> str:
    """Format a docstring as Markdown, with its examples in a code block."""
    lines = (text or "").split("\n")
    first = next((n for n, line in enumerate(lines) if line.startswith(">>> ")), len(lines))
    example = "\n".join(lines[first:])
    return "\n".join(lines[:first]).strip() + (f"\n\n```pycon\n{example}\n```" if example else "")


def describe_tree() -> str:
    """Return the page of all folders and modules with the first lines of their docstrings."""
    blocks = [
        "# The tree\n",
        "The first docstring line of each file. For the design, see [architecture](../architecture.md).\n",
    ]
    for folder in (init.parent for room in ROOMS for init in sorted((ROOT / room).rglob("__init__.py"))):
        modules = [file for file in sorted(folder.glob("*.py")) if file.name != "__init__.py"]
        rows = [(format_code(file.name), first_line) for file in modules if (first_line := read_first_line(file))]
        path = folder.relative_to(ROOT).as_posix()
        blocks += [f"{'###' if '/' in path else '##'} {path}\n", read_first_line(folder / "__init__.py") + "\n"]
        blocks += [format_table(("file", "what it is"), rows)] if rows else []
    return "\n".join(blocks)


def read_first_line(file: Path) -> str:
    """Return the first line of a module's docstring; "" if it has none."""
    return (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").split("\n", 1)[0]


def format_code(value: Any) -> str:
    """Format a value as inline code; "" stays empty."""
    return f"`{value}`" if value != "" else ""


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table. Bars and line breaks in cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells) + "\n"
