"""Writer of the run folder: one experiment's config, environment, match log, metrics and checkpoints."""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from arena.errors import StoreError
from arena.plain import to_plain
from arena.store import checkpoints
from arena.store.checkpoints import Checkpoint
from arena.store.contents import CONTENTS, METRICS, PANEL, Fingerprints, check_files, fingerprint_files
from arena.store.failures import FailureLog
from arena.store.files import CONFIG, TEMPORARY, explain_errors, join_inside, make_folder, require_run, write_atomic
from arena.store.lines import LineWriter, to_line
from arena.store.locks import HOLDER, LOCK, lock_folder
from arena.store.manifest import write_sealed
from arena.store.matchlog import MatchLog
from arena.store.reader import ENVIRONMENT, RunReader, read_metrics
from games.plain_files import read_plain

COPIED = ("roles", "games", "data", "parts")
"""Folders with copies of the files that the experiment names."""
NO_FILES: Mapping[str, bytes] = MappingProxyType({})


class MetricsLog:
    """Writer of a JSON lines file with rows of metrics, each with its iteration, synced to disk."""

    def __init__(self, path: Path) -> None:
        """Use the file `path`, which need not exist yet."""
        self.path = path

    def append(self, row: Mapping[str, Any]) -> None:
        """Append one iteration's metrics. Values may be nested dicts; NaN and infinities become null.

        Raises ValueError unless the row has an integer `iteration`.
        """
        if not isinstance(row.get("iteration"), int):
            raise ValueError("a row of metrics needs an integer `iteration`")
        with LineWriter(self.path) as writer:
            writer.append(to_plain(row, "metrics", gaps=True))

    def read(self) -> list[dict[str, Any]]:
        """Return all rows, oldest first, without an incomplete last line. Raises LogError for a damaged line."""
        return read_metrics(self.path)

    def discard_after(self, iteration: int, size: int | None = None) -> None:
        """Remove the rows of later iterations. If `size` is given, cut the file to that many bytes instead."""
        if size is not None and self.path.exists():
            with explain_errors(self.path, "reading"):
                data = read_plain(self.path)
            if len(data) > size:
                write_atomic(self.path, data[:size])
            return
        rows = self.read()
        earlier = [row for row in rows if row["iteration"] <= iteration]
        if len(earlier) < len(rows):
            write_atomic(self.path, "".join(f"{to_line(row)}\n" for row in earlier))


