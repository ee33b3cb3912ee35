"""Results of a run: its folder, figures and checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena.config.saved_config import experiment_of
from arena.store import checkpoints
from arena.store.files import require_run
from arena.store.reader import RunReader

if TYPE_CHECKING:
    import pandas as pd


class Result:
    """Result of `arena.run` or `arena.resume`: a run folder. `analysis.load(result.folder)` reads its matches."""

    def __init__(self, folder: str | PathLike[str], notes: Sequence[str] = ()) -> None:
        """Open the run folder. Raises StoreError if it holds no run."""
        self.folder = require_run(Path(folder))
        """The run's folder."""
        self.notes = list(notes)
        """Notices of the run, one line each."""

    def __repr__(self) -> str:
        """`Result(runs/x: 3 of 20 iterations)`."""
        return f"Result({self.folder}: {self.done} of {self.iterations} iterations)"

    @property
    def done(self) -> int:
        """Number of committed iterations."""
        return max(checkpoints.iterations(self.folder), default=0)

    @property
    def iterations(self) -> int:
        """Total number of iterations of the experiment."""
        return experiment_of(self.folder).iterations

    @property
    def complete(self) -> bool:
        """True if all iterations are committed; otherwise `arena.resume(result.folder)` continues."""
        return self.done >= self.iterations

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Metrics of each iteration, as in metrics.jsonl."""
        return RunReader(self.folder).metrics()

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Metrics as a table with a row per iteration; dots join nested names (`reward.buyer`)."""
        import pandas as pd

        return pd.json_normalize(self.rows)

    @property
    def checkpoint(self) -> Path | None:
        """Folder of the newest checkpoint; None before the first."""
        done = checkpoints.iterations(self.folder)
        return checkpoints.folder_of(self.folder, max(done)) if done else None

    @property
    def policies(self) -> dict[str, Path]:
        """Folder of the newest weights by policy, for `from_pretrained` of transformers."""
        inside = self.checkpoint / "policies" if self.checkpoint else None
        return {path.name: path for path in sorted(inside.iterdir())} if inside and inside.is_dir() else {}
