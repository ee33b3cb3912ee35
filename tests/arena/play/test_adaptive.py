"""Adaptive play: attempts go to deals whose outcomes differ, and a deal is capped at its longest success."""

from pathlib import Path
from typing import Any

import pytest

from arena.config.experiment import Experiment
from arena.config.seating import resolve_tables
from arena.errors import ConfigError
from arena.play.match import MatchPlan
from arena.play.parts.adaptive import Adaptive
from arena.play.plans import plan_iteration
from arena.records import MatchRecord, Seating
from tests.factories.labs import check_resume, make_experiment, make_warm_experiment, read_log, reopen_lab
from tests.factories.records import make_match_record, make_turn
from tests.factories.rollout_parts import make_part, plan_with

SEATS = {"one": Seating("r", "shared", 0, True, "model"), "two": Seating("r", "random", 0, False, "brain")}


def make_match(seed: int, payoff: float, turns: int = 3) -> MatchRecord:
    turn = make_turn(0, {}, "one", version=0, tokens=1)
    payoffs = {"one": payoff, "two": 9.0}
    return make_match_record(seed=seed, seats=SEATS, payoffs=payoffs, turns=(turn,) * turns)


def make_history(**rule: Any) -> Adaptive:
    """Return a part for which deal 1 was always solved, 2 every second time, 3 never, and 4 is unknown."""
    part: Adaptive = make_part("adaptive", **{"above": 0.5, **rule})
    part.observe(
        1, [make_match(seed, payoff) for seed, payoff in ((1, 1.0), (2, 1.0), (2, 0.0), (3, 0.0)) for _ in range(8)]
    )
    return part


def test_attempts_go_to_deals_with_different_outcomes() -> None:
    solved, differs, never, new = make_history().split_attempts([("g", seed) for seed in (1, 2, 3, 4)], 32)
    assert solved + differs + never + new == 32
    assert 2 <= solved <= never < 8 < min(differs, new) and abs(differs - new) <= 1
    assert make_history(least=8).split_attempts([("g", 1), ("g", 2)], 16) == [8, 8]
    assert make_history().split_attempts([("other", 1), ("other", 2)], 16) == [8, 8], "another game has no history"


def test_only_the_trained_seats_payoff_counts() -> None:
    part = make_part("adaptive", above=1.0)
    part.observe(1, [make_match(1, 1.0), make_match(2, 1.5)])
    assert part.state() == {"g 1": [1, 0, 0], "g 2": [1, 1, 3]}


def test_a_deal_is_as_long_as_its_longest_success() -> None:
    part = make_history(cap="max_turns")
    part.observe(1, [make_match(1, 1.0, turns=5), make_match(1, 0.0, turns=9), make_match(3, 0.0, turns=2)])
    assert part.cap_options("g", 1, {"max_turns": 10, "a": 1}) == ({"max_turns": 5, "a": 1}, "max_turns")
    assert part.cap_options("g", 3, {"max_turns": 10}) == ({"max_turns": 10}, ""), "never solved: no cap"
    assert part.cap_options("g", 1, {"max_turns": 4}) == ({"max_turns": 4}, ""), "never more than the game's own"


def make_adaptive_experiment(*more: str) -> Experiment:
    play = "play={matches: 16, group: 4, pool: 4, parts: [{adaptive: {least: 2, cap: max_turns}}]}"
    return make_experiment(play, "iterations=3", "credit.stages=[]", "credit.estimator=grpo", *more)


def make_plans(config: Experiment, state: dict[str, list[int]]) -> list[MatchPlan]:
    part = make_part("adaptive", least=2, cap="max_turns")
    part.load(state)
    return plan_with(part, plan_iteration(config.play, 0, 1, resolve_tables(config), {}, None))


def test_plans_have_the_attempts_and_the_options() -> None:
    config = make_adaptive_experiment()
    fresh = make_plans(config, {})
    assert fresh == plan_iteration(config.play, 0, 1, resolve_tables(config), {}, None)
    assert [plan.group for plan in fresh] == [i // 4 for i in range(16)]
    solved = fresh[0].seed
    plans = make_plans(config, {f"negotiation {solved}": [30, 30, 2]})
    assert [p.id for p in plans] == [p.id for p in fresh] and len({(p.seed, p.draws) for p in plans}) == 16
    sizes = [sum(p.group == group for p in plans) for group in range(4)]
    assert sizes[0] < 4 and min(sizes[1:]) >= 4 and sum(sizes) == 16
    (table,) = resolve_tables(config)
    for plan in plans:
        assert plan.options["max_turns"] == (2 if plan.seed == solved else 4) and table.matches(plan)


@pytest.mark.slow
def test_run_adapts_and_resumes_bit_equal(warm: str, tmp_path: Path) -> None:
    play = "play={matches: 12, group: 4, pool: 3, parts: [{adaptive: {least: 2, cap: max_turns}}]}"
    config = make_warm_experiment(
        warm, play, "iterations=3", "credit.stages=[]", "credit.estimator=grpo", "checkpoint.keep=9"
    )
    check_resume(config, tmp_path)
    rows = read_log(tmp_path / "whole")
    assert len(rows) == 36
    state = reopen_lab(tmp_path / "whole", config).parts.play.state(3)
    (deals,) = state["parts"]
    assert sum(attempts for attempts, _, _ in deals.values()) == 36 and len(deals) == 3


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("play={parts: [adaptive], group: 3}", "set play.pool"),
        ("play={parts: [{adaptive: {least: 5}}], group: 3, pool: 8}", "more than play.group, which is 3"),
        ("play={parts: [adaptive, branches], group: 3, pool: 8}", "different sizes"),
        ("play={parts: [{adaptive: {cap: max_moves}}], group: 3, pool: 8}", "set max_moves to a number in the options"),
    ],
)
def test_impossible_settings_are_refused(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_experiment(assignment)
