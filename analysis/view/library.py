"""The runs that the page shows, by name: those that were named, or all in a folder, new ones as they come."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from analysis.view.index import Index
from arena.errors import StoreError
from arena.store.files import CONFIG
from arena.store.reader import RunReader


class Library:
    """Names lead to runs by this table alone: no path is ever made of what a browser sends."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """StoreError for a path that is neither a run nor a folder of runs."""
        self.paths, self._known, self._lock = [path.resolve() for path in paths], dict[Path, Index](), Lock()
        for given, path in zip(paths, self.paths, strict=True):
            if not path.is_dir():
                raise StoreError(f"there is no folder {given}")

    def runs(self) -> dict[str, Index]:
        """All runs by name; those that are called alike have their folder's name, too."""
        found = list(dict.fromkeys(run for path in self.paths for run in _runs(path)))
        names = [path.name for path in found]
        with self._lock:
            for path in found:
                if path not in self._known:
                    self._known[path] = Index(RunReader(path))
            return {
                path.name if names.count(path.name) == 1 else f"{path.parent.name}~{path.name}": self._known[path]
                for path in found
            }

    def run(self, name: str) -> Index:
        """The run of this name; StoreError where there is none."""
        found = self.runs().get(name)
        if found is None:
            raise StoreError(f"there is no run '{name[:64]}' here")
        return found


def _runs(path: Path) -> list[Path]:
    """The run itself, or the runs in the folder; links such as runs/latest would show one twice."""
    if (path / CONFIG).is_file():
        return [path]
    return [each for each in sorted(path.iterdir()) if not each.is_symlink() and (each / CONFIG).is_file()]
