"""Pictures show the numbers that are in the frames, and texts of models do nothing but be shown."""

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

import analysis
from analysis import plots
from arena.errors import StoreError
from arena.statistics import rate_ci
from arena.store.run import RunFolder
from tests.factories.made_run import make_run
from tests.factories.spoken_run import recorded, spoken
from tests.legible import complaints, joined


def bars_of(axis: Axes) -> list[Any]:
    """The first error bars' ends."""
    (bars, *_) = axis.collections
    assert isinstance(bars, LineCollection)
    return list(bars.get_segments())


@pytest.fixture
def run(tmp_path: Path) -> analysis.Frames:
    make_run(tmp_path / "run")
    return analysis.load(tmp_path / "run")


def test_curves_show_every_number(run: analysis.Frames) -> None:
    figure = plots.curves(run)
    assert [axis.get_title() for axis in figure.axes] == ["valid_rate", "reward.opener"]
    assert np.asarray(figure.axes[1].lines[0].get_xydata()).tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert len(plots.curves(run, ["kl"]).axes) == 1
    with pytest.raises(KeyError, match="did you mean 'valid_rate'"):
        plots.curves(run, ["valid_rat"])


@pytest.mark.slow
def test_of_many_metrics_those_are_drawn_that_one_asks_for_first(run: analysis.Frames) -> None:
    names = [
        "seconds.play", "report.pareto_distance", "report.deal", "learn.shared.loss", "learn.shared.kl", "mean_payoff",
        "report.efficiency", "report.turns", "learn.shared.entropy", "learn.shared.clipped", "failed_rate", "tokens",
        "reward.a", "reward.b", "win_rate.shared vs past",
    ]  # fmt: skip
    many = run
    many.__dict__["iterations"] = run.iterations[["run", "iteration", "valid_rate"]].assign(**dict.fromkeys(names, 0.5))
    assert plots.chosen(many) == [
        "valid_rate", "report.deal", "win_rate.shared vs past", "mean_payoff", "report.efficiency", "reward.a",
        "learn.shared.kl", "learn.shared.entropy",
    ]  # fmt: skip
    figure = plots.curves(many)
    assert not complaints(figure) and len(figure.axes) == 8
    assert all(axis.get_ylim() == (-0.02, 1.02) for axis in (figure.axes[0], figure.axes[1], figure.axes[4]))
    (named,) = plots.curves(many, ["report.pareto_distance"]).axes
    assert named.get_title() == "report.pareto_distance"


def test_rates_have_the_intervals_of_their_matches(run: analysis.Frames) -> None:
    bars = bars_of(plots.curves(run, ["valid_rate"]).axes[0])
    # three finished matches of two acts, one of each valid
    assert [end for _, end in bars[0]] == pytest.approx(rate_ci(3, 6)[1:])


def test_no_line_goes_through_a_few_points(run: analysis.Frames) -> None:
    for figure in (plots.curves(run), plots.payoffs(run), plots.compare({"a": run}, "valid_rate")):
        assert not joined(figure, few=5) and figure.axes[0].lines


def test_seeds_are_compared_with_intervals(tmp_path: Path) -> None:
    folders = [tmp_path / str(seed) for seed in range(3)]
    for seed, folder in enumerate(folders):
        make_run(folder, iterations=6, live=False, shift=float(seed))
    seeds, one = analysis.load(folders), analysis.load(folders[0])
    figure = plots.compare({"credit": seeds, "control": one}, "reward.opener")
    (axis,) = figure.axes
    thick = [np.asarray(line.get_ydata()).tolist() for line in axis.lines if line.get_linewidth() > 1.5]
    assert thick == [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]]
    (bar,) = bars_of(axis)
    assert bar[:, 1].tolist() == pytest.approx([6 - 2.4841, 6 + 2.4841], abs=1e-3)  # t(0.975, 2) = 4.3027, s = 1, n = 3
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["credit", "control"]
    assert not complaints(figure)
    few = bars_of(plots.compare({"credit": seeds}, "valid_rate").axes[0])
    assert all(0 <= end <= 1 for bar in few for _, end in bar)
    with pytest.raises(KeyError, match="no metric"):
        plots.compare({"credit": seeds}, "los")


def test_payoffs_are_means_of_finished_matches(run: analysis.Frames) -> None:
    figure = plots.payoffs(run)
    (axis,) = figure.axes
    assert not complaints(figure)
    assert np.asarray(axis.lines[0].get_xydata()).tolist() == [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]


