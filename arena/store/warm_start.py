"""Checkpoint of an unfinished warm start: all trained policies between two steps of imitation (supervised learning).

It is written like other checkpoints, into the folder `imitation`, and checkpoint 0 replaces it. Without it, the
imitation starts again.
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


class ImitationProgress(State):
    """Manifest of the unfinished imitation: the number of finished steps, and the state of each policy."""

    experiment: str
    """Hash of the run's settings (`arena.config.saved_config.identity`)."""
    policy: str
    """Policy that is being trained."""
    steps: Count
    """Number of finished steps of this policy's imitation."""
    total: Count
    """Total number of steps of this policy's imitation."""
    policies: dict[str, PolicyState]

    def states(self) -> dict[str, dict[str, Any]]:
        """Return the state of each policy as a dict, by name, without fields that were not set."""
        return {name: state.model_dump(exclude_unset=True) for name, state in self.policies.items()}


def save(run: Path, metadata: Mapping[str, Any], fill: Callable[[Path], None]) -> None:
    """Save the imitation's progress in the run's folder `imitation` atomically, replacing earlier progress.

    `fill` writes the policies into a temporary folder. `metadata` becomes part of the manifest.
    """

    def fill_and_seal(temporary: Path) -> None:
        fill(temporary)
        manifest.seal(temporary, {"schema": CHECKPOINT_VERSION, "iteration": 0, **metadata})

    write_folder(run / FOLDER, fill_and_seal)


def read_progress(run: Path) -> ImitationProgress | None:
    """Return the manifest of the unfinished imitation; None if there is none. Raises StoreError if it is damaged."""
    return _read(run, manifest.read_manifest) if (run / FOLDER).is_dir() else None


def load_unfinished(run: Path, experiment: str) -> tuple[Checkpoint, ImitationProgress] | None:
    """Verify the files of the unfinished imitation and return its checkpoint and manifest; None if there is none.

    Raises StoreError if it is damaged, or if the hash of its settings is not `experiment`.
    """
    if not (run / FOLDER).is_dir():
        return None
    found = _read(run, manifest.verify)
    if found.experiment != experiment:
        raise StoreError(f"imitation {run / FOLDER} is of a run with other settings")
    return Checkpoint(run / FOLDER, 0), found


def discard(run: Path) -> None:
    """Delete the unfinished imitation, if any."""
    if (run / FOLDER).exists():
        remove(run / FOLDER)


def _read(run: Path, read_manifest: Callable[[Path, str], dict[str, Any]]) -> ImitationProgress:
    body = read_manifest(run / FOLDER, "imitation")
    try:
        return ImitationProgress.model_validate(body)
    except ValidationError:
        raise StoreError(f"imitation {run / FOLDER} is damaged: its manifest has another format") from None
