"""`arena init`: a commented start of a role, a game, a simulator or an experiment, which its check passes."""

import keyword
import re
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from agents.names import nearest
from arena.errors import ConfigError
from arena.store.files import write_atomic

STARTS = {
    "role": ("role.yaml", "arena check role {file} --game negotiation"),
    "experiment": ("experiment.yaml", "arena check experiment {file}"),
    "game": ("game.py.txt", "arena check game {file}:{title}"),
    "simulator": ("simulator.py.txt", "arena check game {file}:{title}"),
}
"""By what is begun: its start, and the command that checks it."""


def init(
    kind: Annotated[str, typer.Argument(help=f"One of: {', '.join(STARTS)}.", show_default=False)],
    name: Annotated[str, typer.Argument(help="Its name: small letters, digits and _.", show_default=False)],
    to: Annotated[Path, typer.Option(help="The folder to write into.")] = Path(),
) -> None:
    """Write a commented start of a role, game, simulator or experiment into NAME.yaml or NAME.py, to be changed.

    Beside a role or an experiment lies its JSON Schema, with which an editor completes and explains every field.

    Example: arena init role haggler
    """
    if kind not in STARTS:
        raise ConfigError(f"unknown start '{kind}'{nearest(kind, STARTS)} (one of: {', '.join(STARTS)})")
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,47}", name) or keyword.iskeyword(name):
        raise ConfigError(f"{name}: a name is of small letters, digits and _, and begins with a letter")
    start, check = STARTS[kind]
    file = to / f"{name}.{'yaml' if start.endswith('.yaml') else 'py'}"
    if not to.is_dir():
        raise ConfigError(f"--to {to}: there is no such folder")
    if file.exists():
        raise ConfigError(f"{file} is there already: choose another name")
    title = "".join(part.title() for part in name.split("_"))
    text = (files("arena.cli") / "starts" / start).read_text("utf-8")
    write_atomic(file, re.sub(r"\bCLASS\b", title, re.sub(r"\bNAME(?=\b|_v0)", name, text)))
    print(f"{file}: written, to be changed")
    if start.endswith(".yaml"):
        _write_schema(kind, to)
    print(f"check it: {check.format(file=file, title=title)}")


def _write_schema(kind: str, folder: Path) -> None:
    """Write the schema that the file's first line names, as it is in this version."""
    from arena.config.schema import FILES

    shipped = FILES[kind]
    shutil.copyfile(shipped, folder / shipped.name)
    print(f"{folder / shipped.name}: its schema, for editors")
