"""A study whose arms are pipelines: run by the command, interrupted and continued, judged by the last stage."""

import json
from pathlib import Path

import pytest

from agents import strict_yaml
from arena.config.arms import check_arms, compute_budget, require_study, with_arm
from arena.config.recipe import find_last_experiment, recipe_to_plain
from arena.config.sources import text_layer
from arena.errors import ConfigError
from arena.evaluate.study.grid import build_grid, make_sweep, read_axes
from arena.evaluate.study.plan import Plan
from tests.factories.commands import arena, get_refusal
from tests.factories.labs import read_weight_files
from tests.factories.pipelines import CONFIG, STAGES, STUDY, compose_pipeline

WARM = (
    STUDY.partition("stages:")[0]
    .replace("    imitate: {scripted: [random], matches: 24, epochs: 2, minibatches: 4, lr: 3e-3}\n", "")
    .replace('slow: ["stages.last.play.learn.lr=1e-9"]', 'same: ["stages.last.play.threads=1"]\n  warm: [same]')
    .replace("better_than: [slow]", "better_than: [same]")
    + """\
stages:
  - name: first
    play: {iterations: 1}
  - name: last
    play:
      iterations: 2
      policies:
        player: {imitate: {scripted: [random], matches: 24, epochs: 2, minibatches: 4, lr: 3e-3}}
"""
)
LESSONS = '  - {name: lessons, sft: {policy: player, data: "stage:first", batch: 16}}\n'


def test_arm_changes_a_stage() -> None:
    pipeline = compose_pipeline()
    check_arms(pipeline)
    slow = with_arm(pipeline, "slow", 5)
    assert find_last_experiment(slow).learn.lr == 1e-9 and find_last_experiment(pipeline).learn.lr == 1e-3
    assert recipe_to_plain(slow)["policies"]["player"]["model"] == "nano-5"
    assert compute_budget(slow) == ((2, 8), (2, 8), (2, 8))


def test_progress_counts_the_stages_whose_iterations_are_known(tmp_path: Path) -> None:
    """The steps of a stage such as `sft`, whose number depends on its data, do not count."""
    text = STUDY.replace("  - play:\n      iterations: 2\n      learn: {lr: 5e-4}\n", LESSONS)
    planned = Plan(folder=tmp_path, experiment=compose_pipeline(text), arms=["all"], seeds=1)
    (run,) = planned.runs
    assert planned.iterations("all") == 4 and planned.count_iterations(run) == 0
    for stage, lines in {"01-first": 2, "02-lessons": 61, "03-last": 1}.items():
        folder = run.path / "stages" / stage
        folder.mkdir(parents=True)
        (folder / "config.yaml").touch()
        (folder / "metrics.jsonl").write_text("{}\n" * lines)
    (run.path / "config.yaml").touch()
    assert planned.count_iterations(run) == 3


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("learn.lr=1e-9", "iterations=3", "slow: plays 2 × 8 + 2 × 8 + 3 × 8 matches, all 2 × 8 + 2 × 8 + 2 × 8"),
        ("stages.last.play", "stages.lats.play", "no stage 'lats' — did you mean 'last'?"),
        ("evaluation.payoff", "evaluation.2.payoff", "names game 2 of `evaluate`"),
    ],
)
def test_wrong_arm_is_refused(before: str, after: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_arms(compose_pipeline(STUDY.replace(before, after)))
    assert message in str(raised.value)


@pytest.mark.slow
def test_study_of_pipelines_is_judged_by_the_last_stage(tmp_path: Path) -> None:
    file, out = tmp_path / "chain.yaml", tmp_path / "study"
    file.write_text(STUDY)
    result = arena("study", file, "--seeds", "1", "--out", out, "--jobs", "2", "--json")
    assert result.code == 0, result
    data = json.loads((out / "study.json").read_text())
    assert [(run["arm"], run["seed"]) for run in data["runs"]] == [("all", 0), ("slow", 0)] and not data["missing"]
    assert all(len(run["curve"]) == 2 and len(run["also"]["payoff.first"]) == 2 for run in data["runs"])
    for arm in ("all", "slow"):
        last = out / f"{arm}-0" / "stages" / STAGES[2]
        assert (last / "evaluation.json").exists() and (last / "done.json").exists()
    assert arena("study", file, "--seeds", "1", "--out", out, "--json").code == 0, "nothing is left to run"
    compared = json.loads(arena("compare", out / "all-0", out / "slow-0", "--json").out)
    assert compared["differs"]["stages.last.play.learn.lr"] == ["–", "1e-09"]
    assert "policies.player.model" not in compared["differs"], "earlier stages' weights have the same names"


@pytest.mark.slow
def test_warm_arms_share_the_last_stages_imitation(tmp_path: Path) -> None:
    """The arm `same` differs from the first arm only in starting from its weights, and ends with the same weights."""
    file, out = tmp_path / "warm.yaml", tmp_path / "study"
    file.write_text(WARM)
    result = arena("study", file, "--seeds", "1", "--out", out, "--jobs", "2", "--json")
    assert result.code == 0, result
    first, same = (out / f"{arm}-0" / "stages" / "02-last" for arm in ("all", "same"))
    assert (
        read_weight_files(first, 2, "player")
        == read_weight_files(same, 2, "player")
        != read_weight_files(first, 0, "player")
    )
    saved = strict_yaml.load((same / "config.yaml").read_text(), "config.yaml")["policies"]["player"]
    assert saved["imitate"] is None and "all-0/stages/02-last/checkpoints/0000" in saved["model"]


def test_rehearsal_refuses_pipelines(tmp_path: Path) -> None:
    file = tmp_path / "chain.yaml"
    file.write_text(STUDY)
    assert "--rehearse: stages of a pipeline" in get_refusal("study", file, "--rehearse", "--json")


@pytest.mark.parametrize("text", [STUDY, CONFIG])
def test_sweep_varies_settings_of_stages(text: str) -> None:
    points = build_grid(read_axes(["stages.last.play.learn.lr=1e-3,1e-4", "stages.first.play.iterations=1,2"]))
    swept = make_sweep(text_layer("chain.yaml", text), points, 2)
    check_arms(swept)
    spec = require_study(swept)
    assert [find_last_experiment(with_arm(swept, arm)).learn.lr for arm in spec.arms] == [1e-3, 1e-3, 1e-4, 1e-4]
    assert spec.uneven == list(spec.arms) and not spec.warm, "the first stages are of unequal length"
    with pytest.raises(ConfigError, match="no stage 'lats'"):
        make_sweep(text_layer("chain.yaml", text), build_grid(read_axes(["stages.lats.play.seed=1"])), 2)


@pytest.mark.slow
def test_sweep_runs_pipelines(tmp_path: Path) -> None:
    file, out = tmp_path / "chain.yaml", tmp_path / "sweep"
    file.write_text(CONFIG)
    result = arena(
        "sweep", file, "--set", "stages.last.play.learn.lr=1e-3,1e-9", "--seeds", "1", "--out", out, "--json"
    )
    assert result.code == 0, result
    finished = {path.parents[2].resolve().name for path in out.glob("*/stages/03-last/done.json")}
    assert finished == {"setting-1-1000", "setting-2-1000"}
    assert "copied from" in (out / "setting-2-1000.log").read_text(), "the first stages are equal"
    assert len(json.loads((out / "sweep.json").read_text())["ranking"]) == 2
