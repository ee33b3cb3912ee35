"""A run's files without clock times, for comparison of runs; and damage to files."""

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena.store.reader import RunReader

CLOCKED = ("contents.json", "manifest.json")
"""Checkpoint files that depend on clock times by hashing logs and metrics."""
CLOCKS = ("seconds", "started", "matches_per_second", "tokens_per_second")


@dataclass(frozen=True)
class RunTrace:
    """Everything that must not depend on whether a run was interrupted."""

    matches: list[dict[str, Any]]
    credit: list[Any]
    metrics: list[dict[str, Any]]
    files: dict[str, str]
    """SHA-256 of every checkpoint file except `CLOCKED`."""


def read_trace(run: Path) -> RunTrace:
    """Read the run's logs, metrics and checkpoint hashes without clock times."""
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


def assert_same(actual: RunTrace, expected: RunTrace) -> None:
    """Assert that two runs are equal; names the part that differs."""
    for part in ("files", "matches", "credit", "metrics"):
        assert getattr(actual, part) == getattr(expected, part), part


def assert_same_runs(folder: Path, expected: Path) -> None:
    """Assert that two runs have equal logs, metrics and checkpoints."""
    assert_same(read_trace(folder), read_trace(expected))


def flip_byte(path: Path, seed: int = 0) -> None:
    """Damage one byte of a file without changing its length."""
    data = bytearray(path.read_bytes())
    data[random.Random(seed).randrange(len(data))] ^= 0x55
    path.write_bytes(data)


def parse_json_lines(text: str) -> list[dict[str, Any]]:
    """Parse JSON lines."""
    return [json.loads(line) for line in text.splitlines()]
