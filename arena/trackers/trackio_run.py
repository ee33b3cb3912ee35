"""Tracker for trackio, with a local database in the run folder unless TRACKIO_… variables name a server."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arena.trackers.samples import SampleMatch


class Run:
    """Tracker (`arena.trackers.threads.Tracker`) that records a run in trackio; a resumed run keeps its name."""

    def __init__(self, run: Path, id: str, experiment: Mapping[str, Any]) -> None:
        """Open or resume the run, named by its folder and `id`, with `experiment` as its config.

        Sets TRACKIO_DIR to `RUN/trackers/trackio` if unset. Trackio reads it once per process, at import.
        """
        os.environ.setdefault("TRACKIO_DIR", str(run / "trackers" / "trackio"))
        import pandas
        import trackio

        vars(trackio)["print"] = _ignore  # it announces runs on stdout, which must have only JSON with `--json`
        self._frame, self._table, self._finish = pandas.DataFrame, trackio.Table, trackio.finish
        self._run = trackio.init(
            "arena", f"{run.name}-{id[:8]}", group=experiment.get("name"), config=dict(experiment), resume="allow",
            embed=False, auto_log_gpu=False, auto_log_cpu=False,
        )  # fmt: skip

    def log(self, iteration: int, figures: Mapping[str, float], samples: list[SampleMatch]) -> None:
        """Record the figures, and the sample matches as a table, with the iteration as step."""
        tables = {"matches": self._table(dataframe=self._frame(samples))} if samples else {}
        self._run.log({**figures, **tables}, step=iteration)

    def close(self) -> None:
        """Write all buffered data, or send it to the server."""
        self._finish()


def _ignore(*_: object, **settings: object) -> None:
    pass
