"""Tracker for TensorBoard, which writes event files in the run folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arena.trackers.samples import SampleMatch


class Run:
    """Tracker (`arena.trackers.threads.Tracker`) that writes a run's TensorBoard event files."""

    def __init__(self, run: Path, id: str, experiment: Mapping[str, Any]) -> None:
        """Open a new event file in `RUN/tensorboard`. Ignores `id` and `experiment`."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run / "tensorboard"))

    def log(self, iteration: int, figures: Mapping[str, float], samples: list[SampleMatch]) -> None:
        """Write the figures as scalars and the sample matches as a Markdown table at step `iteration`, then flush."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, iteration)
        if samples:
            self._writer.add_text("matches", format_table(samples), iteration)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


def format_table(samples: list[SampleMatch]) -> str:
    """Return a Markdown table with a row per match. Special characters of Markdown and HTML become entities."""
    rows = ["|".join(text.translate(_ENTITIES).replace("\n", "<br>") for text in sample) for sample in samples]
    head = "|".join(SampleMatch._fields)
    return "\n".join([f"|{head}|", "|---" * len(SampleMatch._fields) + "|", *(f"|{row}|" for row in rows)])


_ENTITIES = str.maketrans({mark: f"&#{ord(mark)};" for mark in "&<>\"'|`*_[]()!~#\\"})
