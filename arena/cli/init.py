"""`arena init`: write a commented template of a role, game, simulator or experiment, which passes `arena check`."""

import keyword
import os
import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from arena.errors import ConfigError
from arena.store.files import write_atomic
from arena.store.outputs import require_output, schema_kind, write_output
from games.names import nearest

TEMPLATES: dict[str, tuple[dict[str, str], list[str]]] = {
    "role": ({"{name}.yaml": "role.yaml"}, ["arena check role {name}.yaml --game negotiation"]),
    "experiment": ({"{name}.yaml": "experiment.yaml"}, ["arena check experiment {name}.yaml"]),
    "game": (
        {"{name}.py": "game.py.txt", "{name}_player.yaml": "game_role.yaml", "{name}.yaml": "game_run.yaml"},
        ["arena check game {name}.py:{title}", "arena run selfplay --config {name}.yaml"],
    ),
    "simulator": (
        {
            "{name}.py": "simulator.py.txt",
            "{name}_helper.yaml": "simulator_role.yaml",
            "{name}.yaml": "simulator_run.yaml",
        },
        ["arena check game {name}.py:{title}", "arena run selfplay --config {name}.yaml"],
    ),
}
"""Files to write with their templates, and the commands to run next, by kind."""


def init(
    kind: Annotated[str, typer.Argument(help=f"One of: {', '.join(TEMPLATES)}.", show_default=False)],
    name: Annotated[str, typer.Argument(help="Name: lower-case letters, digits and _.", show_default=False)],
    to: Annotated[Path, typer.Option(help="Folder to write into.")] = Path(),
) -> None:
    """Write a commented role, experiment, game or simulator to start from.

    A game or simulator (NAME.py) comes with a role for a tiny model, and a run that learns in a minute (NAME.yaml).
    A role or experiment comes with its JSON Schema, with which an editor completes and explains the fields.

    Example: arena init role haggler
    """
    from agents import strict_yaml

    if kind not in TEMPLATES:
        raise ConfigError(f"unknown kind '{kind}'{nearest(kind, TEMPLATES)} (one of: {', '.join(TEMPLATES)})")
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,47}", name):
        raise ConfigError(f"{name}: a name has lower-case letters, digits and _, and begins with a letter")
    if keyword.iskeyword(name) or name in strict_yaml.CONSTANTS:
        raise ConfigError(f"{name}: this word is reserved in Python or YAML: choose another name")
    templates, commands = TEMPLATES[kind]
    title = "".join(part.title() for part in name.split("_"))
    template_by_file = {to / file.format(name=name): template for file, template in templates.items()}
    if not to.is_dir():
        raise ConfigError(f"--to {to}: there is no such folder")
    texts = {
        file: (files("arena.cli") / "starts" / template).read_text("utf-8")
        for file, template in template_by_file.items()
    }
    schemas = _find_schemas(texts.values())
    for file in template_by_file:
        if os.path.lexists(file):
            raise ConfigError(f"{file} already exists: choose another name")
    for source in schemas:
        require_output("--to", to / source.name, schema_kind(source.name))
    for source in schemas:
        write_output("--to", to / source.name, schema_kind(source.name), source.read_bytes())
        print(f"{to / source.name}: its schema, for editors")
    for file, text in texts.items():
        write_atomic(file, re.sub(r"\bCLASS\b", title, re.sub(r"\bNAME(?=\b|_)", name, text)))
        print(f"{file}: written; edit it")
    for command in commands:
        print(f"next: {command.format(name=to / name, title=title)}")


def _find_schemas(texts: Iterable[str]) -> list[Path]:
    """Return the shipped files of the schemas that the texts name in their first lines."""
    from arena.config.schema import FILES

    matches = [re.search(r"\$schema=(\w+)\.schema\.json", text) for text in texts]
    return list(dict.fromkeys(FILES[match[1]] for match in matches if match))
