"""Gaps to best play, worked by hand: over runs, over deals, and with a missing match."""

import panel
import pytest

from arena.statistics import mean_ci
from arena.store.evaluations import Cell, Deals, Evaluation


def make_evaluation(first: Deals, second: Deals, most: dict[str, Deals]) -> Evaluation:
    """Return an evaluation of one member from both seats, whose best responses are 4, 6, 8 and 2, 2, 2."""
    bests: tuple[Deals, Deals] = [4.0, 6.0, 8.0], [2.0, 2.0, 2.0]
    cells = [
        Cell(member="m", seat=seat, payoff=paid, valid=[1.0] * 3, best_response=best)
        for seat, paid, best in (("one", first, bests[0]), ("two", second, bests[1]))
    ]
    return Evaluation(
        contender="it", panel="p", key="k", game="nim", options={}, seed=0, deals=3, cells=cells,
        best_against_mixture=most,
    )  # fmt: skip


def test_scores_match_worked_example() -> None:
    """From seat one the runs stay 1, 2, 3 and 0, 0, 6 below: 2 and 2 over runs, .5, 1, 4.5 over deals."""
    known: dict[str, Deals] = {"one": [3.0, 5.0, 7.0], "two": [2.0, 2.0, 2.0]}
    runs = [
        make_evaluation([3, 4, 5], [2, 2, 2], known),
        make_evaluation([4, 6, 2], [1, 1, 1], known),
    ]
    gaps = panel.compute_gaps(runs)
    assert gaps["m, one"]["over_runs"] == pytest.approx([2, 2, 2])
    assert gaps["m, one"]["over_deals"] == pytest.approx([*mean_ci([0.5, 1.0, 4.5])])
    assert gaps["m, two"]["over_runs"] == pytest.approx([*mean_ci([0.0, 1.0])])
    assert gaps["panel"]["over_runs"] == pytest.approx([*mean_ci([1.0, 1.5])])
    assert gaps["panel, not knowing whom"]["over_runs"] == pytest.approx([*mean_ci([0.5, 1.0])])
    rows = panel.format_gap_table(gaps)
    assert rows[2] == "| m, one | 2.00 [2.00, 2.00] | 2.00 [-3.41, 7.41] | not shown |"
    assert panel.format_gap_table({"m": {"over_runs": [0.3, 0.1, 0.5], "over_deals": [0.3, 0.1, 0.5]}})[2].endswith(
        "| yes |"
    )


def test_a_deal_with_a_missing_match_is_left_out() -> None:
    gaps = panel.compute_gaps([make_evaluation([3, None, 5], [2, 2, 2], {}), make_evaluation([4, 6, 2], [2, 2, 2], {})])
    assert gaps["m, one"]["over_deals"] == pytest.approx([*mean_ci([0.5, 4.5])])
    assert gaps["panel"]["over_deals"] == pytest.approx([*mean_ci([0.25, 2.25])])
    assert "panel, not knowing whom" not in gaps, "theory does not know it of nim"
