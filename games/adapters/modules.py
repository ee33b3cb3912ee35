"""Import of the modules in games' names, such as `pettingzoo:package.module` and `gymnasium:module:Name-v0`."""

import importlib
import re
from types import ModuleType

CHILD_ENVIRONMENT = re.compile(r"(?:verifiers|openenv):\s*(?!(?:http|ws)s?://)([\w./-]+)")
"""Name of a game whose environment runs in a child process. The group is the environment's module."""
REFUSED: dict[str, str] = {}
"""Modules from which no game may be imported, with the reasons."""


def import_module(name: str) -> ModuleType:
    """Import and return a module. Raises ValueError, with the reason, if it is in `REFUSED`."""
    if name in REFUSED:
        raise ValueError(REFUSED[name])
    return importlib.import_module(name)


def parse_module(name: str) -> str:
    """Return the module in a Gymnasium environment's name `module:Name-v0(…)`, or "" if the name has none."""
    return name.partition("(")[0].rpartition(":")[0].strip()


def find_child_module(name: str) -> str:
    """Return the module that a game's child process imports, or "" if the game has no such process.

    Such names are `verifiers:id`, `verifiers:module:callable` and `openenv:module:app`.
    """
    match = CHILD_ENVIRONMENT.match(name)
    return match[1].split("/")[-1].replace("-", "_") if match else ""


def require_allowed(name: str) -> None:
    """Raise ValueError, with the reason, if the module that the game's child process imports is in `REFUSED`."""
    if (module := find_child_module(name)) in REFUSED:
        raise ValueError(REFUSED[module])
