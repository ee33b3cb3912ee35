"""Import of modules that a game's name refers to (`pettingzoo:package.module`, `gymnasium:module:Name-v0`)."""

import importlib
from types import ModuleType

REFUSED: dict[str, str] = {}
"""Reason why no game may be imported from a module, by module name."""


def import_module(name: str) -> ModuleType:
    """Import and return a module. Raises ValueError, with the reason, if the module has been refused."""
    if name in REFUSED:
        raise ValueError(REFUSED[name])
    return importlib.import_module(name)


def module_of(name: str) -> str:
    """Return the module in the name of a Gymnasium environment, `module:Name-v0(…)`, or ""."""
    return name.partition("(")[0].rpartition(":")[0].strip()
