"""The figure on a run's card is a per-match one, the most informative of those that changed."""

from typing import Any

import pandas as pd
import pytest

from analysis.view.learned import DUPLICATE_METRICS
from analysis.view.runs import _find_most_relevant

KUHN: dict[str, list[Any]] = {
    "iteration": [1, 2, 3], "matches": [512, 512, 512], "turns": [1115, 1130, 1164], "tokens": [2230, 2260, 2328],
    "valid_rate": [1.0, 0.999, 1.0], "payoff.first": [0.14, 0.02, -0.05], "payoff.second": [-0.14, -0.02, 0.05],
    "mean_payoff": [0.0, -0.004, 0.0], "report.turns": [2.18, 2.21, 2.27], "zero_sum": [True, True, True],
}  # fmt: skip


def describe_run(**changes: Any) -> Any:
    return _find_most_relevant(pd.DataFrame({**KUHN, **changes}))


def test_a_total_of_an_iteration_is_not_a_figure_of_a_match() -> None:
    figure = describe_run()
    assert (figure["key"], figure["values"]) == ("payoff.first", [0.14, 0.02, -0.05])
    still = dict.fromkeys(("payoff.first", "payoff.second"), [0.0] * 3)
    assert describe_run(**still)["key"] == "report.turns", "turns of a match, by the game's report"
    assert describe_run(**still, **{"report.turns": [2.0] * 3, "valid_rate": [1.0] * 3}) is None
    assert "turns" in DUPLICATE_METRICS, "nor is it called turns in a match among the metrics of learning"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("report.deal", [0.1, 0.2, 0.3]),
        ("panel.payoff", [0.1, 0.2, 0.3]),
        ("payoff_against.shared vs random", [0, 1, 2]),
    ],
)
def test_more_informative_metrics_come_first(name: str, values: list[float]) -> None:
    assert describe_run(**{name: values})["key"] == name


def test_changed_metrics_come_before_unchanged_ones() -> None:
    assert describe_run(**{"report.deal": [0.301, 0.5, 0.303]})["key"] == "payoff.first"
    assert describe_run(valid_rate=[1.0, 1.0, 0.994])["key"] == "payoff.first"
    assert describe_run(valid_rate=[0.6, 0.9, 1.0])["key"] == "valid_rate"


def test_non_zero_sum_runs_show_the_mean_payoff() -> None:
    frame = pd.DataFrame(
        {name: values for name, values in KUHN.items() if name != "zero_sum"} | {"mean_payoff": [1, 2, 3]}
    )
    assert (_find_most_relevant(frame) or {})["key"] == "mean_payoff"
