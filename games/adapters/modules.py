"""Import of modules that a game's name refers to (`pettingzoo:package.module`, `gymnasium:module:Name-v0`)."""

import importlib
import re
from types import ModuleType

RUN = re.compile(r"(?:verifiers|openenv):\s*(?!(?:http|ws)s?://)([\w./-]+)")
"""Name of an environment that runs in a separate process. The group is its module."""
REFUSED: dict[str, str] = {}
"""Reason why no game may be imported from a module, by module name."""


def import_module(name: str) -> ModuleType:
    """Import and return a module. Raises ValueError, with the reason, if the module has been refused."""
    if name in REFUSED:
        raise ValueError(REFUSED[name])
    return importlib.import_module(name)


def parse_module(name: str) -> str:
    """Return the module in the name of a Gymnasium environment, `module:Name-v0(…)`, or ""."""
    return name.partition("(")[0].rpartition(":")[0].strip()


def find_run_module(name: str) -> str:
    """Return the module that a name runs (`verifiers:id`, `verifiers:module:callable`, `openenv:module:app`), or ""."""
    match = RUN.match(name)
    return match[1].split("/")[-1].replace("-", "_") if match else ""


def require_allowed(name: str) -> None:
    """Raise ValueError, with the reason, if the module that a name runs has been refused."""
    if (module := find_run_module(name)) in REFUSED:
        raise ValueError(REFUSED[module])
