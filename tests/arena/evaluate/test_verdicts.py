"""The verdict by a rule that holds its sample, its looks, its gauges and its room."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from arena.config.study import StudySpec
from arena.errors import ConfigError
from arena.evaluate.study.family import correct_family, predict_visible
from arena.evaluate.study.results import Results
from arena.evaluate.study.summary import average_figures
from arena.evaluate.study.verdicts import Gauges, Verdict, decide, judge
from arena.statistics import SHARE

SPEC: dict[str, Any] = {
    "replicates": "a paper", "claim": "it learns", "published": "1", "family": "none", "figure": "success",
    "arm": "own", "arms": {"base": [], "other": [], "zero": []}, "verdict": {"better_than": ["base", "zero"]},
}  # fmt: skip
BETTER = {"own": [0.6, 0.7, 0.65, 0.62], "base": [0.3, 0.35, 0.33, 0.31], "zero": [0.1, 0.12, 0.11, 0.1]}


def spec(**changed: Any) -> StudySpec:
    return StudySpec.model_validate({**SPEC, **changed})


def said(of: StudySpec, values: dict[str, list[float]], gauges: Gauges | None = None) -> Verdict:
    last = {arm: dict(enumerate(own)) for arm, own in values.items()}
    return judge(of, last, SHARE, len(values["own"]), gauges)


def gauge(figure: str, **arms: Sequence[float | None]) -> Gauges:
    return {figure: {arm: dict(enumerate(own)) for arm, own in arms.items()}}


def test_seeds_of_the_tuning_are_never_judged() -> None:
    with pytest.raises(ValidationError, match=r"seed 12 is in `tuned_on`: 10 to 14 cannot be test seeds"):
        spec(first_seed=10, seeds=5, tuned_on=[3, 12])
    assert [*spec(first_seed=10, seeds=3, tuned_on=[3, 13]).select_test_seeds(3)] == [10, 11, 12]
    with pytest.raises(ValidationError, match=r"`gauges\.unlike` names 'bas'"):
        spec(gauges=[{"figure": "x", "unlike": "bas"}])


def test_another_number_of_seeds_than_the_rule_s_is_not_judged() -> None:
    assert said(spec(seeds=4), BETTER).verdict == "holds"
    assert said(spec(seeds=5), BETTER).because == "the rule judges 5 seeds, not 4"


def test_the_p_value_decides_as_the_intervals_do() -> None:
    for values in (BETTER, {**BETTER, "base": [0.5, 0.9, 0.6, 0.7]}, {**BETTER, "own": BETTER["zero"]}):
        word = said(spec(), values).verdict
        last = {arm: dict(enumerate(own)) for arm, own in values.items()}
        found = decide(spec(verdict={"better_than": ["base"]}), last, SHARE)
        alone = said(spec(verdict={"better_than": ["base"]}), values).verdict
        assert (found.better < 0.05, found.worse < 0.05) == (alone == "holds", alone == "contradicted")
        assert (word == "holds") == (decide(spec(), last, SHARE).better < 0.05)


def test_a_mechanism_that_stayed_at_nothing_did_not_act() -> None:
    of = spec(gauges=[{"figure": "learn.shared.correction", "nothing": 1.0, "above": 0.001}])
    found = said(of, BETTER, gauge("learn.shared.correction", own=[1.0, 1 - 3e-8, 1.0, 1.0], base=[1.0] * 4))
    assert found.verdict == "did not act"
    assert found.because == "learn.shared.correction stayed within 7.5e-09 of 1, asked for: more than 0.001"
    assert said(of, BETTER, gauge("learn.shared.correction", own=[0.9, 0.8, 0.9, None])).verdict == "holds"
    assert said(of, BETTER, gauge("learn.shared.correction", own=[None] * 4)).verdict == "not judged", "no such figure"


def test_a_gauge_may_be_what_an_arm_without_the_mechanism_has() -> None:
    of = spec(gauges=[{"figure": "entropy", "unlike": "other", "above": 0.1}])
    values = {**BETTER, "other": BETTER["base"]}
    assert said(of, BETTER).because == "0 of 4 runs of other are there"
    same, apart = ([1.0, 1.1, 0.9, 1.0], [0.5, 0.6, 0.5, 0.4])
    assert said(of, values, gauge("entropy", own=same, other=[1.05, 1.0, 0.95, 1.1])).verdict == "did not act"
    assert said(of, values, gauge("entropy", own=apart, other=same)).verdict == "holds"


def test_arms_at_the_best_there_is_cannot_be_told_apart() -> None:
    of = spec(room={"best": 1.0, "within": 0.02})
    top = {**BETTER, "own": [0.99, 1.0, 0.99, 1.0], "base": [0.98, 0.99, 0.99, 0.98]}
    assert said(of, top).verdict == "world cannot tell"
    assert said(of, {**top, "base": [0.9, 0.95, 0.93, 0.9]}).verdict == "holds", "the other arm has room"
    learns = spec(room={"best": 1.0, "within": 0.02}, verdict={"better_than": ["zero"]})
    assert said(learns, top).verdict == "holds", "that something is learned is told apart from nothing"


def test_arms_that_end_alike_cannot_be_told_apart_either() -> None:
    alike = {**BETTER, "base": [0.605, 0.695, 0.65, 0.622]}
    assert said(spec(room={"within": 0.02}), alike).verdict == "world cannot tell"
    assert said(spec(room={"within": 0.001}), alike).verdict == "not shown", "the interval is wider than that"
    assert said(spec(room={"within": 0.02}), BETTER).verdict == "holds"


def test_a_gauge_is_a_mean_over_the_iterations_that_have_it() -> None:
    rows = [{"learn": {"shared": {"clipped": 0.1}}}, {"learn": {"shared": {"clipped": 0.3, "replay_term": 2.0}}}]
    names = ["learn.shared.clipped", "learn.shared.replay_term", "learn.shared.nothing"]
    assert average_figures(rows, names) == {names[0]: pytest.approx(0.2), names[1]: 2.0, names[2]: None}


def results(values: dict[str, list[float]], first: int = 0, **changed: Any) -> Results:
    curves = {arm: {first + seed: [value] for seed, value in enumerate(own)} for arm, own in values.items()}
    return Results(name="made", spec=spec(**changed), seeds=len(values["own"]), curves=curves)


def test_a_family_takes_verdicts_away_that_one_in_many_would_be_by_chance() -> None:
    near = {**BETTER, "base": [0.55, 0.66, 0.64, 0.58]}
    (alone,) = correct_family([results(near)])
    assert alone.verdict == "holds" and alone.holm == alone.decision.p < 0.05 and alone.arm == "base"
    many = correct_family([results(near), *(results({**BETTER, "own": BETTER["base"]}) for _ in range(9))])
    assert many[0].verdict == "not shown" and many[0].holm == pytest.approx(10 * many[0].decision.p)
    assert many[0].results.verdict.verdict == "holds" and many[0].visible > alone.visible
    with pytest.raises(ValueError, match="made is not judged"):
        correct_family([results({**near, "zero": [0.1]})])


def test_a_pilot_of_other_seeds_says_what_could_be_seen() -> None:
    pilot = results(BETTER, first=50)
    least = predict_visible(pilot, spec(), 10)
    assert least.keys() == {"base", "zero"}
    assert predict_visible(pilot, spec(), 40)["base"] < least["base"] < predict_visible(pilot, spec(), 4)["base"]
    with pytest.raises(ConfigError, match="--pilot: this study judges seed 50, too"):
        predict_visible(pilot, spec(first_seed=45), 10)
    with pytest.raises(ConfigError, match="--pilot: no study of deal"):
        predict_visible(pilot, spec(figure="deal"), 10)
