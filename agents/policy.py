"""A policy: named weights with a version, and the chat frame they speak through."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.chat import ChatFrame


@dataclass
class Policy:
    """Weights under a name. `version` counts the updates published; a frozen policy stays at 0."""

    name: str
    source: Path
    """The folder its first weights came from."""
    model: Any
    tokenizer: Any
    frame: ChatFrame
    trained: bool
    version: int = 0