class RunFolder:
    """Writer of a run folder, with parts `log`, `metrics`, `evaluations` and `failures`. Callers must hold `lock()`."""

    def __init__(self, path: Path) -> None:
        """Open the run at `path` and resolve the path. Raises StoreError if it is not a run folder.

        An absolute path is needed because other processes have other working directories and `runs/latest` may change.
        """
        self.path = path = require_run(path).resolve()
        self.reader = RunReader(path)
        self.log = MatchLog(path / "log")
        self.metrics = MetricsLog(path / METRICS)
        self.evaluations = MetricsLog(path / PANEL)
        self.failures = FailureLog(path)
        self._fingerprints: Fingerprints = {}
        """Fingerprints of the files that the last checkpoint lists."""

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """Open the run at `path` for writing. Raises StoreError if it is not a run folder."""
        return cls(Path(path))

    @classmethod
    def create(
        cls, path: str | Path, config: str, environment: Mapping[str, Any], files: Mapping[str, bytes] = NO_FILES
    ) -> "RunFolder":
        """Create a run folder, as `create_folder` does, and open it."""
        create_folder(Path(path), config, environment, files)
        return cls(Path(path))

    def replace_settings(self, config: str, environment: Mapping[str, Any]) -> None:
        """Replace the run's `config.yaml` and `environment.json`."""
        write_atomic(self.path / CONFIG, config)
        write_environment(self.path, environment)

    def lock(self) -> AbstractContextManager[None]:
        """Return a context manager that holds the run's lock. Entering raises StoreError if another process has it."""
        return lock_folder(self.path)

    def checkpoint(self, iteration: int, fill: Callable[[Path], None]) -> Checkpoint:
        """Write and return an iteration's checkpoint, with the state from `fill` and hashes of all logs and metrics."""

        def fill_with_contents(folder: Path) -> None:
            fill(folder)
            self._fingerprints = fingerprint_files(self.path, iteration, self._fingerprints)
            (folder / CONTENTS).write_text(json.dumps(self._fingerprints, indent=1) + "\n")

        return checkpoints.write(self.path, iteration, fill_with_contents)

    def newest_valid(self, on_skip: Callable[[str], None] = lambda why: None) -> Checkpoint | None:
        """Return the newest checkpoint that is intact, with all logs and metrics that it lists; None if there is none.

        Calls `on_skip` with the reason for each newer checkpoint.
        """

        def check_listed(checkpoint: Checkpoint) -> None:
            self._fingerprints = check_files(self.path, checkpoint)

        return checkpoints.newest_valid(self.path, on_skip, check_listed)

    def find_resume_point(self, note: Callable[[str], None], every: int = 1, ahead: int = 0) -> Checkpoint | None:
        """Return the newest intact checkpoint, to resume from; None if the run has none yet.

        Calls `note` with a message for each damaged newer checkpoint, and if played iterations have none. `every` is
        the number of iterations per checkpoint, `ahead` the number played ahead of the updates. Raises StoreError if
        all checkpoints are damaged, or if so many iterations were played that some checkpoint must be lost: resuming
        would overwrite these iterations.
        """
        damaged: list[str] = []
        newest = self.newest_valid(damaged.append)
        if newest is None and damaged:
            folder = self.path / "checkpoints"
            raise StoreError(f"no checkpoint is intact ({damaged[0]}): restore one, or remove {folder} to begin again")
        done, logged = newest.iteration if newest else 0, max(self.log.iterations(), default=0)
        if done == 0 and logged > 2 * every + ahead:
            state = f"intact ({damaged[0]})" if damaged else "there"
            raise StoreError(
                f"{self.path} has played {logged} iterations, and none of their checkpoints is {state}: "
                "restore one from a copy, or start a new run"
            )
        for damage in damaged:
            note(f"{damage}; resuming from iteration {done}")
        if not damaged and (unlogged := [k for k in self.log.sealed_iterations() if k > done]):
            note(f"no checkpoint has iteration {unlogged[0]}, which was played: resuming from iteration {done}")
        return newest

    def prune(self, count: int) -> list[int]:
        """Delete all checkpoints except iteration 0's and the newest `count`. Return the deleted iterations."""
        return checkpoints.prune(self.path, count, also=[0])

    def discard_after(self, iteration: int) -> list[int]:
        """Delete later iterations' log, metrics, evaluations, failures and checkpoints. Return these iterations."""
        self.failures.discard_after(iteration)
        dropped = set(self.log.discard_after(iteration))
        dropped |= set(checkpoints.discard_after(self.path, iteration))
        for rows, name in ((self.metrics, METRICS), (self.evaluations, PANEL)):
            rows.discard_after(iteration, self._fingerprints.get(name, {}).get("size"))
        return sorted(dropped)


def create_folder(
    folder: Path,
    config: str,
    environment: Mapping[str, Any],
    files: Mapping[str, bytes] = NO_FILES,
    empty_folder: str = "",
) -> None:
    """Create the folder of a run or pipeline with config, environment, and `files` (content by path in `COPIED`).

    `empty_folder` names an empty folder to create in it. The environment is stored with its hash, to detect changes.
    Raises StoreError if the folder is in use or not empty.
    """
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder} is a file: choose another --out")
    _refuse_taken(folder, empty_folder)
    make_folder(folder)
    with lock_folder(folder):
        _refuse_taken(folder, empty_folder)
        for place, data in files.items():
            make_folder(join_inside(folder, place).parent)
            write_atomic(folder / place, data)
        make_folder(folder / empty_folder)
        write_environment(folder, environment)
        # The config comes last, because it makes the folder a run.
        write_atomic(folder / CONFIG, config)


def write_environment(folder: Path, environment: Mapping[str, Any]) -> None:
    """Write the `environment.json` of a run or pipeline, with its hash."""
    write_sealed(folder / ENVIRONMENT, to_plain(environment, "environment", gaps=True))


def _refuse_taken(folder: Path, empty_folder: str) -> None:
    """Raise StoreError if the folder holds a run or other files, except those that a killed `create` may have left."""
    if (folder / CONFIG).exists():
        raise StoreError(f"{folder} already holds a run: arena resume {folder}, or choose another --out")
    if foreign := find_foreign_files(folder, {ENVIRONMENT, *COPIED, empty_folder}):
        raise StoreError(f"{folder} is not empty (it holds {foreign[0]!r}): choose another --out")


def find_foreign_files(folder: Path, known_names: Collection[str] = ()) -> list[str]:
    """Return the sorted names of files in a folder, without locks, temporary files and `known_names`."""
    known = {LOCK, HOLDER, *known_names}
    with explain_errors(folder, "reading"):
        names = {file.name for file in folder.iterdir()} if folder.exists() else set()
    return sorted(name for name in names - known if not (name.startswith(".") and name.endswith(TEMPORARY)))
