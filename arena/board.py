"""The run's figures for TensorBoard, beside the JSON lines that are the record."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class Board:
    """Writes event files; a resumed run hides what it is about to do again."""

    def __init__(self, folder: Path, done: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=done + 1 if done else None)

    def add(self, row: Mapping[str, Any]) -> None:
        """One iteration's row of metrics, nested names joined by slashes."""
        for name, value in _flat(row):
            self._writer.add_scalar(name, value, row["iteration"])
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


def _flat(row: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}/")
        elif isinstance(value, int | float) and key != "iteration":
            yield f"{above}{key}", float(value)
