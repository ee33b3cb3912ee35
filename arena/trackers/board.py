"""TensorBoard: event files in the run's folder, written in the run's own process, iteration by iteration."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from arena.errors import StoreError
from arena.trackers.samples import SampleMatch


class Board:
    """Writes event files; a resumed run hides what it is about to do again."""

    def __init__(self, folder: Path, done: int) -> None:
        """StoreError where something that is no folder has its name."""
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"{folder} is no folder, and TensorBoard's files belong there: move it away")
        self.folder, self.done = folder, done

    def log(self, iteration: int, figures: Mapping[str, float], samples: list[SampleMatch]) -> None:
        """Write the figures as scalars and the matches as a table, all of them at once."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, iteration)
        if samples:
            self._writer.add_text("matches", _table(samples), iteration)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file, where there is one."""
        if "_writer" in vars(self):
            self._writer.close()

    @cached_property
    def _writer(self) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(self.folder), purge_step=self.done + 1 if self.done else None)


def _table(samples: list[SampleMatch]) -> str:
    """Markdown in which no text can end its cell or begin markup."""
    heads = "|".join(SampleMatch._fields)
    rows = ["|".join(_cell(text) for text in sample) for sample in samples]
    return "\n".join([f"|{heads}|", "|---" * len(SampleMatch._fields) + "|", *(f"|{row}|" for row in rows)])


def _cell(text: str) -> str:
    return text.translate(_MARKS).replace("\n", "<br>")


_MARKS = str.maketrans({mark: f"&#{ord(mark)};" for mark in "&<>\"'|`*_[]()!~#\\"})
"""What means something in Markdown or HTML, as the entity that does not."""
