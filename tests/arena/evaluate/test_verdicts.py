"""Verdicts by a rule with fixed seeds, comparisons, gauges and room for improvement."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from arena.config.study import StudySpec
from arena.errors import ConfigError
from arena.evaluate.study.family import correct_family, predict_detectable
from arena.evaluate.study.results import Results
from arena.evaluate.study.summary import average_figures
from arena.evaluate.study.verdicts import Gauges, Verdict, decide, judge
from arena.statistics import SHARE

SPEC: dict[str, Any] = {
    "replicates": "a paper", "claim": "it learns", "published": "1", "family": "none", "figure": "success",
    "arm": "own", "arms": {"base": [], "other": [], "zero": []}, "verdict": {"better_than": ["base", "zero"]},
}  # fmt: skip
BETTER = {"own": [0.6, 0.7, 0.65, 0.62], "base": [0.3, 0.35, 0.33, 0.31], "zero": [0.1, 0.12, 0.11, 0.1]}


def make_spec(**changed: Any) -> StudySpec:
    return StudySpec.model_validate({**SPEC, **changed})


def judge_values(study_spec: StudySpec, values: dict[str, list[float]], gauges: Gauges | None = None) -> Verdict:
    last = {arm: dict(enumerate(seed_values)) for arm, seed_values in values.items()}
    return judge(study_spec, last, SHARE, len(values["own"]), gauges)


def make_gauge(figure: str, **arms: Sequence[float | None]) -> Gauges:
    return {figure: {arm: dict(enumerate(arm_values)) for arm, arm_values in arms.items()}}


def test_tuning_seeds_are_never_judged() -> None:
    with pytest.raises(ValidationError, match=r"seed 12 is in `tuned_on`: 10 to 14 cannot be test seeds"):
        make_spec(first_seed=10, seeds=5, tuned_on=[3, 12])
    assert [*make_spec(first_seed=10, seeds=3, tuned_on=[3, 13]).select_test_seeds(3)] == [10, 11, 12]
    with pytest.raises(ValidationError, match=r"`gauges\.unlike` names 'bas'"):
        make_spec(gauges=[{"figure": "x", "unlike": "bas"}])


def test_wrong_number_of_seeds_is_not_judged() -> None:
    assert judge_values(make_spec(seeds=4), BETTER).verdict == "holds"
    assert judge_values(make_spec(seeds=5), BETTER).because == "the rule judges 5 seeds, not 4"


def test_p_value_agrees_with_the_intervals() -> None:
    for values in (BETTER, {**BETTER, "base": [0.5, 0.9, 0.6, 0.7]}, {**BETTER, "own": BETTER["zero"]}):
        verdict = judge_values(make_spec(), values).verdict
        last = {arm: dict(enumerate(seed_values)) for arm, seed_values in values.items()}
        decision = decide(make_spec(verdict={"better_than": ["base"]}), last, SHARE)
        alone = judge_values(make_spec(verdict={"better_than": ["base"]}), values).verdict
        assert (decision.better < 0.05, decision.worse < 0.05) == (alone == "holds", alone == "contradicted")
        assert (verdict == "holds") == (decide(make_spec(), last, SHARE).better < 0.05)


def test_inactive_mechanism_did_not_act() -> None:
    study_spec = make_spec(gauges=[{"figure": "learn.shared.correction", "nothing": 1.0, "above": 0.001}])
    verdict = judge_values(
        study_spec, BETTER, make_gauge("learn.shared.correction", own=[1.0, 1 - 3e-8, 1.0, 1.0], base=[1.0] * 4)
    )
    assert verdict.verdict == "did not act"
    assert verdict.because == "learn.shared.correction stayed within 7.5e-09 of 1, asked for: more than 0.001"
    assert (
        judge_values(study_spec, BETTER, make_gauge("learn.shared.correction", own=[0.9, 0.8, 0.9, None])).verdict
        == "holds"
    )
    assert (
        judge_values(study_spec, BETTER, make_gauge("learn.shared.correction", own=[None] * 4)).verdict == "not judged"
    ), "no such figure"


def test_gauge_can_compare_with_another_arm() -> None:
    study_spec = make_spec(gauges=[{"figure": "entropy", "unlike": "other", "above": 0.1}])
    values = {**BETTER, "other": BETTER["base"]}
    assert judge_values(study_spec, BETTER).because == "0 of 4 runs of other are finished"
    same, apart = ([1.0, 1.1, 0.9, 1.0], [0.5, 0.6, 0.5, 0.4])
    assert (
        judge_values(study_spec, values, make_gauge("entropy", own=same, other=[1.05, 1.0, 0.95, 1.1])).verdict
        == "did not act"
    )
    assert judge_values(study_spec, values, make_gauge("entropy", own=apart, other=same)).verdict == "holds"


def test_arms_at_the_optimum_are_indistinguishable() -> None:
    study_spec = make_spec(room={"best": 1.0, "within": 0.02})
    top = {**BETTER, "own": [0.99, 1.0, 0.99, 1.0], "base": [0.98, 0.99, 0.99, 0.98]}
    assert judge_values(study_spec, top).verdict == "world cannot tell"
    assert judge_values(study_spec, {**top, "base": [0.9, 0.95, 0.93, 0.9]}).verdict == "holds", (
        "the other arm has room"
    )
    learns = make_spec(room={"best": 1.0, "within": 0.02}, verdict={"better_than": ["zero"]})
    assert judge_values(learns, top).verdict == "holds", "that something is learned is told apart from nothing"


def test_equal_arms_are_indistinguishable() -> None:
    alike = {**BETTER, "base": [0.605, 0.695, 0.65, 0.622]}
    assert judge_values(make_spec(room={"within": 0.02}), alike).verdict == "world cannot tell"
    assert judge_values(make_spec(room={"within": 0.001}), alike).verdict == "not shown", (
        "the interval is wider than that"
    )
    assert judge_values(make_spec(room={"within": 0.02}), BETTER).verdict == "holds"


def test_gauge_is_a_mean_over_the_iterations_that_have_it() -> None:
    rows = [{"learn": {"shared": {"clipped": 0.1}}}, {"learn": {"shared": {"clipped": 0.3, "replay_term": 2.0}}}]
    names = ["learn.shared.clipped", "learn.shared.replay_term", "learn.shared.nothing"]
    assert average_figures(rows, names) == {names[0]: pytest.approx(0.2), names[1]: 2.0, names[2]: None}


def make_results(values: dict[str, list[float]], first: int = 0, **changed: Any) -> Results:
    curves = {
        arm: {first + seed: [value] for seed, value in enumerate(arm_values)} for arm, arm_values in values.items()
    }
    return Results(name="made", spec=make_spec(**changed), seeds=len(values["own"]), curves=curves)


def test_family_correction_removes_chance_verdicts() -> None:
    near = {**BETTER, "base": [0.55, 0.66, 0.64, 0.58]}
    (alone,) = correct_family([make_results(near)])
    assert alone.verdict == "holds" and alone.holm == alone.decision.p < 0.05 and alone.arm == "base"
    many = correct_family([make_results(near), *(make_results({**BETTER, "own": BETTER["base"]}) for _ in range(9))])
    assert many[0].verdict == "not shown" and many[0].holm == pytest.approx(10 * many[0].decision.p)
    assert many[0].results.verdict.verdict == "holds" and many[0].detectable > alone.detectable
    with pytest.raises(ValueError, match="made is not judged"):
        correct_family([make_results({**near, "zero": [0.1]})])


def test_pilot_predicts_the_smallest_visible_difference() -> None:
    pilot = make_results(BETTER, first=50)
    least = predict_detectable(pilot, make_spec(), 10)
    assert least.keys() == {"base", "zero"}
    assert (
        predict_detectable(pilot, make_spec(), 40)["base"]
        < least["base"]
        < predict_detectable(pilot, make_spec(), 4)["base"]
    )
    with pytest.raises(ConfigError, match="--pilot: this study judges seed 50, too"):
        predict_detectable(pilot, make_spec(first_seed=45), 10)
    with pytest.raises(ConfigError, match="--pilot: no study of deal"):
        predict_detectable(pilot, make_spec(figure="deal"), 10)
