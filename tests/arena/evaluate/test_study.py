"""Studies on constructed numbers: verdicts by rule, differences paired by seed, and refusals."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from arena.config.arms import check_arms
from arena.config.layers import compose
from arena.config.recipe import with_study
from arena.config.saved_config import experiment_to_plain
from arena.config.sources import Layer, recipe_layer
from arena.config.study import StudySpec, parse_evaluated_figure
from arena.errors import ConfigError, StoreError
from arena.evaluate.study import results as stored_results
from arena.evaluate.study.plan import EXPERIMENT, Plan, Run, plan
from arena.evaluate.study.plot import draw
from arena.evaluate.study.record import RecordedRun, find_record, index_runs
from arena.evaluate.study.results import Results
from arena.evaluate.study.runs import Runner, is_done, warm_settings
from arena.evaluate.study.summary import Ends, find_figure
from arena.evaluate.study.verdicts import judge
from arena.statistics import paired_ci
from arena.store.manifest import SEAL, write_sealed
from arena.store.run import RunFolder
from tests.factories.store import write_state
from tests.legible import find_overlaps

SPEC: dict[str, Any] = {
    "replicates": "a paper", "claim": "it learns", "published": "1", "family": "none", "minutes": 1.0,
    "figure": "mean_payoff", "last": 2, "arm": "mars", "arms": {"zero": ["credit.estimator=zero"], "other": []},
    "verdict": {"better_than": ["zero"]},
}  # fmt: skip


def make_spec(**rule: Any) -> StudySpec:
    return StudySpec.model_validate({**SPEC, "verdict": {**SPEC["verdict"], **rule}})


def make_ends(mars: list[float], zero: list[float], **others: list[float]) -> Ends:
    curves = {
        arm: {s: [0.0, v, v] for s, v in enumerate(vs)} for arm, vs in {"mars": mars, "zero": zero, **others}.items()
    }
    return Ends(curves, "mean_payoff", 2)


def judge_word(study_plan: Ends, seeds: int = 3, **rule: Any) -> str:
    return judge(make_spec(**rule), study_plan.last, study_plan.bounds, seeds).verdict


def test_verdict_follows_the_rule() -> None:
    better = make_ends([3.0, 3.1, 3.2], [1.0, 1.2, 1.1])
    worse, alike = make_ends([1.0, 1.2, 1.1], [3.0, 3.1, 3.2]), make_ends([1.0, 2.0, 3.0], [2.0, 1.0, 3.1])
    assert [judge_word(study_plan) for study_plan in (better, worse, alike)] == ["holds", "contradicted", "not shown"]
    assert [judge_word(study_plan, less_is_better=True) for study_plan in (better, worse, alike)] == [
        "contradicted",
        "holds",
        "not shown",
    ]
    assert judge_word(better, by=1.9) == "not shown", "2.0 on the mean, and its interval reaches below"
    assert judge_word(better, by=2.9) == "contradicted"
    assert judge_word(better, by=1.8) == "not shown" and judge_word(better, by=1.8, interval=0.5) == "holds"


def test_all_comparisons_must_hold_and_one_can_contradict() -> None:
    both: dict[str, Any] = {"better_than": ["zero", "other"]}
    assert judge_word(make_ends([3.0, 3.1, 3.2], [1.0, 1.2, 1.1], other=[2.0, 4.0, 3.0]), **both) == "not shown"
    assert judge_word(make_ends([3.0, 3.1, 3.2], [1.0, 1.2, 1.1], other=[5.0, 5.2, 5.1]), **both) == "contradicted"


def test_incomplete_studies_are_not_judged() -> None:
    assert judge_word(make_ends([3.0, 3.1, 3.2], [1.0, 1.2])) == "not judged"
    assert judge_word(make_ends([3.0], [1.0]), seeds=1) == "not judged"
    assert judge_word(make_ends([3.0, 3.1, 3.2], [1.0, 1.2, 1.1]), better_than=[]) == "not judged", (
        "the study claims nothing"
    )
    study_plan = make_ends([3.0, 3.1], [1.0, 1.2])
    assert (
        judge(make_spec(), {"mars": study_plan.last["mars"]}, study_plan.bounds, 2).because
        == "0 of 2 runs of zero are finished"
    )


def test_differences_are_paired_by_seed_over_the_last_iterations() -> None:
    curves = {
        "mars": {0: [0.0, 1.0, 3.0], 2: [0.0, 5.0, 7.0]},
        "zero": {0: [0.5, 1.0, 1.0], 1: [9.0, 9.0, 9.0], 2: [0, 2.0, 4.0]},
    }
    study_plan = Ends(curves, "mean_payoff", 2)
    assert study_plan.last["mars"] == {0: 2.0, 2: 6.0}
    zero = study_plan.summary("zero", "mars")
    assert zero.difference == paired_ci([1.0, 3.0], [2.0, 6.0]), "seed 1 has no partner"
    assert study_plan.summary("mars", "mars").difference is None
    assert study_plan.summary("mars", "mars").change == paired_ci([0.0, 0.0], [2.0, 6.0])


def test_figures_are_found_and_unknown_ones_give_one_line() -> None:
    row = {"iteration": 1, "mean_payoff": 0.5, "report": {"deal": 0.25}, "payoff": {"opener": 2.0}}
    assert [find_figure(row, name) for name in ("mean_payoff", "deal", "payoff.opener")] == [0.5, 0.25, 2.0]
    with pytest.raises(ConfigError, match=r"no figure 'dael' — did you mean 'deal'.*payoff.opener"):
        find_figure(row, "dael")


def test_picture_is_legible() -> None:
    curves = {arm: {s: [0.1 * s, 0.5, 0.6 + 0.1 * s] for s in range(3)} for arm in ("mars", "zero")}
    assert not find_overlaps(draw(Results(name="a study", spec=make_spec(), seeds=3, curves=curves)))


# -- plans -------------------------------------------------------------------------------------------------


def make_plan(folder: Path, **changed: Any) -> Plan:
    return make_arm_plan(folder, ["mars", "zero"], 2, **changed)


def make_arm_plan(folder: Path, arms: list[str], seeds: int, **changed: Any) -> Plan:
    experiment = compose([recipe_layer("negotiation-nano")]).model_copy(update=changed)
    return plan(experiment, folder, arms, seeds, lambda it: it)


def test_study_folder_is_bound_to_its_experiment(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    first = make_plan(folder)
    assert (folder / EXPERIMENT).exists() and make_plan(folder) == first
    assert [run.path.name for run in first.runs] == ["mars-0", "zero-0", "mars-1", "zero-1"]
    with pytest.raises(ConfigError, match=r"experiment.yaml is another experiment: iterations \(20 → 7\)"):
        make_plan(folder, iterations=7)
    study = first.spec.model_copy(update={"verdict": first.spec.verdict.model_copy(update={"by": -1.0})})
    with pytest.raises(ConfigError, match=r"study.verdict.by \(0.0 → -1.0\)"):
        make_plan(folder, study=study)


def test_minutes_can_be_changed(tmp_path: Path) -> None:
    first = make_plan(tmp_path / "study")
    longer = make_plan(tmp_path / "study", study=first.spec.model_copy(update={"minutes": 99.0}))
    assert longer.spec.minutes == 99.0 and longer.runs == first.runs


def test_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="no folder of a study"):
        make_plan(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.slow
def test_runs_do_not_import_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arena itself refuses the run, because its experiment file is empty."""
    study_plan = make_plan(tmp_path / "study")
    (study_plan.folder / EXPERIMENT).write_text("")
    for name in ("json", "typing", "arena"):
        (tmp_path / f"{name}.py").write_text("from pathlib import Path\nPath('taken').touch()\n")
    monkeypatch.chdir(tmp_path)
    runner = Runner(replace(study_plan, arms=["mars"], seeds=1), 1)
    runner.run(lambda run, more: None, lambda line: None)
    assert not (tmp_path / "taken").exists()
    (line,) = runner.failures
    assert "mars, seed 0 failed (" in line and "Traceback" not in study_plan.runs[0].log.read_text()


