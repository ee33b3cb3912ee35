"""Grids of settings, their ranking on constructed numbers, and estimates of the remaining time."""

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from arena.config.arms import check_arms, require_study, select_arms, with_arm
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.recipe import Recipe, find_last_experiment
from arena.config.saved_config import experiment_to_plain
from arena.config.sources import Layer, recipe_layer
from arena.errors import ConfigError, StoreError
from arena.evaluate.study import ranking
from arena.evaluate.study.grid import (
    build_grid,
    count_settings,
    make_sweep,
    read_axes,
    read_recipe_axes,
    split_values,
)
from arena.evaluate.study.overrides import with_settings
from arena.evaluate.study.plan import Plan, Run, plan
from arena.evaluate.study.record import RecordedRun
from arena.evaluate.study.rehearsal import count_panels, estimate_seconds, make_rehearsal
from arena.evaluate.study.results import collect, write
from arena.evaluate.study.runs import Runner, warm_settings
from arena.statistics import mean_ci
from arena.store.locks import lock_folder
from arena.store.manifest import write_sealed

BASE = recipe_layer("negotiation-nano")


def make_sweep_experiment(*settings: str, seeds: int = 2, **options: Any) -> Experiment:
    return find_last_experiment(make_sweep(BASE, build_grid(read_axes(settings)), seeds, **options))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1e-4,3e-4", ["1e-4", "3e-4"]),
        ("[1, 2],[3]", ["[1, 2]", "[3]"]),
        ("{kl: {weight: 0.1, of: [1, 2]}}, {}", ["{kl: {weight: 0.1, of: [1, 2]}}", "{}"]),
        ("'a,b',\"c,]d\"", ["'a,b'", '"c,]d"']),
        ("mars", ["mars"]),
        ("]],1", ["]]", "1"]),
        ("", [""]),
    ],
)
def test_values_are_split_at_commas_outside_brackets(text: str, values: list[str]) -> None:
    assert split_values(text) == values


def test_grid_arms_are_all_combinations() -> None:
    experiment = make_sweep_experiment(
        "learn.lr=1e-4,3e-4", "play.limits.turns=[7],9,11".replace("[7],", ""), "iterations=4"
    )
    spec = require_study(experiment)
    assert [*spec.arms] == [f"setting-{n}" for n in range(1, 5)]
    assert spec.arms["setting-2"] == ["learn.lr=1e-4", "play.limits.turns=11", "iterations=4"]
    last = with_arm(experiment, "setting-4", 3)
    assert (last.learn.lr, last.play.limits.turns, last.iterations) == (3e-4, 11, 4)
    assert last.policies["shared"].model == "nano-3", "what the recipe says of each seed holds"
    check_arms(experiment)
    assert spec.first_seed == 1000 and spec.figure == "mean_payoff" and spec.verdict.better_than == []
    assert spec.minutes is None, "those of the recipe are of other runs"


def test_every_arm_tries_the_same_values() -> None:
    arms = select_arms(compose([BASE]), ["all"])
    points = build_grid(read_axes(["learn.lr=1e-4,3e-4"]), arms)
    experiment = find_last_experiment(make_sweep(BASE, points, 2))
    spec, known = require_study(experiment), require_study(compose([BASE]))
    assert arms == known.names and len(points) == 2 * len(arms)
    assert [point.arm for point in points.values()] == [arm for arm in arms for _ in range(2)]
    zero = [name for name, point in points.items() if point.arm == "zero"]
    assert [with_arm(experiment, name).learn.lr for name in zero] == [1e-4, 3e-4]
    assert all(with_arm(experiment, name).credit == with_arm(compose([BASE]), "zero").credit for name in zero)
    assert with_arm(experiment, "setting-1").credit == compose([BASE]).credit, "the first arm is the recipe"
    check_arms(experiment)
    assert spec.verdict.better_than == []
    assert select_arms(compose([BASE]), ["zero", "zero"]) == ["zero"]


