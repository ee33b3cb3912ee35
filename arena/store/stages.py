"""Folder of a pipeline: RUN/stages/NN-name/ are the run folders of its stages; a finished one has a `done.json`.

`done.json` is written atomically at a stage's end. It has the hashes of the final weights and of itself, so that later
stages never start from incomplete or changed weights.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena.errors import StoreError
from arena.plain import to_plain
from arena.store.contents import METRICS, check_newest
from arena.store.files import CONFIG, STAGES, explain_errors, join_inside
from arena.store.manifest import fingerprint, read_sealed, write_sealed
from arena.store.reader import read_metrics

DONE = "done.json"
MAX_STAGES = 99
"""Maximum number of stages of a pipeline."""
_FOLDER = re.compile(r"(\d{2})-([a-z0-9][a-z0-9_-]{0,63})")


@dataclass(frozen=True)
class StageEnd:
    """Results of a finished stage: the folders of its final weights by policy name, and its last metrics."""

    weights: Mapping[str, Path]
    metrics: Mapping[str, Any]


def stage_folder(run: Path, number: int, name: str) -> Path:
    """Return the folder of a pipeline's stage, whether or not it exists. `number` counts from 1.

    Raises StoreError for an invalid name.
    """
    if not _FOLDER.fullmatch(folder := f"{number:02d}-{name}"):
        raise StoreError(f"{run} has no stage called {name[:80]!r}")
    return run / STAGES / folder


def is_pipeline(run: Path) -> bool:
    """Return True if the run folder is a pipeline's."""
    return (run / STAGES).is_dir() and (run / CONFIG).is_file()


def find_pipeline(path: Path) -> Path | None:
    """Return the pipeline of which `path` is the folder or the folder of a stage; None for any other path."""
    try:
        path = path.resolve()
    except (OSError, RuntimeError):  # circular links
        return None
    return next((folder for folder in (path, path.parent.parent) if _contains(folder, path)), None)


def _contains(pipeline: Path, path: Path) -> bool:
    is_stage = path.parent == pipeline / STAGES and _FOLDER.fullmatch(path.name) is not None
    return is_pipeline(pipeline) and (path == pipeline or is_stage)


def find_begun_stages(run: Path) -> list[Path]:
    """Return the folders of a pipeline's stages that have begun, in order."""
    with explain_errors(run, "reading"):
        found = [path for path in (run / STAGES).iterdir() if path.is_dir() and _FOLDER.fullmatch(path.name)]
    return sorted(path for path in found if (path / CONFIG).is_file())


def count_finished_stages(run: Path) -> int:
    """Return the number of a pipeline's finished stages; 0 if the folder is not a pipeline's."""
    return len(list((run / STAGES).glob(f"*/{DONE}")))


def resolve_newest_run(path: Path) -> Path:
    """Return the folder of a pipeline's newest stage, and the path of any other run unchanged.

    Raises StoreError if no stage has begun.
    """
    if not is_pipeline(path):
        return path
    if not (stages := find_begun_stages(path)):
        raise StoreError(f"no stage of {path} has begun yet: arena resume {path}")
    return stages[-1]


def write_stage_end(stage: Path, kind: str, weights: Mapping[str, Path]) -> StageEnd:
    """Write the stage's `done.json`, with the hashes of these weights folders below `stage`, and return the results."""
    entries = {
        policy: {"folder": folder.relative_to(stage).as_posix(), "files": _fingerprints(folder)}
        for policy, folder in weights.items()
    }
    metrics = read_metrics(stage / METRICS)
    body = to_plain({"kind": kind, "weights": entries, "metrics": metrics[-1] if metrics else {}}, DONE, gaps=True)
    write_sealed(stage / DONE, body)
    return StageEnd(weights, body["metrics"])


def read_stage_end(stage: Path) -> StageEnd | None:
    """Return a finished stage's results after verifying its weights and logs; None if it is not finished.

    Raises StoreError if `done.json`, the weights or the logs are not as they were written.
    """
    if (body := read_done(stage)) is None:
        return None
    weights = {}
    for policy, entry in body["weights"].items():
        folder = join_inside(stage, entry["folder"])
        with explain_errors(folder, "reading"):
            files = _fingerprints(folder) if folder.is_dir() else {}
        changed = sorted({n for n in {*files, *entry["files"]} if files.get(n) != entry["files"].get(n)})
        if changed:
            damage = f"{folder / changed[0]} is {'missing' if changed[0] not in files else 'not as it was written'}"
            raise StoreError(f"{damage}, and later stages start from it: restore it from a copy, or start a new run")
        weights[policy] = folder
    check_newest(stage)
    return StageEnd(weights, body["metrics"])


def read_done(stage: Path) -> dict[str, Any] | None:
    """Return a stage's `done.json` after verifying only its own hash; None if missing. Raises StoreError if damaged."""
    path = stage / DONE
    if not path.exists():
        return None
    body = read_sealed(path)
    try:
        is_valid = all(
            isinstance(entry["folder"], str) and isinstance(entry["files"], dict) for entry in body["weights"].values()
        )
    except (KeyError, AttributeError, TypeError):
        is_valid = False
    if not is_valid:
        raise StoreError(f"{path} is not as it was written: restore it from a copy, or start a new run")
    return body


def _fingerprints(folder: Path) -> dict[str, dict[str, Any]]:
    """Return hash and size of each file in a folder, by path. Raises StoreError for a link."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise StoreError(f"{path} is a link: put a copy in its place")
        if path.is_file():
            found[path.relative_to(folder).as_posix()] = fingerprint(path)
    return found
