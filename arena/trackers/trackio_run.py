"""Trackio, in a database of the run's folder: on this machine, unless TRACKIO_… in the environment names a server."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arena.trackers.base import FOLDER
from arena.trackers.samples import SampleMatch

PROJECT = "arena"


class TrackioRun:
    """One run in trackio, of the same name whenever it goes on."""

    def __init__(self, run: Path, id: str, experiment: Mapping[str, Any]) -> None:
        """Whatever trackio raises."""
        os.environ.setdefault("TRACKIO_DIR", str(run / FOLDER / "trackio"))
        import pandas
        import trackio

        self._frame, self._table, self._finish = pandas.DataFrame, trackio.Table, trackio.finish
        self._run = trackio.init(
            PROJECT, f"{run.name}-{id[:8]}", group=experiment.get("name"), config=dict(experiment), resume="allow",
            embed=False, auto_log_gpu=False, auto_log_cpu=False,
        )  # fmt: skip

    def log(self, iteration: int, figures: Mapping[str, float], samples: list[SampleMatch]) -> None:
        """The figures, and the matches as a table, at the iteration as the step."""
        shown = {"matches": self._table(dataframe=self._frame(samples))} if samples else {}
        self._run.log({**figures, **shown}, step=iteration)

    def close(self) -> None:
        """Write, or to a server send, what is left."""
        self._finish()
