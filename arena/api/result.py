"""Result of a run: its folder, metrics, checkpoints and policies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena.config.saved_config import load_experiment
from arena.store import checkpoints
from arena.store.files import require_run
from arena.store.reader import RunReader

if TYPE_CHECKING:
    import pandas as pd


class Result:
    """Result of `arena.run` and `arena.resume`: metrics, checkpoints and policies of a run folder.

    `analysis.load(result.folder)` reads the run's matches.
    """

    def __init__(self, folder: str | PathLike[str], notes: Sequence[str] = ()) -> None:
        """Open the run folder. Raises StoreError if it holds no run."""
        self.folder = require_run(Path(folder))
        """The run's folder."""
        self.notes = list(notes)
        """Notices of the run, one line each."""

    def __repr__(self) -> str:
        """Return the folder and the run's progress, such as `Result(runs/x: 3 of 20 iterations)`."""
        return f"Result({self.folder}: {self.done} of {self.iterations} iterations)"

    @property
    def done(self) -> int:
        """Number of the newest iteration that has a checkpoint; 0 before the first."""
        return max(checkpoints.iterations(self.folder), default=0)

    @property
    def iterations(self) -> int:
        """Total number of iterations in the run's experiment."""
        return load_experiment(self.folder).iterations

    @property
    def complete(self) -> bool:
        """True if no iteration remains; otherwise `arena.resume(result.folder)` continues the run."""
        return self.done >= self.iterations

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Metrics of each iteration, oldest first, as in metrics.jsonl."""
        return RunReader(self.folder).metrics()

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Metrics as a DataFrame with a row per iteration, read once. Dots join nested names, as in `reward.buyer`."""
        import pandas as pd

        return pd.json_normalize(self.rows)

    @property
    def checkpoint(self) -> Path | None:
        """Folder of the newest checkpoint; None before the first."""
        done = checkpoints.iterations(self.folder)
        return checkpoints.folder_of(self.folder, max(done)) if done else None

    @property
    def policies(self) -> dict[str, Path]:
        """Folder of each policy's newest weights by name, for `from_pretrained` of transformers.

        Empty before the first checkpoint.
        """
        folder = self.checkpoint / "policies" if self.checkpoint else None
        return {path.name: path for path in sorted(folder.iterdir())} if folder and folder.is_dir() else {}
