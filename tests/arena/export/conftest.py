"""A run shared by all tests of exports: grouped deals, branches, and a model that learned a little."""

from pathlib import Path

import pytest

from tests.factories.labs import make_experiment, run_lab


@pytest.fixture(scope="session")
def grouped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of one iteration: two groups of three matches of one deal, and their branches."""
    folder = tmp_path_factory.mktemp("grouped") / "run"
    quick = (
        "iterations=1", "play.group=3", "play.parts=[branches]", "game.options.illegal=retry", "learn.minibatches=1",
    )  # fmt: skip
    run_lab(folder, make_experiment(*quick))
    return folder
