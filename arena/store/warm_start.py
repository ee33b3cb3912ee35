"""A warm start that is not over yet: all trained policies between two steps of an imitation.

Written as checkpoints are, into a folder of its own, which checkpoint 0 replaces. Nothing but time is lost with it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from arena.errors import StoreError
from arena.store import manifest
from arena.store.checkpoints import CHECKPOINT_VERSION, Checkpoint
from arena.store.files import remove, write_folder
from arena.store.state import Count, PolicyState, State

FOLDER = "imitation"


class Imitated(State):
    """Manifest of an imitation that is not over."""

    experiment: str
    """Hash of the settings that it is of (`arena.config.saved_config.identity`)."""
    policy: str
    """The one that imitates just now."""
    steps: Count
    """Steps of its imitation that were taken."""
    total: Count
    """Steps of its imitation altogether."""
    policies: dict[str, PolicyState]

    def states(self) -> dict[str, dict[str, Any]]:
        """State of each policy, as it was kept."""
        return {name: one.model_dump(exclude_unset=True) for name, one in self.policies.items()}


def keep(run: Path, about: Mapping[str, Any], fill: Callable[[Path], None]) -> None:
    """Commit how far the imitation is: `fill` writes the policies; replaces what was kept before."""

    def whole(beside: Path) -> None:
        fill(beside)
        manifest.seal(beside, {"schema": CHECKPOINT_VERSION, "iteration": 0, **about})

    write_folder(run / FOLDER, whole)


def progress(run: Path) -> Imitated | None:
    """Return how far the imitation is, by its manifest alone; None where none is kept. StoreError for a torn one."""
    return _read(run, manifest.described) if (run / FOLDER).is_dir() else None


def unfinished(run: Path, experiment: str) -> tuple[Checkpoint, Imitated] | None:
    """Return the kept imitation, every byte checked; None where none is. StoreError for one torn, or of another run."""
    if not (run / FOLDER).is_dir():
        return None
    found = _read(run, manifest.verify)
    if found.experiment != experiment:
        raise StoreError(f"imitation {run / FOLDER} is of a run with other settings")
    return Checkpoint(run / FOLDER, 0), found


def discard(run: Path) -> None:
    """Remove what is kept."""
    if (run / FOLDER).exists():
        remove(run / FOLDER)


def _read(run: Path, read: Callable[[Path, str], dict[str, Any]]) -> Imitated:
    body = read(run / FOLDER, "imitation")
    try:
        return Imitated.model_validate(body)
    except ValidationError:
        raise StoreError(f"imitation {run / FOLDER} is torn: its manifest is of something else") from None