def test_warm_arm_waits_for_its_initial_weights(tmp_path: Path) -> None:
    study_plan = make_plan(tmp_path / "study")
    warm = Plan(
        folder=study_plan.folder,
        experiment=with_study(study_plan.experiment, study_plan.spec.model_copy(update={"warm": ["zero"]})),
        arms=study_plan.arms,
        seeds=1,
    )
    first, zero = warm.runs
    runner = Runner(warm, 2)
    assert runner.total_iterations == 40 and not runner._may_start(zero) and runner._may_start(first)
    (first.path / "checkpoints" / "0000").mkdir(parents=True)
    assert runner._may_start(zero)
    assert warm_settings(warm, zero, first) == [
        "policies.shared.imitate=null", "policies.shared.adapter=null",
        f'policies.shared.model="{first.path.absolute()}@0:shared"',
    ]  # fmt: skip
    assert warm_settings(warm, first, first) == []


def test_family_can_be_changed(tmp_path: Path) -> None:
    first = make_plan(tmp_path / "study")
    moved = first.spec.model_copy(update={"family": "another", "minutes": 9.0, "warm": ["zero"]})
    assert make_plan(tmp_path / "study", study=moved).spec == moved


def test_first_warm_arm_imitates_if_the_first_arm_is_absent(tmp_path: Path) -> None:
    study_plan = make_plan(tmp_path / "study")
    study_spec = study_plan.spec.model_copy(update={"warm": ["zero", "shuffled"]})
    warm_plan = Plan(
        folder=study_plan.folder,
        experiment=with_study(study_plan.experiment, study_spec),
        arms=study_spec.warm,
        seeds=1,
    )
    zero, shuffled = warm_plan.runs
    runner = Runner(warm_plan, 2)
    assert runner._may_start(zero) and not runner._may_start(shuffled)
    (zero.path / "checkpoints" / "0000").mkdir(parents=True)
    assert runner._may_start(shuffled)
    assert f'policies.shared.model="{zero.path.absolute()}@0:shared"' in warm_settings(warm_plan, shuffled, zero)
    (warm_plan.run(study_spec.arm, zero.seed).path / "checkpoints" / "0000").mkdir(parents=True)
    assert runner._imitation_run(shuffled) == warm_plan.run(study_spec.arm, zero.seed), "which another command has run"


