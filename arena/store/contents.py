"""Contents of a checkpoint: hashes of the run's logs, credit, metrics and evaluations at that time.

The checkpoint's manifest hashes the list itself, so any change of committed files is detected.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from arena.errors import StoreError
from arena.store import checkpoints
from arena.store.checkpoints import Checkpoint
from arena.store.files import explain_errors, join_inside
from arena.store.manifest import MANIFEST, fingerprint, read_manifest
from arena.store.reader import parse_log_name
from games.plain_files import open_plain, read_plain

CONTENTS = "contents.json"
METRICS = "metrics.jsonl"
PANEL = "panel.jsonl"
APPEND_ONLY = (METRICS, PANEL)
"""Append-only files. They may grow after a commit."""
Fingerprints = dict[str, dict[str, Any]]


def fingerprint_files(run: Path, iteration: int, known: Mapping[str, dict[str, Any]]) -> Fingerprints:
    """Return fingerprints (`sha256`, `size`) by relative path of the run's sealed logs and credit up to `iteration`.

    The files in `APPEND_ONLY` are included as they are now. Logs with a fingerprint in `known` are not hashed again.
    """
    files = [(p.name, parse_log_name(p.name)) for p in (run / "log").glob("*.parquet")]
    names = [f"log/{name}" for name, parsed in files if parsed and parsed[0] <= iteration]
    found = {name: known.get(name) or fingerprint(run / name) for name in sorted(names)}
    return found | {name: fingerprint(run / name) for name in APPEND_ONLY if (run / name).exists()}


def check_files(run: Path, checkpoint: Checkpoint) -> Fingerprints:
    """Compare the run's logs, metrics and evaluations with the checkpoint's list of fingerprints, and return that list.

    Of an append-only file, only the listed number of bytes is compared. Raises StoreError if the list is missing or
    invalid, or for the first listed file that is missing or differs.
    """
    contents = _read(checkpoint.folder / CONTENTS)
    for name, expected in contents.items():
        _check_file(run, name, expected, checkpoint.iteration)
    return contents


def check_newest(run: Path, note: Callable[[str], None] = lambda why: None) -> None:
    """Verify the logs and metrics that the newest checkpoint with an intact list names. Does not verify weights.

    Without such a checkpoint, nothing is verified. If there are only damaged ones, calls `note` with a message that
    changes cannot be detected. Raises StoreError for the first listed file that is missing or differs.
    """
    reasons: list[str] = []
    for number in reversed(checkpoints.iterations(run)):
        try:
            checkpoint = _verify_list(checkpoints.folder_of(run, number), number)
        except (StoreError, OSError) as error:
            reasons.append(str(error))  # or the run has just removed it: try an older one
            continue
        check_files(run, checkpoint)
        return
    if reasons:
        note(f"changes of the logs cannot be detected: no checkpoint is intact ({reasons[0]})")


def check_committed(run: Path, iteration: int) -> None:
    """Verify the logs and metrics that this iteration's checkpoint lists. Raises StoreError as `check_files` does."""
    check_files(run, _verify_list(checkpoints.folder_of(run, iteration), iteration))


def _verify_list(folder: Path, number: int) -> Checkpoint:
    """Verify the checkpoint's `contents.json` and return the checkpoint. Raises StoreError if the file is damaged."""
    expected = read_manifest(folder)["files"].get(CONTENTS)
    if expected is None:
        raise StoreError(f"checkpoint {folder} is damaged: {CONTENTS} is not in its {MANIFEST}")
    if fingerprint(folder / CONTENTS) != expected:
        raise StoreError(f"checkpoint {folder} is damaged: {CONTENTS} is not as it was written")
    return Checkpoint(folder, number)


def _read(path: Path) -> Fingerprints:
    with explain_errors(path, "reading"):
        text = read_plain(path)
    try:
        contents = json.loads(text)
        is_valid = all(
            isinstance(contents[name]["size"], int) and contents[name].keys() == {"sha256", "size"} for name in contents
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_valid = False
    if not is_valid or not isinstance(contents, dict):
        raise StoreError(f"{path} is not a list of contents: restore it from a copy")
    return contents


def _check_file(run: Path, name: str, expected: Mapping[str, Any], iteration: int) -> None:
    """Raise StoreError unless a run's file, or the beginning of an append-only one, has the expected hash and size."""
    path = join_inside(run, name)
    advice = f"iteration {iteration} counts on it: restore it from a copy"
    if not path.is_file():
        raise StoreError(f"{path} is missing, and {advice}")
    with explain_errors(path, "reading"), open_plain(path) as file:
        if name in APPEND_ONLY:
            content = file.read(expected["size"])
            actual = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        else:
            actual = fingerprint(path)
    if actual != expected:
        raise StoreError(f"{path} is not as it was written, and {advice}")
