"""Modules that a game's name asks for (`pettingzoo:package.module`): imported unless somebody refused them."""

import importlib
from types import ModuleType

REFUSED: dict[str, str] = {}
"""By module, why no game comes from it."""


def import_module(name: str) -> ModuleType:
    """Import a module. Raises ValueError if it is refused."""
    if name in REFUSED:
        raise ValueError(REFUSED[name])
    return importlib.import_module(name)
