"""Screened deals: play uses only deals that a baseline run solved sometimes."""

from pathlib import Path
from typing import Any

import pytest

from arena.config.seating import resolve_tables
from arena.errors import ConfigError, StoreError
from arena.play.parts.screened import Screening
from arena.play.plans import plan_iteration
from tests.factories.labs import make_experiment, make_warm_experiment, run_lab
from tests.factories.rollout_parts import make_part, plan_with

OUTCOMES = {11: [0, 0, 0, 0], 22: [1, 0, 0, 0], 33: [1, 1, 0, 1], 44: [1, 1, 1, 1]}


def make_screening(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Screening:
    rows = [("negotiation", seed, bool(each)) for seed, outcomes in OUTCOMES.items() for each in outcomes]
    monkeypatch.setattr(Screening, "_read_outcomes", lambda self: iter(rows))
    part: Screening = make_part("screened", log="somewhere", **settings)
    return part


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, [22, 33, 44]), ({"most": 0.75}, [22, 33]), ({"least": 0.25, "most": 0.9}, [33]), ({"least": 0.8}, [44])],
)
def test_bounds_keep_what_is_solved_sometimes(
    settings: dict[str, float], expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make_screening(monkeypatch, **settings).seeds == {"negotiation": expected}


def test_each_pass_plays_every_kept_deal_once_and_no_match_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_experiment("play={matches: 8, group: 4}", "iterations=3")
    part, seeds, seen = make_screening(monkeypatch, most=0.75), list[int](), set[Any]()
    for k in (1, 2, 3):
        plans = plan_with(part, plan_iteration(config.play, 0, k, resolve_tables(config), {}, None), k)
        groups = [plans[:4], plans[4:]]
        assert len(plans) == 8 and all(len({plan.seed for plan in group}) == 1 for group in groups)
        seeds += [group[0].seed for group in groups]
        seen |= {(plan.seed, plan.draws) for plan in plans}
    assert [sorted(seeds[i : i + 2]) for i in (0, 2, 4)] == [[22, 33]] * 3 and len(seen) == 24


def test_no_deal_within_the_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="none of its 4 deals"):
        _ = make_screening(monkeypatch, least=0.3, most=0.5).seeds


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("play={parts: [{screened: {log: a, least: 0.5, most: 0.5}}]}", "raise most"),
        ("play={pool: 8, parts: [{screened: {log: a}}]}", "leave out play.pool"),
    ],
)
def test_impossible_settings_are_refused(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_experiment(assignment)


@pytest.mark.slow
def test_a_baseline_s_log_is_read(warm: str, tmp_path: Path) -> None:
    config = make_warm_experiment(warm, "play={matches: 8, group: 4, pool: 2}", "iterations=1", "credit.estimator=zero")
    run_lab(tmp_path / "baseline", config)
    part: Screening = make_part("screened", log=str(tmp_path / "baseline"), above=-1e9)
    assert len(part.seeds["negotiation"]) == 2, "every match pays more than that"
