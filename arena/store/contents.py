"""Contents of a commit: hashes of the run's logs, credit, metrics and evaluations, in the checkpoint.

The manifest of the checkpoint covers them in turn, so nothing that was committed can change or go unseen.
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
from arena.store.reader import logged_in
from games.plain_files import open_plain, read_plain

CONTENTS = "contents.json"
METRICS = "metrics.jsonl"
PANEL = "panel.jsonl"
GROWING = (METRICS, PANEL)
"""Files that get a line now and then, and are as long as they were or longer."""
Fingerprints = dict[str, dict[str, Any]]


def contents(run: Path, iteration: int, known: Mapping[str, dict[str, Any]]) -> Fingerprints:
    """Fingerprints of what the folder holds of iterations up to this one; sealed files that are `known` stay so."""
    files = [(p.name, logged_in(p.name)) for p in (run / "log").glob("*.parquet")]
    names = [f"log/{name}" for name, own in files if own and own[0] <= iteration]
    found = {name: known.get(name) or fingerprint(run / name) for name in sorted(names)}
    return found | {name: fingerprint(run / name) for name in GROWING if (run / name).exists()}


def check(run: Path, checkpoint: Checkpoint) -> Fingerprints:
    """Check a checkpoint's contents, {} for one of an older Arena; StoreError for the first file that changed."""
    path = checkpoint.folder / CONTENTS
    if not path.is_file():
        return {}
    found = _read(path)
    for name, expected in found.items():
        _check_file(run, name, expected, checkpoint.iteration)
    return found


def check_newest(run: Path, note: Callable[[str], None] = lambda why: None) -> None:
    """As `check`, for the newest checkpoint that lists its contents wholly; weights are not looked at.

    `note` is called where no checkpoint does: then nobody can tell what the logs were.
    """
    torn: list[str] = []
    for number in reversed(checkpoints.iterations(run)):
        try:
            checkpoint = _listed(checkpoints.folder_of(run, number), number)
        except (StoreError, OSError) as error:
            torn.append(str(error))  # or just removed by the run itself: an older one may list as much
            continue
        check(run, checkpoint)
        return
    if torn:
        note(f"nothing tells whether this is as it was written: no checkpoint is whole ({torn[0]})")


def check_committed(run: Path, iteration: int) -> None:
    """As `check`, for the checkpoint of this iteration; weights are not looked at."""
    check(run, _listed(checkpoints.folder_of(run, iteration), iteration))


def _listed(folder: Path, number: int) -> Checkpoint:
    """The checkpoint in a folder whose list of contents is as it was written."""
    expected = described(folder)["files"].get(CONTENTS)
    if expected is not None and fingerprint(folder / CONTENTS) != expected:
        raise StoreError(f"checkpoint {folder} is torn: {CONTENTS} is not as it was written")
    if expected is None and (folder / CONTENTS).exists():
        raise StoreError(f"checkpoint {folder} is torn: {CONTENTS} is not in its {MANIFEST}")
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
    """Metrics and evaluations may have grown since; everything else is as long as it was."""
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
