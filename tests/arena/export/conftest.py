"""One run for all tests of exports: deals in groups, branches, replies of a model that learned a little."""

from pathlib import Path

import pytest

from tests.factories.labs import make_experiment, run_lab


@pytest.fixture(scope="session")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two groups of three matches of one deal, and their branches; one iteration, committed."""
    folder = tmp_path_factory.mktemp("grouped") / "run"
    quick = (
        "iterations=1", "play.group=3", "play.parts=[branches]", "game.options.illegal=retry", "learn.minibatches=1",
    )  # fmt: skip
    run_lab(folder, make_experiment(*quick))
    return folder
