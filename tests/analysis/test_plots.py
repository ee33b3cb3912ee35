"""Pictures show the numbers that are in the frames, and texts of models do nothing but be shown."""

import io
from pathlib import Path

import pytest

import analysis
from analysis import plots
from arena.errors import StoreError
from arena.store.run import RunFolder
from tests.analysis.made_run import make_run


@pytest.fixture
def run(tmp_path: Path) -> analysis.Run:
    make_run(tmp_path / "run")
    return analysis.load(tmp_path / "run")


def test_curves_show_every_number(run: analysis.Run) -> None:
    figure = plots.curves(run)
    assert [axis.get_title() for axis in figure.axes] == ["reward.opener", "valid_rate"]
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert len(plots.curves(run, ["kl"]).axes) == 1
    with pytest.raises(KeyError, match="did you mean 'valid_rate'"):
        plots.curves(run, ["valid_rat"])


def test_seeds_are_compared_with_bands(tmp_path: Path) -> None:
    seeds = []
    for seed in range(3):
        make_run(tmp_path / str(seed), live=False, shift=float(seed))
        seeds.append(analysis.load(tmp_path / str(seed)))
    figure = plots.compare({"credit": seeds, "control": seeds[:1]}, "reward.opener")
    (axis,) = figure.axes
    assert [line.get_ydata().tolist() for line in axis.lines] == [[1.0, 2.0, 3.0], [0.0, 1.0, 2.0]]
    band = axis.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(1.0 - 2.4841, abs=1e-3)  # t(0.975, 2) = 4.3027, s = 1, n = 3
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["credit", "control"]
    with pytest.raises(KeyError, match="no metric"):
        plots.compare({"credit": seeds}, "los")


def test_payoffs_are_means_of_finished_matches(run: analysis.Run) -> None:
    (axis,) = plots.payoffs(run).axes
    assert axis.lines[0].get_xydata().tolist() == [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]


@pytest.mark.parametrize("draw", [plots.curves, plots.payoffs])
def test_a_run_without_anything_yet_gives_an_empty_picture(tmp_path: Path, draw: object) -> None:
    RunFolder.create(tmp_path / "run", "a: 1\n", {})
    draw(analysis.load(tmp_path / "run")).savefig(io.BytesIO())  # type: ignore[operator]


def test_hostile_names_are_drawn_as_they_are(run: analysis.Run) -> None:
    hostile = run.iterations.rename(columns={"valid_rate": "$\\frac{$ _x\x1b"})
    plots.curves(analysis.Run(run.path, hostile, run.matches, run.turns)).savefig(io.BytesIO())


def test_a_match_is_a_readable_dialogue(run: analysis.Run) -> None:
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


def test_an_unknown_match_is_told(run: analysis.Run) -> None:
    with pytest.raises(StoreError, match="has no match '0001-000' — did you mean '0001-000"):
        plots.dialogue(run, "0001-000")
