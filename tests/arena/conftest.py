"""Runs of a small lab, shared by tests of several folders."""

from pathlib import Path

import pytest

from arena.lab import Lab
from tests.factories.labs import RecordingWatcher, make_experiment, run_lab


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Lab, RecordingWatcher]:
    """Return the small lab's folder after its two iterations, the lab and its watcher: read or copy it only."""
    folder, watcher = tmp_path_factory.mktemp("lab") / "run", RecordingWatcher()
    return folder, run_lab(folder, make_experiment(), watcher), watcher


@pytest.fixture(scope="session")
def warm(small_run: tuple[Path, Lab, RecordingWatcher]) -> str:
    """Return a folder of weights after imitation, with which turns earn different rewards."""
    return str(small_run[0] / "checkpoints" / "0000" / "policies" / "shared")
