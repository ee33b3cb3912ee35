"""Weights & Biases, in files of the run's folder: offline, unless WANDB_MODE in the environment says otherwise."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arena.trackers.base import FOLDER
from arena.trackers.samples import SampleMatch

PROJECT = "arena"
USUAL = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB_CONSOLE": "off",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_X_DISABLE_STATS": "true",
}
"""Settings that the user's environment may change. The machine's load would be that of this process, not the run's."""


class WandbRun:
    """One run at Weights & Biases, of the same id whenever it goes on."""

    def __init__(self, run: Path, id: str, experiment: Mapping[str, Any]) -> None:
        """Whatever wandb raises."""
        for name, value in {**USUAL, "WANDB_DIR": str(run / FOLDER), "WANDB_PROJECT": PROJECT}.items():
            os.environ.setdefault(name, value)
        import wandb

        self._table = wandb.Table
        self._run = wandb.init(name=run.name, id=id, group=experiment.get("name"), resume="allow", config=experiment)

    def log(self, iteration: int, figures: Mapping[str, float], samples: list[SampleMatch]) -> None:
        """The figures, and the matches as a table, at the iteration as the step."""
        shown = self._table(columns=["iteration", *SampleMatch._fields], data=[[iteration, *one] for one in samples])
        self._run.log({**figures, "matches": shown} if samples else dict(figures), step=iteration)

    def close(self) -> None:
        """Write, or in online mode send, what is left."""
        self._run.finish()
