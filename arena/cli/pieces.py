"""The text that each token of a run's policy stands for, by the tokenizer in its checkpoint; loads no weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from arena.store import checkpoints
from games.plain_files import read_plain

LARGEST = 50 * 10**6
"""Bytes of a tokenizer's file."""


def pieces(run: Path, policy: str, ids: Sequence[int]) -> list[str]:
    """A text for each id, [] where no tokenizer of this policy is at hand; parts of characters are shown as `�`."""
    name = policy.partition("@")[0]
    for number in reversed(checkpoints.iterations(run)):
        folder = checkpoints.folder_of(run, number) / "policies"
        held = {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}
        if name in held and (path := _file(held[name])):
            tokenizer = _read(path)
            if tokenizer is None:
                return []
            return [tokenizer.decode([id], skip_special_tokens=False) if id >= 0 else "" for id in ids]
    return []


def _file(folder: Path) -> Path | None:
    """The tokenizer's file of a model's folder or, of an adapter's, of its base where that is on this machine."""
    from agents.weights import available

    if not (folder / "tokenizer.json").is_file():
        try:
            base = json.loads(read_plain(folder / "adapter_config.json", LARGEST))["base_model_name_or_path"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        known = {model.name: model.path for model in available() if model.state == "ready"}
        folder = known.get(str(base), Path(str(base)))
    path = folder / "tokenizer.json"
    return path if path.is_file() and path.stat().st_size <= LARGEST else None


@lru_cache(4)
def _read(path: Path) -> Any:
    """The tokenizer of a file; None for what is none, or where the library is missing."""
    try:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(path))
    except Exception:  # noqa: BLE001 the library raises plain Exception for files that it cannot read
        return None
