"""Table of engines by kind. An engine's module is imported when it is used, because settings are read without torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from games.names import nearest

if TYPE_CHECKING:
    from agents.engines.base import EngineClass

ENGINES = {
    "in_process": "agents.engines.in_process:InProcessEngine",
    "vllm": "agents.engines.vllm:VLLMEngine",
}
"""Module and class of each kind of engine. The class declares its `capabilities`."""


def check_kind(kind: str) -> str:
    """Return the kind unchanged. Raises ValueError, with the nearest name, for an unknown kind."""
    if kind not in ENGINES:
        hint = nearest(kind, ENGINES) or f" (there are: {', '.join(ENGINES)})"
        raise ValueError(f"unknown engine '{kind[:64]}'{hint}")
    return kind


def import_engine(kind: str) -> EngineClass:
    """Import and return the class of a kind of engine. Raises ValueError for an unknown kind."""
    module, _, name = ENGINES[check_kind(kind)].partition(":")
    found: EngineClass = getattr(import_module(module), name)
    return found


def list_kinds_with(capability: str) -> str:
    """Return the kinds of engines with a capability (a field of `Capabilities`), as text: `in_process or vllm`."""
    return " or ".join(kind for kind in ENGINES if getattr(import_engine(kind).capabilities, capability))