def test_runs_done_by_another_process_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study_plan = make_plan(tmp_path / "study")
    runner, started = Runner(study_plan, 4), list[Any]()
    monkeypatch.setattr(runner, "_start", lambda run, arguments: started.append(run))
    for iteration in (0, 20):
        (study_plan.runs[0].path / "checkpoints" / f"{iteration:04d}").mkdir(parents=True)
    runner._start_next()
    assert started == study_plan.runs[1:] and not runner.due


def test_arm_without_evaluation_needs_none(tmp_path: Path) -> None:
    experiment = compose([recipe_layer("negotiation-nano")])
    evaluate = {"games": [{"name": "negotiation"}], "matches": 4}
    arms = experiment.study.arms | {"zero": ["evaluate=null"]} if experiment.study else {}
    study = experiment.study and experiment.study.model_copy(update={"arms": arms})
    evaluated_experiment = compose(
        [
            Layer(
                "", "", {**experiment_to_plain(experiment), "evaluate": evaluate, "study": study and study.model_dump()}
            )
        ]
    )
    study_plan = plan(evaluated_experiment, tmp_path / "study", ["mars", "zero"], 1, lambda it: it)
    for run in study_plan.runs:
        (run.path / "checkpoints" / "0020").mkdir(parents=True)
    assert [is_done(study_plan, run) for run in study_plan.runs] == [False, True]


def test_records_of_another_process_are_kept(tmp_path: Path) -> None:
    first_plan, second_plan = (make_arm_plan(tmp_path / "study", ["mars", arm], 1) for arm in ("zero", "shuffled"))
    for study_plan in (first_plan, second_plan):
        records = {
            (run.arm, 0): RecordedRun(arm=run.arm, seed=0, seconds=1.0, curve=[0.5] * 20) for run in study_plan.runs
        }
        full_plan = replace(study_plan, recorded=records)
        data = stored_results.write(full_plan, stored_results.collect(full_plan), {})
    assert [run["arm"] for run in data["runs"]] == ["mars", "zero", "shuffled"]


def write_run(study_plan: Plan, run: Run) -> RunFolder:
    """Write a complete run of a plan with metrics only."""
    folder = RunFolder.create(run.path, "seed: 0\n", {"commands": []})
    for k in range(1, study_plan.iterations(run.arm) + 1):
        figures = dict.fromkeys((study_plan.spec.figure, *study_plan.spec.also), 0.5)
        folder.metrics.append({"iteration": k, "seconds": {"play": 1.0}, **figures})
    folder.checkpoint(study_plan.iterations(run.arm), write_state)
    return folder


