"""Credit recomputed from the tables of a real run equals the log."""

from pathlib import Path

import pandas as pd
import pytest

import analysis
from arena.cli.loop import wait
from arena.config.saved_config import load_experiment
from arena.credit.compare import compare


@pytest.fixture
def log(uninterrupted_run: Path) -> analysis.Frames:
    return analysis.load(uninterrupted_run)


def test_turn_level_advantages_follow_from_the_frames(log: analysis.Frames, uninterrupted_run: Path) -> None:
    """MARS (design.md): the return from the turn on, minus the mean over the role's turns of the iteration."""
    assert load_experiment(uninterrupted_run).credit.estimator.to_plain() == {
        "mars": {"gamma": 1.0, "by": ["game", "role", "policy"], "std": False}
    }
    turns = log.turns.dropna(subset=["advantage"])[::-1]
    worth = turns.groupby(["match", "seat"])["reward"].cumsum()
    mean = worth.groupby([turns[name] for name in ("iteration", "game", "role", "policy")]).transform("mean")
    pd.testing.assert_series_equal(worth - mean, turns["advantage"], check_names=False, check_dtype=False, rtol=1e-9)
    assert len(turns) > 20 and turns["advantage"].abs().max() > 0.1


def test_own_estimator_reproduces_logged_advantages(log: analysis.Frames, uninterrupted_run: Path) -> None:
    experiment = load_experiment(uninterrupted_run)
    chosen = [experiment.credit.estimator]
    frames = wait(
        compare(uninterrupted_run, experiment.credit, chosen, seed=experiment.seed, length=experiment.iterations)
    )
    repeated = frames.turns.set_index(["match", "turn"])
    logged = log.turns.dropna(subset=["advantage"]).set_index(["match", "turn"]).sort_index()
    for actual, reference in (("mars", "advantage"), ("reward", "reward")):
        assert repeated.sort_index()[actual].tolist() == pytest.approx(logged[reference].tolist(), rel=1e-9)
