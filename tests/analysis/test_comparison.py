"""Comparisons find planted differences only, pair what can be paired, and state what their intervals are over."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import trim_mean

import analysis
from analysis import comparison, panels, plots
from analysis.comparison import collect_figures, compare, group_arms, interquartile_mean, iqm_ci
from arena.errors import StoreError
from arena.statistics import Interval
from arena.store.run import RunFolder
from tests.factories.commands import arena, get_refusal
from tests.factories.made_run import make_match
from tests.legible import find_overlaps


def make_run(
    path: Path, gain: float, seed: int, lr: float, deals: int = 0, iterations: int = 6, games: int = 1,
    more: Mapping[str, Any] | None = None,
) -> Path:  # fmt: skip
    """Write matches in which the opener is paid by the deal, `gain` and chance; `more` goes into their reports."""
    rng, experiment = np.random.default_rng((seed, int(lr * 1e6))), {"learn": {"lr": lr}, "seed": seed}
    folder = RunFolder.create(path, "a: 1\n", {"experiment": experiment})
    for k in range(iterations):
        for number in range(20):
            luck = float(np.random.default_rng((seed, k, number)).normal(0, 5))
            won = round(luck + gain + float(rng.normal(0, 0.1)), 6)
            deal = deals + seed * 10_000 + k * 100 + number
            report = {"deal": number % 3 > 0, "end": "x", "same": 1.0, **(more or {})}
            paid, game = {"opener": won, "responder": -won}, f"game{number % games}"
            record = replace(make_match(k, number), seed=deal, payoffs=paid, game=game, report=report)
            folder.log.extend([record])
        folder.log.seal(k)
    return path


def test_runs_that_differ_in_their_seed_are_an_arm(tmp_path: Path) -> None:
    paths = [
        make_run(tmp_path / f"{name}-{seed}", 0, seed, lr) for name, lr in (("a", 0.1), ("b", 0.2)) for seed in (0, 1)
    ]
    assert [(arm.label, arm.runs) for arm in group_arms(analysis.load(paths))] == [
        ("a", ("a-0", "a-1")), ("b", ("b-0", "b-1"))
    ]  # fmt: skip
    assert compare(paths).differs == {"learn.lr": ("0.1", "0.2")}


def test_a_planted_difference_is_found_deal_by_deal_though_luck_is_ten_times_as_large(tmp_path: Path) -> None:
    paths = [
        make_run(tmp_path / "a", 0, 0, 0.1),
        make_run(tmp_path / "b", 0.5, 0, 0.2),
        make_run(tmp_path / "c", 0.5, 0, 0.3, deals=7),
    ]
    paired, other = compare(paths[:2]), compare([paths[0], paths[2]])
    rows = {row.figure: row for row in paired.rows}
    assert list(rows) == ["payoff opener", "payoff responder", "deal"] and paired.unit == "matches"
    difference = rows["payoff opener"].differences[0]
    assert rows["payoff opener"].paired == "by deal" and 0.4 < difference.low < 0.5 < difference.high < 0.6
    assert rows["deal"].differences[0] == (0.0, 0.0, 0.0)
    (apart,) = (row for row in other.rows if row.figure == "payoff opener")
    assert apart.paired == "" and apart.differences[0].high - apart.differences[0].low > 1


@pytest.mark.slow
def test_arms_of_several_seeds_are_compared_seed_by_seed(tmp_path: Path) -> None:
    paths = [
        make_run(tmp_path / f"{lr}-{seed}", gain, seed, lr)
        for lr, gain in ((0.1, 0.0), (0.2, 0.5))
        for seed in range(4)
    ]
    comparison = compare(paths, last=2)
    (row,) = (row for row in comparison.rows if row.figure == "payoff opener")
    assert comparison.unit == "seeds" and row.paired == "by seed"
    assert 0.4 < row.differences[0].low < 0.5 < row.differences[0].high < 0.6
    ends = collect_figures(analysis.load(paths)).query("iteration >= 4 and run == '0.1-2'")["payoff opener"].mean()
    assert min(row.means[0]) <= ends and len(row.iqm) == 2 and row.iqm[0].low < row.iqm[0].estimate < row.iqm[0].high
    unequal = compare(paths[:-1], last=2)
    assert {row.paired for row in unequal.rows} == {""} and not any(row.iqm for row in unequal.rows)


@pytest.mark.slow
def test_an_arm_of_one_run_has_no_interval_beside_arms_of_several_seeds(tmp_path: Path) -> None:
    paths = [
        make_run(tmp_path / "a-0", 0, 0, 0.1),
        make_run(tmp_path / "a-1", 0, 1, 0.1),
        make_run(tmp_path / "b", 0.5, 0, 0.2),
    ]
    comparison = compare(paths)
    (row,) = (row for row in comparison.rows if row.figure == "payoff opener")
    assert comparison.unit == "seeds" and math.isfinite(row.means[0].low) and row.paired == ""
    assert math.isnan(row.means[1].low) and math.isnan(row.differences[0].high)
    assert row.differences[0].estimate == pytest.approx(row.means[1].estimate - row.means[0].estimate)
    output = arena("compare", *paths).out
    assert "95 % over seeds" in output and f"? {row.differences[0].estimate:.3g}" in output
    assert "one run per arm" not in output
    assert output.endswith("no interval with one run: b may differ with another seed\n")


@pytest.mark.slow
def test_runs_with_the_same_seed_are_all_counted(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / f"a-{n}", n, seed, 0.1) for n, seed in enumerate((0, 0, 1))]
    paths += [make_run(tmp_path / f"b-{n}", 0.5, seed, 0.2) for n, seed in enumerate((0, 1))]
    (row,) = (row for row in compare(paths).rows if row.figure == "payoff opener")
    ends = collect_figures(analysis.load(paths[:3])).query("iteration > 0").groupby("run")["payoff opener"].mean()
    assert row.means[0].estimate == pytest.approx(ends.mean()) and row.paired == ""


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (["lr-10", "lr-11"], "lr"),
        (["lr-1", "lr-10"], "lr"),
        (["lr3e-4", "lr3e-4b"], "lr3e-4"),
        (["nano2-0", "nano2-1"], "nano2"),
        (["a_20/run", "a_20/run2"], "a_20/run"),
        (["20", "21"], ""),
    ],
)
def test_an_arm_is_called_by_its_runs_without_their_seeds(names: list[str], label: str) -> None:
    assert comparison._common_prefix(tuple(names)) == label


def test_figure_named_like_a_column_keeps_its_full_name(tmp_path: Path) -> None:
    taken = ["valid per match", "payoff opener", "learners payoff", "run", "match", "game", "seed", "iteration"]
    taken += ["report.game"]
    paths = [
        make_run(tmp_path / name, 0, 0, lr, more=dict.fromkeys(taken, lr)) for name, lr in (("a", 0.1), ("b", 0.2))
    ]
    known = collect_figures(analysis.load(paths))
    assert known.columns.is_unique and known["report.valid per match"].tolist()[::120] == [0.1, 0.2]
    assert known["valid per match"].unique().tolist() == [0.5]
    assert {f"report.{name}" for name in taken} <= {row.figure for row in compare(paths).rows}


@pytest.mark.slow
def test_figures_missing_for_a_seed_are_not_plotted(tmp_path: Path) -> None:
    """A figure that one seed does not report, and a game that another did not play."""
    paths = [make_run(tmp_path / "a-0", 0, 0, 0.1, more={"grip": 0.5}), make_run(tmp_path / "a-1", 0, 1, 0.1, games=2)]
    paths += [make_run(tmp_path / f"b-{n}", 0, n, 0.2, games=2, more={"grip": n}) for n in (0, 1)]
    comparison = compare(paths)
    assert {("game0", "grip"), ("game1", "payoff opener")} <= {(row.game, row.figure) for row in comparison.rows}
    assert not find_overlaps(plots.plot_comparison(comparison))


def test_missing_figure_of_an_arm_is_reported(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / "a", 0, 0, 0.1, more={"grip": 0.5}), make_run(tmp_path / "b", 0, 0, 0.2)]
    message = "grip: missing in an arm, or the same in all matches"
    assert arena("compare", *paths, "--figure", "grip").out.splitlines()[0] == message
    assert message in arena("compare", *paths, "--figure", "grip", "--figure", "deal").out


@pytest.mark.slow
def test_games_have_equal_weight_in_the_total(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / f"{lr}-{seed}", 0, seed, lr, games=2) for lr in (0.1, 0.2) for seed in range(4)]
    rows = [row for row in compare(paths).rows if row.figure == "payoff opener"]
    assert [row.game for row in rows] == ["game0", "game1", "all games"]
    assert rows[2].means[0].estimate == pytest.approx((rows[0].means[0].estimate + rows[1].means[0].estimate) / 2)


def test_refuses_incomparable_runs(tmp_path: Path) -> None:
    first, two = make_run(tmp_path / "a-0", 0, 0, 0.1), make_run(tmp_path / "a-1", 0, 1, 0.1)
    with pytest.raises(StoreError, match="give runs that differ in more than their seed"):
        compare([first, two])
    three = make_run(tmp_path / "b", 0, 0, 0.2)
    assert get_refusal("compare", first, three, "--figure", "payof opener").startswith(
        "there is no figure 'payof opener' — did you mean 'payoff opener'? (figures: valid per match, learners"
    )


@pytest.mark.slow
def test_the_command_shows_writes_and_draws(tmp_path: Path) -> None:
    paths = [
        make_run(tmp_path / f"{n}-{seed}", gain, seed, lr)
        for n, lr, gain in (("a", 0.1, 0), ("b", 0.2, 1))
        for seed in (0, 1)
    ]
    output = arena("compare", *paths, "--plot", tmp_path / "x.png").out
    assert (
        "game0 (last 5 iterations, 95 % over seeds)" in output and "b - a" in output and "learn.lr: 0.1 | 0.2" in output
    )
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    data = json.loads(arena("compare", *paths, "--json").out)
    assert data["arms"] == {"a": ["a-0", "a-1"], "b": ["b-0", "b-1"]} and data["intervals_over"] == "seeds"
    assert data["rows"][0]["differences"]["b"][0] == pytest.approx(1, abs=0.1)
    figure = plots.plot_comparison(compare(paths))
    assert not find_overlaps(figure) and [axis.get_title() for axis in figure.axes][:1] == ["payoff opener"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["x.foo", "x.pdf", "x"])
def test_plot_is_png_for_any_file_name(tmp_path: Path, name: str) -> None:
    two = [make_run(tmp_path / "a", 0, 0, 0.1), make_run(tmp_path / "b", 0, 0, 0.2)]
    assert arena("compare", *two, "--plot", tmp_path / name).code == 0
    assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert get_refusal("compare", *two, "--plot", tmp_path / "no" / name).endswith(
        f"there is no folder {tmp_path / 'no'}"
    )


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["_hidden", "__init", "hidden"], ["hidden (1)", "init", "hidden (3)"]),
        ([f"{'long ' * 7}{name}" for name in "ab"], [f"{'long ' * 5}long\nlong {name}" for name in "ab"]),
        ([f"{'long ' * 30}{name}" for name in "ab"], None),
        (["$x$"], ["\\$x\\$"]),
    ],
)
def test_no_arm_is_missing_from_the_legend(labels: list[str], expected: list[str] | None) -> None:
    figure, (axis,) = panels.make_sheet(["figure"])
    for number, label in enumerate(labels):
        panels.draw_curve(axis, range(6), [range(6)], Interval(5, 4, 6), label, "black", number)
        panels.draw_points(axis, [1], [Interval(5, 4, 6)], label, "black", number)
    panels.add_legend(figure)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len({*texts}) == len(labels) and texts == (expected or texts) and not find_overlaps(figure)


# The interquartile mean


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_the_interquartile_mean_is_scipys_trimmed_mean(scores: list[float]) -> None:
    assert interquartile_mean(scores) == pytest.approx(trim_mean(scores, 0.25), abs=1e-6)


@pytest.mark.parametrize("scores", [[], [1.0, float("nan")]])
def test_mean_refuses_missing_or_infinite_scores(scores: Sequence[float]) -> None:
    with pytest.raises(ValueError, match="at least one value, all finite"):
        interquartile_mean(scores)


def test_interval_has_its_stated_coverage() -> None:
    """Ten normal runs on two games with mean 0.5; a percentile bootstrap is slightly too narrow."""
    rng, covered = np.random.default_rng(0), 0
    for trial in range(300):
        interval = iqm_ci({"a": rng.normal(0.5, 1, 10), "b": rng.normal(0.5, 1, 10)}, resamples=300, seed=trial)
        covered += interval.low <= 0.5 <= interval.high
    assert 0.87 <= covered / 300 <= 0.98


def test_the_bootstrap_keeps_to_its_strata() -> None:
    """One game always 0, the other always 1: every resample has half of each."""
    assert iqm_ci({"a": [0.0] * 5, "b": [1.0] * 5}) == (0.5, 0.5, 0.5)
