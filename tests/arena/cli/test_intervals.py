"""Rates in a run's summary and in evaluations have intervals within their range."""

from pathlib import Path

import pytest

from arena.cli.loop import wait
from arena.cli.summary import compute_changes
from arena.evaluate.evaluation import compute_change, evaluate
from arena.evaluate.specs import ContenderLoader
from arena.play.settings import GameSpec
from arena.statistics import rate_ci
from tests.factories.made_run import make_run


def test_summary_rates_have_wilson_intervals(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", iterations=2, live=False)
    shown = {c.name: c for c in compute_changes(run.path)}
    deals = shown["deal rate"]  # 2 of 3 matches in both iterations; Student's interval reaches 2.10
    assert deals.first == pytest.approx(rate_ci(2, 3)) and deals.difference
    assert -1 <= deals.difference.low < 0 < deals.difference.high <= 1
    for name in ("valid per match", "deal rate", "joint value / best"):
        for interval in (shown[name].first, shown[name].last):
            assert 0 <= interval.low <= interval.estimate <= interval.high <= 1, name


def test_figures_of_an_evaluation_keep_to_their_ranges() -> None:
    (contender,) = wait(ContenderLoader().load("random"))
    once, again = (wait(evaluate(contender, [contender], GameSpec(name="ultimatum"), 6, seed=0))[0] for _ in range(2))
    assert once.ranges["invalid"] == once.ranges["deal"] == (0, 1) and once.ranges["turns"][0] == 0
    for name in ("invalid", "deal", "offered"):
        assert 0 <= once.mean(name).low <= once.mean(name).high <= 1
    assert compute_change(once, again, "deal") == (0, 0, 0)
