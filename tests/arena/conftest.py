"""Runs of a small lab that tests of several folders read."""

from pathlib import Path

import pytest

from arena.lab import Lab
from tests.factories.labs import RecordingWatcher, make_experiment, run_lab


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Lab, RecordingWatcher]:
    """The small lab's folder after its two iterations, the lab itself and its watcher: to read or to copy."""
    folder, watcher = tmp_path_factory.mktemp("lab") / "run", RecordingWatcher()
    return folder, run_lab(folder, make_experiment(), watcher), watcher


@pytest.fixture(scope="session")
def warm(small_run: tuple[Path, Lab, RecordingWatcher]) -> str:
    """A folder of weights that know the words, so that turns earn different rewards."""
    return str(small_run[0] / "checkpoints" / "0000" / "policies" / "shared")
