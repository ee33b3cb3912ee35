"""Adaptive play: attempts go where outcomes differ, and a deal is as long as its successes needed."""

from pathlib import Path
from typing import Any

import pytest

from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.seating import resolve_tables
from arena.errors import ConfigError
from arena.lab import Lab
from arena.play.match import MatchPlan
from arena.play.parts.adaptive import Adaptive
from arena.play.plans import plan_iteration
from arena.records import MatchRecord, Seating, Turn
from arena.store.run import RunFolder
from games.contracts import MatchId
from tests.factories.labs import RecordingWatcher, make_experiment, make_warm_experiment, read_log, run_and_resume
from tests.factories.rollout_parts import make_part, plan_with

SEATS = {"one": Seating("r", "shared", 0, True, "model"), "two": Seating("r", "random", 0, False, "brain")}


def match(seed: int, paid: float, turns: int = 3) -> MatchRecord:
    turn = Turn(
        index=0,
        seat="one",
        role="r",
        policy="shared",
        version=0,
        messages=(),
        raw="",
        public="",
        private="",
        action="",
        valid=True,
        rewards={},
        finish="stop",
        tokens=1,
        seconds=0.0,
    )
    return MatchRecord(
        identity=MatchId(1, 0),
        game="g",
        options={},
        seed=seed,
        seats=SEATS,
        status="finished",
        reason="",
        payoffs={"one": paid, "two": 9.0},
        report={},
        turns=(turn,) * turns,
        streams={},
        started="",
        seconds=0.0,
    )


def history(**rule: Any) -> Adaptive:
    """Deal 1 was always solved, 2 every second time, 3 never; nobody has seen 4."""
    found: Adaptive = make_part("adaptive", **{"above": 0.5, **rule})
    found.observe(1, [match(seed, paid) for seed, paid in ((1, 1.0), (2, 1.0), (2, 0.0), (3, 0.0)) for _ in range(8)])
    return found


def test_attempts_go_where_outcomes_differ() -> None:
    solved, differs, never, new = history().split_attempts([("g", seed) for seed in (1, 2, 3, 4)], 32)
    assert solved + differs + never + new == 32
    assert 2 <= solved <= never < 8 < min(differs, new) and abs(differs - new) <= 1
    assert history(least=8).split_attempts([("g", 1), ("g", 2)], 16) == [8, 8]
    assert history().split_attempts([("other", 1), ("other", 2)], 16) == [8, 8], "of another game nothing is known"


def test_only_what_the_trained_seat_is_paid_counts() -> None:
    found = make_part("adaptive", above=1.0)
    found.observe(1, [match(1, 1.0), match(2, 1.5)])
    assert found.state() == {"g 1": [1, 0, 0], "g 2": [1, 1, 3]}


def test_a_deal_is_as_long_as_its_longest_success() -> None:
    found = history(cap="max_turns")
    found.observe(1, [match(1, 1.0, turns=5), match(1, 0.0, turns=9), match(3, 0.0, turns=2)])
    assert found.cap_options("g", 1, {"max_turns": 10, "a": 1}) == ({"max_turns": 5, "a": 1}, "max_turns")
    assert found.cap_options("g", 3, {"max_turns": 10}) == ({"max_turns": 10}, ""), "never solved: no cap"
    assert found.cap_options("g", 1, {"max_turns": 4}) == ({"max_turns": 4}, ""), "never more than the game's own"


def given(*more: str) -> Experiment:
    play = "play={matches: 16, group: 4, pool: 4, parts: [{adaptive: {least: 2, cap: max_turns}}]}"
    return make_experiment(play, "iterations=3", "credit.stages=[]", "credit.estimator=grpo", *more)


def planned(setting: Experiment, state: dict[str, list[int]]) -> list[MatchPlan]:
    part = make_part("adaptive", least=2, cap="max_turns")
    part.load(state)
    return plan_with(part, plan_iteration(setting.play, 0, 1, resolve_tables(setting), {}, None))


def test_plans_have_the_attempts_and_the_options() -> None:
    setting = given()
    fresh = planned(setting, {})
    assert fresh == plan_iteration(setting.play, 0, 1, resolve_tables(setting), {}, None)
    assert [plan.group for plan in fresh] == [i // 4 for i in range(16)]
    solved = fresh[0].seed
    plans = planned(setting, {f"negotiation {solved}": [30, 30, 2]})
    assert [p.id for p in plans] == [p.id for p in fresh] and len({(p.seed, p.draws) for p in plans}) == 16
    sizes = [sum(p.group == group for p in plans) for group in range(4)]
    assert sizes[0] < 4 and min(sizes[1:]) >= 4 and sum(sizes) == 16
    (table,) = resolve_tables(setting)
    for plan in plans:
        assert plan.options["max_turns"] == (2 if plan.seed == solved else 4) and table.matches(plan)


@pytest.mark.slow
def test_a_run_adapts_and_resumes_to_the_bit(warm: str, tmp_path: Path) -> None:
    play = "play={matches: 12, group: 4, pool: 3, parts: [{adaptive: {least: 2, cap: max_turns}}]}"
    setting = make_warm_experiment(
        warm, play, "iterations=3", "credit.stages=[]", "credit.estimator=grpo", "checkpoint.keep=9"
    )
    for folder in run_and_resume(setting, tmp_path):
        assert read_log(folder) == read_log(tmp_path / "whole")
    rows = read_log(tmp_path / "whole")
    assert len(rows) == 36
    state = wait(Lab.open(RunFolder.open(tmp_path / "whole"), setting, RecordingWatcher())).parts.play.state(3)
    (deals,) = state["parts"]
    assert sum(attempts for attempts, _, _ in deals.values()) == 36 and len(deals) == 3


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("play={parts: [adaptive], group: 3}", "set play.pool"),
        ("play={parts: [{adaptive: {least: 5}}], group: 3, pool: 8}", "more than the 3"),
        ("play={parts: [adaptive, branches], group: 3, pool: 8}", "different sizes"),
        ("play={parts: [{adaptive: {cap: max_moves}}], group: 3, pool: 8}", "set max_moves to a number in the options"),
    ],
)
def test_what_cannot_adapt_is_refused(setting: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_experiment(setting)
