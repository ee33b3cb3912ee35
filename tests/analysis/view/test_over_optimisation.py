"""Chart of over-optimisation: learned reward and payoff over KL, and the first alarm."""

import math
from typing import Any

import pandas as pd
import pytest

from analysis.view.over_optimisation import over_optimisation

ROWS: dict[str, list[Any]] = {
    "iteration": [1, 2, 3, 4, 5],
    "learn.shared.kl": [0.0, 0.2, 0.1, 0.3, 0.4],
    "reward_model.learned.value": [0.0, 1.0, 0.5, 2.0, 3.0],
    "reward_model.learned.payoff": [0.1, 0.5, 0.3, 0.2, 0.0],
    "reward_model.learned.alarm": [0.0, 0.0, 0.0, 1.0, 1.0],
}


def test_learned_reward_and_payoff_stand_over_kl_with_the_first_alarm() -> None:
    (chart,) = over_optimisation(pd.DataFrame(ROWS))
    assert chart.title == "Over-optimisation of learned" and chart.along == "KL" and chart.own_scales
    learned, payoff = chart.series
    assert [(x, i.estimate) for x, i in learned.points] == [(0.0, 0.0), (0.1, 0.5), (0.2, 1.0), (0.3, 2.0), (0.4, 3.0)]
    assert [i.estimate for _, i in payoff.points] == [0.1, 0.3, 0.5, 0.2, 0.0], "in the order of KL"
    assert [(mark.label, mark.x) for mark in chart.marks] == [("alarm, iteration 4", 0.3)]
    assert {"along", "marks", "own_scales"} <= chart.as_json().keys()


@pytest.mark.parametrize("kl", [None, [0.0] * 5, [math.nan] * 5])
def test_without_a_kl_they_stand_over_the_iteration(kl: list[float] | None) -> None:
    rows = {name: values for name, values in ROWS.items() if "kl" not in name} | ({"learn.shared.kl": kl} if kl else {})
    (chart,) = over_optimisation(pd.DataFrame(rows))
    assert chart.along == "" and [x for x, _ in chart.series[0].points] == [1, 2, 3, 4, 5]
    assert [mark.x for mark in chart.marks] == [4]


def test_every_judge_has_a_chart_and_other_runs_have_none() -> None:
    judged = {name.replace("reward_model.learned", "judge.kind_words"): values for name, values in ROWS.items()}
    titles = [chart.title for chart in over_optimisation(pd.DataFrame({**ROWS, **judged}))]
    assert titles == ["Over-optimisation of learned", "Over-optimisation of kind words"]
    assert not [*over_optimisation(pd.DataFrame({"iteration": [1, 2], "learn.shared.kl": [0.0, 1.0]}))]
    assert not [*over_optimisation(pd.DataFrame(ROWS).iloc[:1])], "one point is no curve"
    assert not [*over_optimisation(pd.DataFrame(ROWS).drop(columns="reward_model.learned.payoff"))]