@pytest.mark.parametrize(
    ("arms", "setting", "message"),
    [
        ("zer", "learn.lr=1,2", "--arms: no arm 'zer' — did you mean 'zero'?"),
        ("", "learn.lr=1,2", "--arms: no arm ''"),
        ("zero", "credit.estimator=mars,rae", "--set credit.estimator: arm zero keeps its own credit.estimator=zero"),
        ("zero", "credit={estimator: mars}", "--set credit: arm zero keeps its own credit.estimator=zero"),
    ],
)
def test_unknown_arms_and_conflicting_settings_give_one_line(arms: str, setting: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_sweep(BASE, build_grid(read_axes([setting]), select_arms(compose([BASE]), [arms])), 2)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_settings_share_an_imitation_unless_it_is_swept() -> None:
    def list_warm_arms(*settings: str, arms: str = "") -> list[str]:
        points = build_grid(read_axes(settings), select_arms(compose([BASE]), [arms]) if arms else [""])
        return require_study(make_sweep(BASE, points, 2)).warm

    both = ["setting-1", "setting-2"]
    assert (
        list_warm_arms("learn.lr=1e-4,3e-4")
        == list_warm_arms("learn.lr=1e-4,3e-4", "policies.shared.imitate.matches=96")
        == both
    )
    assert list_warm_arms("policies.shared.imitate.matches=96,192") == list_warm_arms("threads=1,2") == [], (
        "that is what differs"
    )
    assert list_warm_arms("learn.lr=1e-4,3e-4", "policies.shared.imitate=null") == [], "nobody would have such weights"
    assert list_warm_arms("learn.lr=1e-4,3e-4", arms="all") == both, "the recipe calls none of its other arms warm"
    aepo = recipe_layer("aepo_tree-nano")
    points = build_grid(read_axes(["iterations=2,3"]), ["both", "neither"])
    assert require_study(make_sweep(aepo, points, 2)).warm == [*points], "and this one does"


def test_all_settings_of_a_seed_start_from_one_imitation(tmp_path: Path) -> None:
    sweep_plan = start_plan(tmp_path / "sweep", make_sweep_experiment("learn.lr=1e-4,3e-4"))
    first, second, other_seed, _ = sweep_plan.runs
    runner = Runner(sweep_plan, 4)
    assert [runner._may_start(run) for run in sweep_plan.runs] == [True, False, True, False]
    (first.path / "checkpoints" / "0000").mkdir(parents=True)
    assert [runner._may_start(run) for run in sweep_plan.runs] == [True, True, True, False]
    assert f'policies.shared.model="{first.path.absolute()}@0:shared"' in warm_settings(
        sweep_plan, second, runner._imitation_run(second)
    )
    assert (
        warm_settings(sweep_plan, first, runner._imitation_run(first))
        == []
        == warm_settings(sweep_plan, other_seed, runner._imitation_run(other_seed))
    )


def test_older_sweep_without_warm_start_can_be_continued(tmp_path: Path) -> None:
    now = make_sweep_experiment("learn.lr=1e-4,3e-4")
    start_plan(tmp_path / "sweep", now.model_copy(update={"study": require_study(now).model_copy(update={"warm": []})}))
    assert start_plan(tmp_path / "sweep", now).spec.warm == ["setting-1", "setting-2"]


def test_recipe_grid_does_not_change_the_rule() -> None:
    tuned = compose([BASE, Layer("", "", {"study": {"grid": ["learn.lr=1e-4,3e-4"]}})])
    assert read_recipe_axes(BASE) == {} == read_recipe_axes(recipe_layer("tic_tac_toe-nano"))
    assert read_recipe_axes(Layer("", "", experiment_to_plain(tuned))) == {"learn.lr": ["1e-4", "3e-4"]}
    wrong = compose([BASE, Layer("", "", {"study": {"grid": ["learn.lr"]}})])
    with pytest.raises(ConfigError, match=r"study\.grid: learn\.lr: write it as a\.b=value,value"):
        read_recipe_axes(Layer("", "", experiment_to_plain(wrong)))
    assert require_study(tuned).rule == require_study(compose([BASE])).rule


def test_sweep_seeds_differ_from_the_judged_ones() -> None:
    judged_from_100 = recipe_layer("clinic-nano")
    points = build_grid(read_axes(["learn.lr=1e-4,3e-4"]))
    assert require_study(make_sweep(judged_from_100, points, 100)).first_seed == 0
    assert require_study(make_sweep(judged_from_100, points, 101)).first_seed == 1000
    assert require_study(make_sweep(judged_from_100, points, 3, first_seed=5)).first_seed == 5
    assert require_study(make_sweep(recipe_layer("tic_tac_toe-nano"), points, 3)).figure == "mean_payoff", (
        "it has no study"
    )
    assert require_study(make_sweep(recipe_layer("kuhn_poker-nano"), points, 3)).verdict.less_is_better
    assert not require_study(
        make_sweep(recipe_layer("kuhn_poker-nano"), points, 3, "valid_rate")
    ).verdict.less_is_better


def test_many_values_are_compared_quickly() -> None:
    """Regression: pairwise comparison of 20,000 values took two minutes."""
    many, start = ",".join(map(str, range(10_000))), time.process_time()
    assert count_settings(read_axes([f"learn.lr={many}"])) == 10_000
    with pytest.raises(ConfigError, match=r"learn\.lr: 7\.0 is given twice"):
        read_axes([f"learn.lr={many},7.0"])
    with pytest.raises(ConfigError, match=r"\{b: 2, a: \[1\]\} is given twice"):
        read_axes(["learn={a: [1], b: 2},{b: 2, a: [1]}"])
    assert time.process_time() - start < 15


def test_concurrent_start_keeps_the_first_plan(tmp_path: Path) -> None:
    """Regression: the second plan used to overwrite experiment.yaml, which later runs of the first one read."""
    experiment, other_experiment = (
        make_sweep_experiment("learn.lr=1e-4,3e-4"),
        make_sweep_experiment("learn.lr=1e-4,5e-4"),
    )
    folder, arms = tmp_path / "sweep", [*require_study(experiment).arms]

    def plan_first(it: Experiment) -> Experiment:
        plan(experiment, folder, arms, 1, lambda it: it, name="sweep.json")
        return it

    with pytest.raises(ConfigError, match=r"experiment\.yaml is another experiment"):
        plan(other_experiment, folder, arms, 1, plan_first, name="sweep.json")
    assert plan(experiment, folder, arms, 1, plan_first, name="sweep.json").spec == require_study(experiment)


def test_locked_folder_is_refused(tmp_path: Path) -> None:
    experiment = make_sweep_experiment("learn.lr=1e-4")
    (tmp_path / "sweep").mkdir()
    with lock_folder(tmp_path / "sweep"), pytest.raises(StoreError, match="is in use by process"):
        plan(experiment, tmp_path / "sweep", ["setting-1"], 1, lambda it: it, name="sweep.json")


def test_leftovers_of_a_killed_start_are_ignored(tmp_path: Path) -> None:
    experiment, folder = make_sweep_experiment("learn.lr=1e-4"), tmp_path / "sweep"
    folder.mkdir()
    for name in (".experiment.yaml.tmp", "run.lock", "run.pid"):
        (folder / name).write_text("")
    assert plan(experiment, folder, ["setting-1"], 1, lambda it: it, name="sweep.json").folder == folder


def test_huge_grid_is_counted_without_being_built() -> None:
    start = time.monotonic()
    assert count_settings(read_axes([f"learn.x{n}={','.join(map(str, range(10)))}" for n in range(9)])) == 10**9
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["learn.lr"], "write it as a.b=value,value"),
        (["=1,2"], "write it as a.b=value,value"),
        (["seed=1,2"], "--set seed: not a setting to sweep: --seeds and --first-seed say which seeds"),
        (["study.last=1,2"], "not a setting to sweep: a sweep has no arms"),
        (["learn.lr=1,2", "learn.lr=3"], "--set learn.lr: learn.lr is swept, too"),
        (["learn={}", "learn.lr=1,2"], "--set learn.lr: learn is swept, too"),
        (["learn.lr=1e-4,0.0001"], "--set learn.lr: 0.0001 is given twice"),
        (["learn.lr=[1,2"], "--set learn.lr"),
        (["learn.lrr=1,2"], "--set learn.lrr=1: learn.lrr: unknown field — did you mean 'lr'?"),
        (["learn.lr=1e-4,quick"], "--set learn.lr=quick: learn.lr"),
        (["learn.minibatches=2,-1"], "--set learn.minibatches=-1: learn.minibatches"),
    ],
)
def test_invalid_grid_gives_one_line(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_sweep_experiment(*settings)
    assert message in str(error.value) and "\n" not in str(error.value)


# -- results -----------------------------------------------------------------------------------------------


def start_plan(folder: Path, experiment: Recipe, seeds: int = 2) -> Plan:
    return plan(experiment, folder, [*require_study(experiment).arms], seeds, lambda it: it, name="sweep.json")


@pytest.mark.parametrize("lowest", [False, True])
def test_best_setting_is_first_with_its_interval(tmp_path: Path, lowest: bool) -> None:
    points = build_grid(read_axes(["learn.lr=1e-4,2e-4,3e-4", "credit.estimator=rae"]))
    sweep_plan = start_plan(tmp_path / "it", make_sweep(BASE, points, 2, lowest=lowest), 3)
    ends = {"setting-1": [0.1, 0.2, 0.3], "setting-2": [2.0, 2.1, 2.2], "setting-3": [1.0, 1.1, 1.2]}
    records = {
        (arm, 1000 + n): RecordedRun(arm=arm, seed=1000 + n, seconds=1.0, curve=[0.0] * 15 + [end] * 5)
        for arm, seeds in ends.items()
        for n, end in enumerate(seeds)
    }
    results = collect(replace(sweep_plan, recorded=records))
    ranked = ranking.rank(results, points)
    best = ["setting-2", "setting-3", "setting-1"]
    assert [it.name for it in ranked] == (best[::-1] if lowest else best)
    (first,) = [it for it in ranked if it.name == "setting-2"]
    assert first.mean == mean_ci([2.0, 2.1, 2.2]) and first.values == {1000: 2.0, 1001: 2.1, 1002: 2.2}
    assert first.settings == ["learn.lr=2e-4"], "settings that all share are left out"
    assert results.verdict.verdict == "not judged"
    data = write(replace(sweep_plan, recorded=records), results, {"ranking": ranking.to_json(ranked)})
    assert data == json.loads((tmp_path / "it" / "sweep.json").read_text())
    assert data["ranking"][0]["seeds"].keys() == {"1000", "1001", "1002"} and len(data["runs"]) == 9
    assert start_plan(tmp_path / "it", sweep_plan.experiment, 3).recorded.keys() == records.keys(), (
        "and it is read again"
    )


def test_settings_are_ranked_within_arms(tmp_path: Path) -> None:
    points = build_grid(read_axes(["learn.lr=1e-4,3e-4"]), ["mars", "zero"])
    sweep_plan = start_plan(tmp_path / "it", make_sweep(BASE, points, 2))
    ends = {"setting-1": 0.1, "setting-2": 0.2, "setting-3": 9.0, "setting-4": 3.0}
    records = {(arm, 1000): RecordedRun(arm=arm, seed=1000, seconds=1.0, curve=[end] * 20) for arm, end in ends.items()}
    results = collect(replace(sweep_plan, recorded=records))
    ranked = ranking.rank(results, points)
    assert [(it.arm, it.name) for it in ranked] == [
        ("mars", "setting-2"), ("mars", "setting-1"), ("zero", "setting-3"), ("zero", "setting-4"),
    ]  # fmt: skip
    assert [it.settings for it in ranked[::2]] == [["learn.lr=3e-4"], ["learn.lr=1e-4"]]
    assert [row["arm"] for row in ranking.to_json(ranked)] == ["mars", "mars", "zero", "zero"]


def test_other_grid_or_seeds_in_the_same_folder_are_refused(tmp_path: Path) -> None:
    start_plan(tmp_path / "it", make_sweep_experiment("learn.lr=1e-4,3e-4"))
    assert len(start_plan(tmp_path / "it", make_sweep_experiment("learn.lr=1e-4,3e-4"), 5).runs) == 10, (
        "more seeds are more runs"
    )
    for other in (
        make_sweep_experiment("learn.lr=1e-4,2e-4"),
        make_sweep_experiment("learn.lr=1e-4,3e-4", first_seed=7),
    ):
        with pytest.raises(ConfigError, match="is another experiment: study"):
            start_plan(tmp_path / "it", other)


def test_runs_can_be_started_by_another_launcher(tmp_path: Path) -> None:
    """A cluster plugs in a launcher that starts a run and returns a process-like object."""
    sweep_plan = start_plan(tmp_path / "it", make_sweep_experiment("learn.lr=1e-4,3e-4"))
    commands: list[list[str]] = []

    class FinishedProcess:
        def poll(self) -> int | None:
            return 0

        def terminate(self) -> None: ...

        def wait(self) -> int:
            return 0

    def start_elsewhere(run: Run, arguments: Any) -> FinishedProcess:
        commands.append([run.path.name, *arguments])
        for iteration in (0, 20):
            (run.path / "checkpoints" / f"{iteration:04d}").mkdir(parents=True)
        return FinishedProcess()

    runner = Runner(sweep_plan, 3, start_elsewhere)
    runner.run(lambda run, more: None, lambda line: None)
    assert not runner.failures and sorted(arguments[0] for arguments in commands) == sorted(
        run.path.name for run in sweep_plan.runs
    )
    assert commands[0][1:3] == ["run", "selfplay"] and "setting-1" in commands[0] and "--seed" in commands[0]


# -- settings of a study, and rehearsals -------------------------------------------------------------------


def test_rehearsal_is_short_in_all_arms_and_makes_no_claim() -> None:
    experiment = with_settings(BASE, ["study.arms={zero: [credit.estimator=zero, iterations=90], shuffled: []}",
                                      "study.uneven=[zero]"])  # fmt: skip
    assert isinstance(experiment, Experiment)
    short = make_rehearsal(experiment)
    assert [with_arm(short, arm).iterations for arm in require_study(short).names] == [2, 2, 2]
    assert require_study(short).verdict.better_than == [] and require_study(short).first_seed == 1000
    check_arms(short)


# -- duration ----------------------------------------------------------------------------------------------


def write_run_files(run: Run, rows: int, once: float, each: float, ended: bool = False) -> None:
    """Write a run's files with these seconds before its first iteration (`once`) and per iteration (`each`)."""
    run.path.mkdir(parents=True, exist_ok=True)
    now = 1_700_000_000.0
    body = {"commands": [{"time": datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")}]}
    (run.path / "config.yaml").write_text("")
    write_sealed(run.path / "environment.json", body)
    metrics = run.path / "metrics.jsonl"
    row = {"seconds": {"play": each / 2, "play_model": 1.0, "learn": each / 2, "commit": 0.0}}
    metrics.write_text("".join(f"{json.dumps({'iteration': k + 1, **row})}\n" for k in range(rows)))
    os.utime(metrics, (now, now + once + rows * each))
    if ended:
        for iteration in (0, rows):
            (run.path / "checkpoints" / f"{iteration:04d}").mkdir(parents=True)


def test_rehearsal_predicts_the_duration_of_a_run(tmp_path: Path) -> None:
    """After a minute of imitation, two iterations take 2 s each: 20 iterations take 100 s, not 640."""
    run, experiment = Run("mars", 0, tmp_path / "mars-0"), compose([BASE])
    write_run_files(run, 2, once=60.0, each=2.0)
    assert estimate_seconds(run.path, experiment) == pytest.approx(60.0 + 20 * 2.0, abs=0.1)


def test_panels_are_counted_separately() -> None:
    panel = {"evaluate": {"panel": "negotiation", "every": 8}}
    assert count_panels(compose([BASE, Layer("", "", panel)])) == 3, "after 8, 16 and 20 iterations"
    assert count_panels(compose([BASE])) == 0


@pytest.mark.parametrize("text", ["", "{}\n", '{"iteration": 1}\n', "\x00", '{"seconds": {"play": "x"}}\n'])
def test_damaged_files_give_no_estimate(tmp_path: Path, text: str) -> None:
    run = Run("mars", 0, tmp_path / "mars-0")
    write_run_files(run, 1, 1.0, 1.0)
    (run.path / "metrics.jsonl").write_text(text)
    assert estimate_seconds(run.path, compose([BASE])) is None
