"""The run's figures for TensorBoard, beside the JSON lines that are the record."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from arena.errors import StoreError


class Board:
    """Writes event files; a resumed run hides what it is about to do again."""

    def __init__(self, folder: Path, done: int) -> None:
        """StoreError where something that is no folder has its name."""
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"{folder} is no folder, and TensorBoard's files belong there: move it away")
        self.folder, self.done = folder, done

    def add(self, row: Mapping[str, Any]) -> None:
        """One iteration's row of metrics, nested names joined by slashes."""
        for name, value in _flat(row):
            self._writer.add_scalar(name, value, row["iteration"])
        self._writer.flush()

    def close(self) -> None:
        """Close the event file, where there is one."""
        if "_writer" in vars(self):
            self._writer.close()

    @cached_property
    def _writer(self) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(self.folder), purge_step=self.done + 1 if self.done else None)


def _flat(row: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}/")
        elif isinstance(value, int | float) and key != "iteration":
            yield f"{above}{key}", float(value)
