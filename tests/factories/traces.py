"""What a run left on disk, without clock times, to compare runs by; and damage to it."""

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena.store.reader import RunReader

CLOCKED = ("contents.json", "manifest.json")
"""Files of a checkpoint with hashes of logs and metrics, which have clock times in them."""
CLOCKS = ("seconds", "started", "matches_per_second", "tokens_per_second")


@dataclass(frozen=True)
class RunTrace:
    """All that must be the same whether or not a run was interrupted."""

    matches: list[dict[str, Any]]
    credit: list[Any]
    metrics: list[dict[str, Any]]
    files: dict[str, str]
    """SHA-256 of every file in every checkpoint, but for those that hash clock times."""


def read_trace(run: Path) -> RunTrace:
    """What the run left, without clock times."""
    reader = RunReader(run)
    files = sorted(p for p in (run / "checkpoints").rglob("*") if p.is_file() and p.name not in CLOCKED)
    return RunTrace(
        [_drop_times(row) for row in reader.matches()],
        [row for k in reader.iterations() for row in reader.credit(k)],
        [_drop_times(row) for row in reader.metrics()],
        {str(p.relative_to(run)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files},
    )


def _drop_times(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _drop_times(item) for key, item in value.items() if key not in CLOCKS}
    return [_drop_times(item) for item in value] if isinstance(value, list) else value


def assert_same(found: RunTrace, expected: RunTrace) -> None:
    """Both runs left the same; says which part is not."""
    for part in ("files", "matches", "credit", "metrics"):
        assert getattr(found, part) == getattr(expected, part), part


def flip_byte(path: Path, seed: int = 0) -> None:
    """Damage one byte of a file, of the same length as before."""
    data = bytearray(path.read_bytes())
    data[random.Random(seed).randrange(len(data))] ^= 0x55
    path.write_bytes(data)


def parse_json_lines(text: str) -> list[dict[str, Any]]:
    """The objects of output in JSON lines."""
    return [json.loads(line) for line in text.splitlines()]
