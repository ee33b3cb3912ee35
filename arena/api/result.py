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
    """A run folder after `arena.run` or `arena.resume`; `analysis.load(result.folder)` reads its matches."""

    def __init__(self, folder: str | PathLike[str], notes: Sequence[str] = ()) -> None:
        """StoreError where there is no run in the folder."""
        self.folder = require_run(Path(folder))
        """The run's folder."""
        self.notes = list(notes)
        """Notices that the run gave, a line each."""

    def __repr__(self) -> str:
        """`Result(runs/x: 3 of 20 iterations)`."""
        return f"Result({self.folder}: {self.done} of {self.iterations} iterations)"

    @property
    def done(self) -> int:
        """Number of iterations that are committed."""
        return max(checkpoints.iterations(self.folder), default=0)

    @property
    def iterations(self) -> int:
        """Number of iterations that the run is to have."""
        return experiment_of(self.folder).iterations

    @property
    def complete(self) -> bool:
        """Return True if all its iterations are committed; else `arena.resume(result.folder)` goes on."""
        return self.done >= self.iterations

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Figures of each iteration, as metrics.jsonl has them."""
        return RunReader(self.folder).metrics()

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Figures of each iteration as a table: a row each, nested names joined by dots (`reward.buyer`)."""
        import pandas as pd

        return pd.json_normalize(self.rows)

    @property
    def checkpoint(self) -> Path | None:
        """The folder of the newest checkpoint; None before the first."""
        done = checkpoints.iterations(self.folder)
        return checkpoints.folder_of(self.folder, max(done)) if done else None

    @property
    def policies(self) -> dict[str, Path]:
        """Folder of the newest weights by policy, which `from_pretrained` of transformers reads."""
        inside = self.checkpoint / "policies" if self.checkpoint else None
        return {path.name: path for path in sorted(inside.iterdir())} if inside and inside.is_dir() else {}
