"""Libraries to which games can be exported as environments, and the writer of the exported project."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from arena.export.environments.episode import Task
from arena.export.environments.names import slugify
from arena.store.export import new_folder
from games.adapters.loading import file_of


@dataclass(frozen=True)
class Target:
    """Library to which environments can be exported."""

    needs: str
    """Requirement specifier for pip."""
    is_for_all_seats: bool = False
    """True if the library plays all seats, not only the learner's."""
    is_in_process: bool = True
    """True if the environment imports Arena. Otherwise it runs Arena in a child process."""


TARGETS: Mapping[str, Target] = {
    "gymnasium": Target("gymnasium>=1.2"),
    "openenv": Target("openenv-core>=0.3"),
    "pettingzoo": Target("pettingzoo>=1.27", is_for_all_seats=True),
    "textarena": Target("textarena>=0.7.4", is_for_all_seats=True),
    "trl": Target("trl>=1.16"),
    "verifiers": Target("verifiers>=0.1.14,<0.2", is_in_process=False),
}
"""Targets by name. The names are also those of the templates."""


def write_environment(task: Task, target: str, to: Path) -> str:
    """Write a Python project whose only module defines the environment, and return the module's name.

    The task must be resolved. Raises StoreError if the folder `to` is not empty.
    """
    module = f"arena_{slugify(task.game)}"
    texts = {f"{module}.py": f"{target}.py.txt", "pyproject.toml": "pyproject.toml.txt"}
    with new_folder(to) as folder:
        folder.mkdir(parents=True)
        for name, template in texts.items():
            text = (files(__package__) / "templates" / template).read_text("utf-8")
            (folder / name).write_text(_fill(text, task, target, module), encoding="utf-8")
    return module


def _fill(template: str, task: Task, target: str, module: str) -> str:
    """Replace a template's placeholders, which are words in capitals. The task is written as Python literals."""
    library = TARGETS[target]
    if file := file_of(task.game):
        task = replace(task, game=f"{file.resolve()}:{task.game.rpartition(':')[2]}")
    seats = {} if library.is_for_all_seats else {"seat": task.seat, "against": task.against}
    fields = {"game": task.game, "options": dict(task.options), **seats}
    call = f"Task({', '.join(f'{name}={value!r}' for name, value in fields.items())})"
    values = {
        "TASK": call if library.is_in_process else repr(fields),
        "INTERPRETER": repr(sys.executable),
        "MODULE": module,
        "SLUG": slugify(task.game),
        "PROJECT": module.replace("_", "-"),
        "NEEDS": json.dumps((["arena-selfplay"] if library.is_in_process else []) + [library.needs]),
    }
    return re.sub(r"\b(?:TASK|INTERPRETER|MODULE|SLUG|PROJECT|NEEDS)\b", lambda match: values[match[0]], template)
