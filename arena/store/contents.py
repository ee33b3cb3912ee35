"""Contents of a commit: hashes of the run's logs, credit, metrics and evaluations, stored in the checkpoint.

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
from arena.store.files import explained, inside
from arena.store.manifest import MANIFEST, described, fingerprint
from arena.store.reader import parse_log_name
from games.plain_files import open_plain, read_plain

CONTENTS = "contents.json"
METRICS = "metrics.jsonl"
PANEL = "panel.jsonl"
GROWING = (METRICS, PANEL)
"""Append-only files. They may grow after a commit."""
Fingerprints = dict[str, dict[str, Any]]


def contents(run: Path, iteration: int, known: Mapping[str, dict[str, Any]]) -> Fingerprints:
    """Return fingerprints of the run's files up to an iteration. Sealed files in `known` are not hashed again."""
    files = [(p.name, parse_log_name(p.name)) for p in (run / "log").glob("*.parquet")]
    names = [f"log/{name}" for name, own in files if own and own[0] <= iteration]
    found = {name: known.get(name) or fingerprint(run / name) for name in sorted(names)}
    return found | {name: fingerprint(run / name) for name in GROWING if (run / name).exists()}


def check(run: Path, checkpoint: Checkpoint) -> Fingerprints:
    """Verify the files that a checkpoint lists, and return their fingerprints.

    Raises StoreError for a missing list and for the first file that changed.
    """
    found = _read(checkpoint.folder / CONTENTS)
    for name, expected in found.items():
        _check_file(run, name, expected, checkpoint.iteration)
    return found


def check_newest(run: Path, note: Callable[[str], None] = lambda why: None) -> None:
    """Verify the files listed by the newest checkpoint with an intact list. Weights are not verified.

    Calls `note` with a message if no checkpoint has an intact list: then changes of the logs cannot be detected.
    Raises StoreError for the first file that changed.
    """
    torn: list[str] = []
    for number in reversed(checkpoints.iterations(run)):
        try:
            checkpoint = _listed(checkpoints.folder_of(run, number), number)
        except (StoreError, OSError) as error:
            torn.append(str(error))  # or the run has just removed it: try an older one
            continue
        check(run, checkpoint)
        return
    if torn:
        note(f"changes of the logs cannot be detected: no checkpoint is intact ({torn[0]})")


def check_committed(run: Path, iteration: int) -> None:
    """Verify the files listed by this iteration's checkpoint, but not weights. Raises StoreError as `check`."""
    check(run, _listed(checkpoints.folder_of(run, iteration), iteration))


def _listed(folder: Path, number: int) -> Checkpoint:
    """Return the checkpoint in a folder. Raises StoreError unless its list of contents matches the manifest."""
    expected = described(folder)["files"].get(CONTENTS)
    if expected is None:
        raise StoreError(f"checkpoint {folder} is torn: {CONTENTS} is not in its {MANIFEST}")
    if fingerprint(folder / CONTENTS) != expected:
        raise StoreError(f"checkpoint {folder} is torn: {CONTENTS} is not as it was written")
    return Checkpoint(folder, number)


def _read(path: Path) -> Fingerprints:
    with explained(path, "reading"):
        text = read_plain(path)
    try:
        found = json.loads(text)
        right = all(isinstance(found[name]["size"], int) and found[name].keys() == {"sha256", "size"} for name in found)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        right = False
    if not right or not isinstance(found, dict):
        raise StoreError(f"{path} is no list of contents: restore it from a copy")
    return found


def _check_file(run: Path, name: str, expected: Mapping[str, Any], iteration: int) -> None:
    """Raise StoreError unless the file matches. Of append-only files the committed part is compared."""
    path = inside(run, name)
    advice = f"iteration {iteration} counts on it: restore it from a copy"
    if not path.is_file():
        raise StoreError(f"{path} is missing, and {advice}")
    with explained(path, "reading"), open_plain(path) as file:
        if name in GROWING:
            written = file.read(expected["size"])
            found = {"sha256": hashlib.sha256(written).hexdigest(), "size": len(written)}
        else:
            found = fingerprint(path)
    if found != expected:
        raise StoreError(f"{path} is not as it was written, and {advice}")
