"""The run folder: one experiment's config, environment, match log, metrics, checkpoints, and its writer."""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from arena.errors import StoreError
from arena.plain import plain
from arena.store import checkpoints
from arena.store.checkpoints import Checkpoint
from arena.store.contents import CONTENTS, METRICS, PANEL, Fingerprints, check, contents
from arena.store.failures import FailureLog
from arena.store.files import CONFIG, TEMPORARY, explained, inside, make_folder, require_run, write_atomic
from arena.store.locks import HOLDER, LOCK, locked
from arena.store.manifest import digest
from arena.store.matchlog import MatchLog
from arena.store.metrics import MetricsLog
from arena.store.reader import ENVIRONMENT, SEAL, RunReader

OWN = ("roles", "games", "data", "parts")
"""Folders for copies of what the experiment names."""
EMPTY: Mapping[str, bytes] = MappingProxyType({})


class RunFolder:
    """A run folder to write in; take `lock()` first."""

    def __init__(self, path: Path) -> None:
        """Open the run at `path`. Raises StoreError if there is none; `create` makes one.

        The path becomes absolute and free of links: other processes work in other folders, and `runs/latest` moves on.
        """
        self.path = path = require_run(path).resolve()
        self.reader = RunReader(path)
        self.log = MatchLog(path / "log")
        self.metrics = MetricsLog(path / METRICS)
        self.evaluations = MetricsLog(path / PANEL)
        self.failures = FailureLog(path)
        self._fingerprints: Fingerprints = {}
        """Fingerprints of the sealed files that the last checkpoint counts on."""

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """The run at `path`; StoreError when that is not a run folder."""
        return cls(Path(path))

    @classmethod
    def create(
        cls, path: str | Path, config: str, environment: Mapping[str, Any], files: Mapping[str, bytes] = EMPTY
    ) -> "RunFolder":
        """A new run with its exact config; StoreError when the folder is in use or holds anything.

        The environment gets the hash of itself, so that no change of it goes unseen; `files` lie in `OWN` folders.
        """
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"{folder} is a file: choose another --out")
        _refuse_taken(folder)
        make_folder(folder)
        with locked(folder):
            _refuse_taken(folder)
            for place, data in files.items():
                make_folder(inside(folder, place).parent)
                write_atomic(folder / place, data)
            _write_environment(folder, environment)
            # The config comes last: with it the folder becomes a run.
            write_atomic(folder / CONFIG, config)
        return cls(folder)

    def amend(self, config: str, environment: Mapping[str, Any]) -> None:
        """Replace the run's config and environment."""
        write_atomic(self.path / CONFIG, config)
        _write_environment(self.path, environment)

    def lock(self) -> AbstractContextManager[None]:
        """A context in which this process alone writes; StoreError naming the one that already does."""
        return locked(self.path)

    def checkpoint(self, iteration: int, fill: Callable[[Path], None]) -> Checkpoint:
        """Commit the state after `iteration`, and with it the logs and metrics so far; see `checkpoints.write`."""

        def whole(folder: Path) -> None:
            fill(folder)
            self._fingerprints = contents(self.path, iteration, self._fingerprints)
            (folder / CONTENTS).write_text(json.dumps(self._fingerprints, indent=1) + "\n")

        return checkpoints.write(self.path, iteration, whole)

    def newest_valid(self, skipped: Callable[[str], None] = lambda why: None) -> Checkpoint | None:
        """The newest checkpoint that is whole with all it counts on; `skipped` is called for newer ones."""

        def counted(checkpoint: Checkpoint) -> None:
            self._fingerprints = check(self.path, checkpoint)

        return checkpoints.newest_valid(self.path, skipped, counted)

    def resume_point(self, note: Callable[[str], None], every: int = 1, ahead: int = 0) -> Checkpoint | None:
        """The newest valid checkpoint, None before the first; `note` is called for newer ones that are not.

        StoreError when there are checkpoints and none is whole, or when a run that commits `every` so many iterations,
        and plays so many `ahead`, has played more of them than can be without: nothing is played over what they belong
        to.
        """
        torn: list[str] = []
        newest = self.newest_valid(torn.append)
        if newest is None and torn:
            folder = self.path / "checkpoints"
            raise StoreError(f"no checkpoint is whole ({torn[0]}): restore one, or remove {folder} to begin again")
        done, logged = newest.iteration if newest else 0, max(self.log.iterations(), default=0)
        if done == 0 and logged > 2 * every + ahead:
            why = f"whole ({torn[0]})" if torn else "there"
            raise StoreError(
                f"{self.path} has played {logged} iterations, and none of their checkpoints is {why}: "
                "restore one from a copy, or start a new run"
            )
        for why in torn:
            note(f"{why}; going on from iteration {done}")
        if not torn and (lost := [k for k in self.log.sealed() if k > done]):
            note(f"no checkpoint has iteration {lost[0]}, which was played: going on from iteration {done}")
        return newest

    def prune(self, count: int) -> list[int]:
        """Remove all but the first checkpoint and the newest `count`; returns the iterations of those that went."""
        return checkpoints.keep(self.path, count, also=[0])

    def discard_after(self, iteration: int) -> list[int]:
        """Drop what is of later iterations, checkpoints and failures included; returns the iterations dropped."""
        self.failures.discard_after(iteration)
        dropped = set(self.log.discard_after(iteration))
        dropped |= set(checkpoints.discard_after(self.path, iteration))
        for rows, name in ((self.metrics, METRICS), (self.evaluations, PANEL)):
            rows.discard_after(iteration, self._fingerprints.get(name, {}).get("size"))
        return sorted(dropped)


def _write_environment(folder: Path, environment: Mapping[str, Any]) -> None:
    body = plain(environment, "environment", gaps=True)
    write_atomic(folder / ENVIRONMENT, json.dumps({**body, SEAL: digest(body)}, indent=1) + "\n")


def _refuse_taken(folder: Path) -> None:
    """Refuse a folder that is taken, by StoreError; what a killed `create` may have left is free to be used again."""
    if (folder / CONFIG).exists():
        raise StoreError(f"{folder} already holds a run: arena resume {folder}, or choose another --out")
    if strange := strange_in(folder, {ENVIRONMENT, *OWN}):
        raise StoreError(f"{folder} is not empty (it holds {strange[0]!r}): choose another --out")


def strange_in(folder: Path, ours: Collection[str] = ()) -> list[str]:
    """Names in a folder, which need not exist, that nothing left there which was killed as it began; `ours` may be."""
    known = {LOCK, HOLDER, *ours}
    with explained(folder, "reading"):
        names = {file.name for file in folder.iterdir()} if folder.exists() else set()
    return sorted(name for name in names - known if not (name.startswith(".") and name.endswith(TEMPORARY)))