@pytest.mark.parametrize("draw", [plots.curves, plots.payoffs])
def test_a_run_without_anything_yet_gives_an_empty_picture(tmp_path: Path, draw: object) -> None:
    RunFolder.create(tmp_path / "run", "a: 1\n", {})
    draw(analysis.load(tmp_path / "run")).savefig(io.BytesIO())  # type: ignore[operator]


def test_hostile_names_are_drawn_as_they_are(run: analysis.Frames) -> None:
    name = "$\\frac{$ _x\x1b " + "long " * 100
    run.__dict__["iterations"] = run.iterations.rename(columns={"valid_rate": name})
    assert not complaints(plots.curves(run, [name, "reward.opener"]))


def test_a_match_is_a_readable_dialogue(run: analysis.Frames) -> None:
    assert plots.dialogue(run, "0001-0002").splitlines() == [
        "match 0001-0002 of negotiation, iteration 1",
        "  1  opener: OFFER 1 0 2",
        "       says    $fair$ [/b]",
        "       thinks  [2Jgreed",
        "       earned  +3.00 (deal +3.00), advantage +0.125",
        "  2  responder: ACCEPT  (not a valid act)",
        "       says    $fair$ [/b]",
        "       earned  +6.00 (deal +7.00, illegal -1.00), advantage +0.125",
        "payoff: opener 3, responder 7",
        "report: deal yes, efficiency 0.5, end accept",
    ]
    assert plots.dialogue(run, "0002-0003").splitlines()[-2:] == [
        "       earned  +5.00 (deal +5.00), not credited",
        "failed: time limit: 9.0 s of 8 s",
    ]


def test_several_runs_are_told_apart(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_run(tmp_path / name)
    both = analysis.load([tmp_path / "one", tmp_path / "two"])
    figure = plots.curves(both, ["valid_rate"])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]
    with pytest.raises(StoreError, match="several of one, two have a match '0001-0002': load one of them"):
        plots.dialogue(both, "0001-0002")


def test_an_unknown_match_is_told(run: analysis.Frames) -> None:
    with pytest.raises(StoreError, match="has no match '0001-000' — did you mean '0001-000"):
        plots.dialogue(run, "0001-000")
    run.__dict__["matches"] = run.matches.replace("0001-0002", "0001-0002\x1b[2J")
    with pytest.raises(StoreError, match="did you mean '0001-0002\\[2J'"):
        plots.dialogue(run, "0001-0002[2J")


def test_outcomes_stand_where_they_were_paid_beside_their_front(run: analysis.Frames) -> None:
    figure = plots.outcomes(run)
    assert not complaints(figure)
    paid = run.seats.dropna(subset=["payoff"]).pivot(index=["match", "iteration"], columns="seat", values="payoff")
    dots = {tuple(place) for dot in figure.axes[0].collections for place in np.asarray(dot.get_offsets()).tolist()}
    assert dots <= {tuple(map(float, row)) for row in paid.to_numpy().tolist()} and dots
    assert figure.axes[0].get_xlabel() == paid.columns[0]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["pot_$1", r"$\foo$", "$\\frac{$ _x", "_" * 3, "long " * 40])
def test_hostile_seats_and_sides_are_drawn_as_they_are(tmp_path: Path, name: str) -> None:
    side = re.sub(r"\W", "", name)
    reports: dict[str, dict[str, Any]] = {
        "seats": {},
        "sides": {f"payoff_{side}": 1.0, "payoff_b": 2.0, f"_{side}_payoff_b": 1.0},
    }
    for folder, report in reports.items():
        record = replace(
            spoken(0, 0, ["a", "b"], {name: "shared", "b": "shared"}, {name: 1.0, "b": 2.0}), report=report
        )
        log = analysis.load(recorded(tmp_path / folder, [[record]]))
        for figure in (plots.outcomes(log), plots.payoffs(log)):
            assert not complaints(figure)


def test_truth_values_have_the_intervals_of_their_matches(run: analysis.Frames) -> None:
    run.__dict__["iterations"] = run.iterations.assign(**{"report.deal": 2 / 3})
    bars = bars_of(plots.curves(run, ["report.deal"]).axes[0])
    assert [end for _, end in bars[0]] == pytest.approx(rate_ci(2, 3)[1:])  # two of three matches end in a deal


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=30))
def test_nothing_reached_is_better_than_the_front(reached: list[tuple[int, int]]) -> None:
    front = plots.pareto_front(reached)

    def beaten(one: tuple[float, float]) -> bool:
        return any(x >= one[0] and y >= one[1] and (x, y) != one for x, y in reached)

    assert front == sorted({(float(x), float(y)) for x, y in reached if not beaten((x, y))})