def test_extra_figures_may_be_missing_in_other_arms(tmp_path: Path) -> None:
    """An arm without the mechanism has no such figure, and the study continues."""
    plain_plan = make_arm_plan(tmp_path / "study", ["mars", "zero"], 1)
    spec_with_extra = plain_plan.spec.model_copy(update={"also": ["patches.count"]})
    study_plan = replace(plain_plan, experiment=with_study(plain_plan.experiment, spec_with_extra))
    mars, zero = study_plan.runs
    write_run(study_plan, mars), write_run(plain_plan, zero)
    for _ in range(2):  # the second time it is read from the record
        data = stored_results.write(study_plan, stored_results.collect(study_plan), {})
        assert [list(run["also"]) for run in data["runs"]] == [["patches.count"], []]
        assert list(data["also"]["patches.count"]) == ["mars"] and list(data["summary"]) == ["mars", "zero"]
        study_plan = replace(study_plan, recorded=index_runs(find_record(study_plan.record)))


def test_first_arm_must_have_all_figures(tmp_path: Path) -> None:
    study_plan = make_arm_plan(tmp_path / "study", ["mars"], 1)
    write_run(study_plan, study_plan.runs[0])
    wrong_spec = study_plan.spec.model_copy(update={"also": ["patches.conut"]})
    with pytest.raises(ConfigError, match=r"no figure 'patches\.conut'"):
        stored_results.collect(replace(study_plan, experiment=with_study(study_plan.experiment, wrong_spec)))


def test_only_committed_iterations_count(tmp_path: Path) -> None:
    study_plan = make_arm_plan(tmp_path / "study", ["mars"], 1)
    (run,) = study_plan.runs
    folder = write_run(study_plan, run)
    folder.metrics.append({"iteration": 21, "seconds": {"play": 9.0}, study_plan.spec.figure: 9.0})
    (stored_run,) = stored_results.write(study_plan, stored_results.collect(study_plan), {})["runs"]
    assert stored_run["curve"] == [0.5] * 20 and stored_run["seconds"] == 20.0
    metrics = run.path / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("0.5", "5.5"))
    with pytest.raises(StoreError, match=r"mars-0/metrics\.jsonl is not as it was written"):
        stored_results.collect(study_plan)


def test_edited_record_is_refused(tmp_path: Path) -> None:
    study_plan = make_arm_plan(tmp_path / "study", ["mars"], 1)
    write_run(study_plan, study_plan.runs[0])
    data, path = (
        stored_results.write(study_plan, stored_results.collect(study_plan), {}),
        tmp_path / "study" / "study.json",
    )
    assert stored_results.read(path).curves["mars"][0] == [0.5] * 20
    data["runs"][0]["curve"] = [5.5] * 20
    path.write_text(json.dumps(data))
    with pytest.raises(StoreError, match=r"study\.json is not as it was written: restore it from a copy"):
        make_arm_plan(tmp_path / "study", ["mars"], 1)


