"""Tracker for Weights & Biases, with offline files in the run folder unless WANDB_MODE says otherwise."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arena.trackers.samples import SampleMatch

DEFAULTS = {
    "WANDB_SILENT": "true",
    "WANDB_CONSOLE": "off",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_X_DISABLE_STATS": "true",
}
"""Environment variables that are set unless the user has set them."""


class Run:
    """Tracker (`arena.trackers.threads.Tracker`) that records a run at Weights & Biases; a resumed run keeps its id."""

    def __init__(self, run: Path, id: str, experiment: Mapping[str, Any]) -> None:
        """Open or resume the run `id` with `experiment` as its config. Sets the unset variables of `DEFAULTS`."""
        for name, value in DEFAULTS.items():
            os.environ.setdefault(name, value)
        import wandb

        # The folder is an argument, not a variable, because it belongs to this run, and a process may have several.
        self._table = wandb.Table
        self._run = wandb.init(
            name=run.name, id=id, group=experiment.get("name"), resume="allow", config=experiment,
            dir=os.environ.get("WANDB_DIR", str(run / "trackers")), mode=os.environ.get("WANDB_MODE", "offline"),
            project=os.environ.get("WANDB_PROJECT", "arena"),
        )  # fmt: skip

    def log(self, iteration: int, figures: Mapping[str, float], samples: list[SampleMatch]) -> None:
        """Record the figures, and the sample matches as a table, with the iteration as step."""
        table = self._table(
            columns=["iteration", *SampleMatch._fields], data=[[iteration, *sample] for sample in samples]
        )
        self._run.log({**figures, "matches": table} if samples else dict(figures), step=iteration)

    def close(self) -> None:
        """Write all buffered data; in online mode, send it."""
        self._run.finish()
