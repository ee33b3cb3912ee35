"""Plots show the numbers of the frames, and model texts are plain text in them."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

import analysis
from analysis import plots
from arena.errors import StoreError
from arena.statistics import rate_ci
from arena.store.run import RunFolder
from tests.factories.made_run import make_run
from tests.legible import find_overlaps, find_sparse_lines


def read_error_bars(axis: Axes) -> list[Any]:
    """Return the ends of the first error bars."""
    (bars, *_) = axis.collections
    assert isinstance(bars, LineCollection)
    return list(bars.get_segments())


@pytest.fixture
def run_folder(tmp_path: Path) -> analysis.Frames:
    make_run(tmp_path / "run")
    return analysis.load(tmp_path / "run")


def test_curves_show_every_number(run_folder: analysis.Frames) -> None:
    figure = plots.curves(run_folder)
    assert [axis.get_title() for axis in figure.axes] == ["valid_rate", "reward.opener"]
    assert np.asarray(figure.axes[1].lines[0].get_xydata()).tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert len(plots.curves(run_folder, ["kl"]).axes) == 1
    with pytest.raises(KeyError, match="did you mean 'valid_rate'"):
        plots.curves(run_folder, ["valid_rat"])


@pytest.mark.slow
def test_chooses_the_most_relevant_metrics(run_folder: analysis.Frames) -> None:
    names = [
        "seconds.play", "report.pareto_distance", "report.deal", "learn.shared.loss", "learn.shared.kl", "mean_payoff",
        "report.efficiency", "report.turns", "learn.shared.entropy", "learn.shared.clipped", "failed_rate", "tokens",
        "reward.a", "reward.b", "win_rate.shared vs past",
    ]  # fmt: skip
    many = run_folder
    many.__dict__["iterations"] = run_folder.iterations[["run", "iteration", "valid_rate"]].assign(
        **dict.fromkeys(names, 0.5)
    )
    assert plots.choose_metrics(many) == [
        "valid_rate", "report.deal", "win_rate.shared vs past", "mean_payoff", "report.efficiency", "reward.a",
        "learn.shared.kl", "learn.shared.entropy",
    ]  # fmt: skip
    figure = plots.curves(many)
    assert not find_overlaps(figure) and len(figure.axes) == 8
    assert all(axis.get_ylim() == (-0.02, 1.02) for axis in (figure.axes[0], figure.axes[1], figure.axes[4]))
    (named,) = plots.curves(many, ["report.pareto_distance"]).axes
    assert named.get_title() == "report.pareto_distance"


def test_rates_have_the_intervals_of_their_matches(run_folder: analysis.Frames) -> None:
    bars = read_error_bars(plots.curves(run_folder, ["valid_rate"]).axes[0])
    # three finished matches of two acts, one of each valid
    assert [end for _, end in bars[0]] == pytest.approx(rate_ci(3, 6)[1:])


def test_no_line_goes_through_a_few_points(run_folder: analysis.Frames) -> None:
    figure = plots.curves(run_folder)
    assert not find_sparse_lines(figure, minimum=5) and figure.axes[0].lines


def test_a_run_without_anything_yet_gives_an_empty_picture(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", "a: 1\n", {})
    plots.curves(analysis.load(tmp_path / "run")).savefig(io.BytesIO())


def test_hostile_names_are_drawn_as_they_are(run_folder: analysis.Frames) -> None:
    name = "$\\frac{$ _x\x1b " + "long " * 100
    run_folder.__dict__["iterations"] = run_folder.iterations.rename(columns={"valid_rate": name})
    assert not find_overlaps(plots.curves(run_folder, [name, "reward.opener"]))


def test_a_match_is_a_readable_dialogue(run_folder: analysis.Frames) -> None:
    assert plots.dialogue(run_folder, "0001-0002").splitlines() == [
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
    assert plots.dialogue(run_folder, "0002-0003").splitlines()[-2:] == [
        "       earned  +5.00 (deal +5.00), not credited",
        "failed: time limit: 9.0 s of 8 s",
    ]


def test_several_runs_are_distinguished(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_run(tmp_path / name)
    both = analysis.load([tmp_path / "one", tmp_path / "two"])
    figure = plots.curves(both, ["valid_rate"])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]
    with pytest.raises(StoreError, match="several of one, two have a match '0001-0002': load one of them"):
        plots.dialogue(both, "0001-0002")


def test_refuses_unknown_match(run_folder: analysis.Frames) -> None:
    with pytest.raises(StoreError, match="has no match '0001-000' — did you mean '0001-000"):
        plots.dialogue(run_folder, "0001-000")
    run_folder.__dict__["matches"] = run_folder.matches.replace("0001-0002", "0001-0002\x1b[2J")
    with pytest.raises(StoreError, match="did you mean '0001-0002\\[2J'"):
        plots.dialogue(run_folder, "0001-0002[2J")


def test_truth_values_have_the_intervals_of_their_matches(run_folder: analysis.Frames) -> None:
    run_folder.__dict__["iterations"] = run_folder.iterations.assign(**{"report.deal": 2 / 3})
    bars = read_error_bars(plots.curves(run_folder, ["report.deal"]).axes[0])
    assert [end for _, end in bars[0]] == pytest.approx(rate_ci(2, 3)[1:])  # two of three matches end in a deal