def test_damaged_results_give_one_line(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(StoreError, match=r"study\.json is not as it was written"):
        stored_results.read(tmp_path / "study.json")


def test_recorded_runs_are_neither_repeated_nor_lost(tmp_path: Path) -> None:
    """A study.json alone in a new folder is enough to continue: only other arms and seeds are due."""
    first = make_plan(tmp_path / "one")
    records = {
        (run.arm, run.seed): RecordedRun(arm=run.arm, seed=run.seed, seconds=1.0, curve=[0.5] * 20)
        for run in first.runs
    }
    full_plan = replace(first, recorded=records)
    stored_results.write(full_plan, stored_results.collect(full_plan), {})
    (tmp_path / "two").mkdir()
    copy(tmp_path / "one" / "study.json", tmp_path / "two")

    wide = make_arm_plan(tmp_path / "two", ["mars", "zero", "shuffled"], 3)
    assert [run.path.name for run in Runner(wide, 1).due] == [
        "shuffled-0", "shuffled-1", "mars-2", "zero-2", "shuffled-2",
    ]  # fmt: skip
    narrow = make_arm_plan(tmp_path / "two", ["mars"], 1)
    data = stored_results.write(narrow, stored_results.collect(narrow), {})
    assert not Runner(narrow, 1).due and data["missing"] == [] and len(data["runs"]) == 4
    assert {arm: [*seeds] for arm, seeds in stored_results.read(tmp_path / "two" / "study.json").curves.items()} == {
        "mars": [0]
    }


@pytest.mark.parametrize("beside", [True, False])
def test_record_of_another_experiment_is_refused(tmp_path: Path, beside: bool) -> None:
    """Also when it was copied into this study's folder."""
    first = make_plan(tmp_path / "one")
    stored_results.write(first, stored_results.collect(first), {})
    (tmp_path / "one" / EXPERIMENT).unlink()
    if beside:
        make_plan(tmp_path / "two", iterations=7)
        copy(tmp_path / "two" / EXPERIMENT, tmp_path / "one")
    with pytest.raises(ConfigError, match=r"study.json is another experiment: iterations \(20 → 7\)"):
        make_plan(tmp_path / "one", iterations=7)


@pytest.mark.parametrize("damage", [
    lambda it: it["runs"][0].update(arm="ours"), lambda it: it["runs"][0].update(curve=[]),
    lambda it: it["runs"][0].update(curve=[1.0]), lambda it: it["runs"][0].update(curve=["much"] * 20),
    lambda it: it["runs"][0].update(curve=[1e300] * 20), lambda it: it.pop("experiment"),
    lambda it: it.update(study={}), lambda it: it.update(runs=None),
])  # fmt: skip
def test_damaged_record_gives_one_line(tmp_path: Path, damage: Callable[[Any], Any]) -> None:
    first = make_plan(tmp_path / "one")
    records = {("mars", s): RecordedRun(arm="mars", seed=s, seconds=1.0, curve=[0.5] * 20) for s in range(2)}
    full_plan = replace(first, recorded=records)
    data = stored_results.write(full_plan, stored_results.collect(full_plan), {})
    del data[SEAL]
    damage(data)
    write_sealed(tmp_path / "one" / "study.json", data)
    with pytest.raises(StoreError, match="cannot be read as a study's results: "):
        make_plan(tmp_path / "one")


def test_evaluation_figure_is_read_before_and_after(tmp_path: Path) -> None:
    file = tmp_path / "evaluation.json"
    file.write_text(
        json.dumps(
            {
                moment: [{"figures": {"solved": [value, 0.0, 1.0]}} for value in values]
                for moment, values in (("before", (0.25, 0.125)), ("results", (0.5, 0.75)))
            }
        )
    )
    assert stored_results.read_evaluated(tmp_path, *parse_evaluated_figure("evaluation.solved")) == [0.25, 0.5]
    assert stored_results.read_evaluated(tmp_path, *parse_evaluated_figure("evaluation.2.solved")) == [0.125, 0.75]
    assert parse_evaluated_figure("evaluation.ended.right") == (1, "ended.right")
    assert parse_evaluated_figure(f"evaluation.{'9' * 5000}.solved")[0] == 1, "more digits than Python reads"
    with pytest.raises(ConfigError, match=r"no figure 'solve' — did you mean 'solved'"):
        stored_results.read_evaluated(tmp_path, 1, "solve")
    for damaged in (
        "",
        "[]",
        '{"before": [], "results": []}',
        '{"before": [{"figures": 3}], "results": [{"figures": {}}]}',
    ):
        file.write_text(damaged)
        with pytest.raises(StoreError, match=r"evaluation.json cannot be read as an evaluation"):
            stored_results.read_evaluated(tmp_path, 1, "solved")


def test_evaluation_figure_can_decide(tmp_path: Path) -> None:
    """Its last value counts, regardless of `last`: by hand 0.6 - 0.25 and 0.7 - 0.35."""
    config = {"evaluate": {"games": [{"name": "negotiation"}]}, "study": {**SPEC, "figure": "evaluation.deal"}}
    experiment = compose([recipe_layer("negotiation-nano"), Layer("test", "", config)])
    assert config["study"]["last"] > 1
    study_plan = plan(experiment, tmp_path / "study", ["mars", "zero"], 2, lambda it: it)
    curves = {"mars": [[0.2, 0.6], [0.3, 0.7]], "zero": [[0.2, 0.25], [0.3, 0.35]]}
    records = {
        (arm, seed): RecordedRun(arm=arm, seed=seed, seconds=1.0, curve=curve)
        for arm, both in curves.items()
        for seed, curve in enumerate(both)
    }
    results = stored_results.collect(replace(study_plan, recorded=records))
    assert [round(arm.last.estimate, 9) for arm in results.arms] == [0.65, 0.3]
    assert results.arms[1].difference is not None and results.arms[1].difference.estimate == pytest.approx(0.35)
    without = compose([recipe_layer("negotiation-nano"), Layer("test", "", {"study": config["study"]})])
    with pytest.raises(ConfigError, match=r"evaluation\.deal needs a section `evaluate` with `games`"):
        check_arms(without)
    for number in (0, 2):
        beyond = {**config, "study": {**SPEC, "figure": f"evaluation.{number}.deal"}}
        with pytest.raises(ConfigError, match=rf"evaluation\.{number}\.deal names game {number} .* has games 1 to 1"):
            check_arms(compose([recipe_layer("negotiation-nano"), Layer("test", "", beyond)]))


def make_evaluation_line(iteration: int, payoffs: list[float], key: str = "same") -> str:
    cell = {"member": "random", "seat": "opener", "payoff": payoffs, "valid": [1.0] * len(payoffs)}
    return json.dumps(
        {"iteration": iteration, "contender": "shared", "panel": "some", "key": key, "game": "negotiation",
         "options": {}, "seed": 0, "deals": len(payoffs), "cells": [cell]}
    )  # fmt: skip


def test_panel_figure_is_read_at_each_evaluation(tmp_path: Path) -> None:
    """Means by hand: (1 + 3) / 2 before, (4 + 6) / 2 after; evaluations by another panel are ignored."""
    config = {"evaluate": {"panel": "negotiation"}, "study": {**SPEC, "figure": "panel.payoff"}}
    experiment = compose([recipe_layer("negotiation-nano"), Layer("test", "", config)])
    study_plan = plan(experiment, tmp_path / "study", ["mars"], 1, lambda it: it)
    (run,) = study_plan.runs
    run.path.mkdir()
    lines = [
        make_evaluation_line(0, [9.0, 9.0], "other"),
        make_evaluation_line(0, [1.0, 3.0]),
        make_evaluation_line(4, [4.0, 6.0]),
    ]
    (run.path / "panel.jsonl").write_text("".join(f"{line}\n" for line in lines))
    assert stored_results.read_curve(run, "panel.payoff") == [2.0, 5.0]
    with pytest.raises(ConfigError, match=r"no figure 'panel.payof' — did you mean 'panel.payoff'"):
        stored_results.read_curve(run, "panel.payof")


def test_panel_figure_needs_a_panel(tmp_path: Path) -> None:
    config = Layer("test", "", {"study": {**SPEC, "figure": "panel.payoff"}})
    experiment = compose([recipe_layer("negotiation-nano"), config])
    with pytest.raises(ConfigError, match=r"panel\.payoff needs a section `evaluate` with a `panel`"):
        plan(experiment, tmp_path / "study", ["mars"], 1, lambda it: it)


def test_judged_seeds_start_at_first_seed(tmp_path: Path) -> None:
    config = Layer("test", "", {"study": {**SPEC, "first_seed": 10}})
    study_plan = plan(
        compose([recipe_layer("negotiation-nano"), config]), tmp_path / "study", ["mars"], 3, lambda it: it
    )
    assert [run.seed for run in study_plan.runs] == [10, 11, 12]
    runs = [RecordedRun(arm="mars", seed=s, seconds=1.0, curve=[float(s)], also={}) for s in (9, 10, 12, 13)]
    results = stored_results._to_results("name", study_plan.spec, 3, ["mars"], runs)
    assert sorted(results.curves["mars"]) == [10, 12]


# -- the rule fixes the seeds --------------------------------------------------------------------------------


def make_ruled_plan(folder: Path, wanted: int = 2, **study: Any) -> Plan:
    section = {"verdict": {"better_than": ["zero"]}, **study}
    experiment = compose([recipe_layer("negotiation-nano"), Layer("test", "", {"study": section})])
    return plan(experiment, folder, ["mars", "zero"], wanted, lambda it: it)


def test_other_rule_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    make_ruled_plan(tmp_path / "study")
    with pytest.raises(ConfigError, match=r"study.verdict.*choose another --out"):
        make_ruled_plan(tmp_path / "study", verdict={"better_than": ["zero"], "by": -1.0})


def test_surplus_and_tuning_seeds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--seeds 3: the rule judges 2 seeds"):
        make_ruled_plan(tmp_path / "study", 3, seeds=2)
    with pytest.raises(
        ConfigError, match=r"seed 1 is in `tuned_on`: 0 to 1 cannot be test seeds, take another first_seed"
    ):
        make_ruled_plan(tmp_path / "study", tuned_on=[1])
    assert not (tmp_path / "study").exists()


def test_descriptive_fields_do_not_change_the_rule() -> None:
    study_plan = make_spec()
    assert study_plan.rule == study_plan.model_copy(update={"minutes": 9.0, "claim": "another", "also": ["deal"]}).rule
    for other in ({"first_seed": 3}, {"seeds": 9}, {"last": 1}, {"tuned_on": [7]}):
        assert study_plan.rule != study_plan.model_copy(update=other).rule
