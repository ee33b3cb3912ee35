"""The text that each token of a run's policy stands for, by the tokenizer in its checkpoint; loads no weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from arena.store import checkpoints

LARGEST = 50 * 10**6
"""Bytes of a tokenizer's file."""


def pieces(run: Path, policy: str, ids: Sequence[int]) -> list[str]:
    """A text for each id, [] where the run keeps no tokenizer of this policy; parts of characters are shown as `�`."""
    name = policy.partition("@")[0]
    for number in reversed(checkpoints.iterations(run)):
        folder = checkpoints.folder_of(run, number) / "policies"
        held = {path.name: path / "tokenizer.json" for path in folder.iterdir()} if folder.is_dir() else {}
        if (path := held.get(name)) and path.is_file() and path.stat().st_size <= LARGEST:
            tokenizer = _read(path)
            return [tokenizer.decode([id], skip_special_tokens=False) for id in ids] if tokenizer else []
    return []


@lru_cache(4)
def _read(path: Path) -> Any:
    """The tokenizer of a file; None for what is none, or where the library is missing."""
    try:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(path))
    except Exception:  # noqa: BLE001 the library raises plain Exception for files that it cannot read
        return None
