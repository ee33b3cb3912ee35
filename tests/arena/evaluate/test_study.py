"""Studies on made numbers: the verdict by its rule, differences paired by seed, and what is refused."""

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
from arena.evaluate.study import results as kept
from arena.evaluate.study.plan import EXPERIMENT, Plan, Run, plan
from arena.evaluate.study.plot import draw
from arena.evaluate.study.record import RecordedRun, find_record, index_runs
from arena.evaluate.study.results import Results
from arena.evaluate.study.runs import Runner, is_done, warm_settings
from arena.evaluate.study.summary import Ends, find_figure
from arena.evaluate.study.verdicts import judge
from arena.statistics import paired_ci
from arena.store.reader import SEAL
from arena.store.run import RunFolder
from tests.factories.store import write_state
from tests.legible import find_overlaps

SPEC: dict[str, Any] = {
    "replicates": "a paper", "claim": "it learns", "published": "1", "family": "none", "minutes": 1.0,
    "figure": "mean_payoff", "last": 2, "arm": "mars", "arms": {"zero": ["credit.estimator=zero"], "other": []},
    "verdict": {"better_than": ["zero"]},
}  # fmt: skip


def spec(**rule: Any) -> StudySpec:
    return StudySpec.model_validate({**SPEC, "verdict": {**SPEC["verdict"], **rule}})


def ends(mars: list[float], zero: list[float], **others: list[float]) -> Ends:
    curves = {
        arm: {s: [0.0, v, v] for s, v in enumerate(vs)} for arm, vs in {"mars": mars, "zero": zero, **others}.items()
    }
    return Ends(curves, "mean_payoff", 2)


def word(of: Ends, seeds: int = 3, **rule: Any) -> str:
    return judge(spec(**rule), of.last, of.bounds, seeds).verdict


def test_the_verdict_follows_the_rule() -> None:
    better = ends([3.0, 3.1, 3.2], [1.0, 1.2, 1.1])
    worse, alike = ends([1.0, 1.2, 1.1], [3.0, 3.1, 3.2]), ends([1.0, 2.0, 3.0], [2.0, 1.0, 3.1])
    assert [word(of) for of in (better, worse, alike)] == ["holds", "contradicted", "not shown"]
    assert [word(of, less_is_better=True) for of in (better, worse, alike)] == ["contradicted", "holds", "not shown"]
    assert word(better, by=1.9) == "not shown", "2.0 on the mean, and its interval reaches below"
    assert word(better, by=2.9) == "contradicted"
    assert word(better, by=1.8) == "not shown" and word(better, by=1.8, interval=0.5) == "holds"


def test_all_comparisons_have_to_hold_and_one_is_enough_to_contradict() -> None:
    both: dict[str, Any] = {"better_than": ["zero", "other"]}
    assert word(ends([3.0, 3.1, 3.2], [1.0, 1.2, 1.1], other=[2.0, 4.0, 3.0]), **both) == "not shown"
    assert word(ends([3.0, 3.1, 3.2], [1.0, 1.2, 1.1], other=[5.0, 5.2, 5.1]), **both) == "contradicted"


def test_nothing_is_judged_before_all_runs_that_it_compares_are_there() -> None:
    assert word(ends([3.0, 3.1, 3.2], [1.0, 1.2])) == "not judged"
    assert word(ends([3.0], [1.0]), seeds=1) == "not judged"
    assert word(ends([3.0, 3.1, 3.2], [1.0, 1.2, 1.1]), better_than=[]) == "not judged", "nothing is claimed"
    of = ends([3.0, 3.1], [1.0, 1.2])
    assert judge(spec(), {"mars": of.last["mars"]}, of.bounds, 2).because == "0 of 2 runs of zero are there"


def test_differences_are_paired_by_seed_and_ends_are_means_of_the_last() -> None:
    curves = {
        "mars": {0: [0.0, 1.0, 3.0], 2: [0.0, 5.0, 7.0]},
        "zero": {0: [0.5, 1.0, 1.0], 1: [9.0, 9.0, 9.0], 2: [0, 2.0, 4.0]},
    }
    of = Ends(curves, "mean_payoff", 2)
    assert of.last["mars"] == {0: 2.0, 2: 6.0}
    zero = of.summary("zero", "mars")
    assert zero.behind == paired_ci([1.0, 3.0], [2.0, 6.0]), "seed 1 has no partner"
    assert of.summary("mars", "mars").behind is None
    assert of.summary("mars", "mars").change == paired_ci([0.0, 0.0], [2.0, 6.0])


def test_a_figure_is_found_where_it_is_and_an_unknown_one_is_a_line() -> None:
    row = {"iteration": 1, "mean_payoff": 0.5, "report": {"deal": 0.25}, "payoff": {"opener": 2.0}}
    assert [find_figure(row, name) for name in ("mean_payoff", "deal", "payoff.opener")] == [0.5, 0.25, 2.0]
    with pytest.raises(ConfigError, match=r"no figure 'dael' — did you mean 'deal'.*payoff.opener"):
        find_figure(row, "dael")


def test_a_picture_is_legible() -> None:
    curves = {arm: {s: [0.1 * s, 0.5, 0.6 + 0.1 * s] for s in range(3)} for arm in ("mars", "zero")}
    assert not find_overlaps(draw(Results(name="a study", spec=spec(), seeds=3, curves=curves)))


# -- plans -------------------------------------------------------------------------------------------------


def planned(folder: Path, **changed: Any) -> Plan:
    return experiment_plan(folder, ["mars", "zero"], 2, **changed)


def experiment_plan(folder: Path, arms: list[str], seeds: int, **changed: Any) -> Plan:
    experiment = compose([recipe_layer("negotiation-nano")]).model_copy(update=changed)
    return plan(experiment, folder, arms, seeds, lambda it: it)


def test_a_study_s_folder_keeps_what_its_runs_are(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    first = planned(folder)
    assert (folder / EXPERIMENT).exists() and planned(folder) == first
    assert [run.path.name for run in first.runs] == ["mars-0", "zero-0", "mars-1", "zero-1"]
    with pytest.raises(ConfigError, match=r"experiment.yaml is another experiment: iterations \(20 → 7\)"):
        planned(folder, iterations=7)
    study = first.spec.model_copy(update={"verdict": first.spec.verdict.model_copy(update={"by": -1.0})})
    with pytest.raises(ConfigError, match=r"study.verdict.by \(0.0 → -1.0\)"):
        planned(folder, study=study)


def test_what_a_run_takes_may_be_said_anew(tmp_path: Path) -> None:
    first = planned(tmp_path / "study")
    longer = planned(tmp_path / "study", study=first.spec.model_copy(update={"minutes": 99.0}))
    assert longer.spec.minutes == 99.0 and longer.runs == first.runs


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="no folder of a study"):
        planned(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.slow
def test_no_file_of_the_working_directory_runs_in_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is refused, by Arena itself: its experiment's file is empty."""
    of = planned(tmp_path / "study")
    (of.folder / EXPERIMENT).write_text("")
    for name in ("json", "typing", "arena"):
        (tmp_path / f"{name}.py").write_text("from pathlib import Path\nPath('taken').touch()\n")
    monkeypatch.chdir(tmp_path)
    runner = Runner(replace(of, arms=["mars"], seeds=1), 1)
    runner.run(lambda run, more: None, lambda line: None)
    assert not (tmp_path / "taken").exists()
    (line,) = runner.failures
    assert "mars, seed 0 failed (" in line and "Traceback" not in of.runs[0].log.read_text()


def test_a_warm_arm_waits_for_the_weights_it_begins_with(tmp_path: Path) -> None:
    of = planned(tmp_path / "study")
    warm = Plan(
        folder=of.folder,
        experiment=with_study(of.experiment, of.spec.model_copy(update={"warm": ["zero"]})),
        arms=of.arms,
        seeds=1,
    )
    first, zero = warm.runs
    runner = Runner(warm, 2)
    assert runner.left == 40 and not runner._may_start(zero) and runner._may_start(first)
    (first.path / "checkpoints" / "0000").mkdir(parents=True)
    assert runner._may_start(zero)
    assert warm_settings(warm, zero, first) == [
        "policies.shared.imitate=null", "policies.shared.adapter=null",
        f'policies.shared.model="{first.path.absolute()}@0:shared"',
    ]  # fmt: skip
    assert warm_settings(warm, first, first) == []


def test_a_study_that_moves_to_another_family_stays_the_same(tmp_path: Path) -> None:
    first = planned(tmp_path / "study")
    moved = first.spec.model_copy(update={"family": "another", "minutes": 9.0, "warm": ["zero"]})
    assert planned(tmp_path / "study", study=moved).spec == moved


def test_without_the_first_arm_one_of_the_warm_ones_imitates_for_all(tmp_path: Path) -> None:
    of = planned(tmp_path / "study")
    spec = of.spec.model_copy(update={"warm": ["zero", "shuffled"]})
    wanted = Plan(folder=of.folder, experiment=with_study(of.experiment, spec), arms=spec.warm, seeds=1)
    zero, other = wanted.runs
    runner = Runner(wanted, 2)
    assert runner._may_start(zero) and not runner._may_start(other)
    (zero.path / "checkpoints" / "0000").mkdir(parents=True)
    assert runner._may_start(other)
    assert f'policies.shared.model="{zero.path.absolute()}@0:shared"' in warm_settings(wanted, other, zero)
    (wanted.run(spec.arm, zero.seed).path / "checkpoints" / "0000").mkdir(parents=True)
    assert runner._first(other) == wanted.run(spec.arm, zero.seed), "which another command has run"


def test_what_another_process_has_done_by_now_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = planned(tmp_path / "study")
    runner, begun = Runner(of, 4), list[Any]()
    monkeypatch.setattr(runner, "_start", lambda run, arguments: begun.append(run))
    for iteration in (0, 20):
        (of.runs[0].path / "checkpoints" / f"{iteration:04d}").mkdir(parents=True)
    runner._start_next()
    assert begun == of.runs[1:] and not runner.due


def test_an_arm_that_is_not_evaluated_is_done_without(tmp_path: Path) -> None:
    experiment = compose([recipe_layer("negotiation-nano")])
    evaluate = {"games": [{"name": "negotiation"}], "matches": 4}
    arms = experiment.study.arms | {"zero": ["evaluate=null"]} if experiment.study else {}
    study = experiment.study and experiment.study.model_copy(update={"arms": arms})
    whole = compose(
        [
            Layer(
                "", "", {**experiment_to_plain(experiment), "evaluate": evaluate, "study": study and study.model_dump()}
            )
        ]
    )
    of = plan(whole, tmp_path / "study", ["mars", "zero"], 1, lambda it: it)
    for run in of.runs:
        (run.path / "checkpoints" / "0020").mkdir(parents=True)
    assert [is_done(of, run) for run in of.runs] == [False, True]


def test_what_another_process_has_recorded_meanwhile_is_kept(tmp_path: Path) -> None:
    one, other = (experiment_plan(tmp_path / "study", ["mars", arm], 1) for arm in ("zero", "shuffled"))
    for of in (one, other):
        known = {(run.arm, 0): RecordedRun(arm=run.arm, seed=0, seconds=1.0, curve=[0.5] * 20) for run in of.runs}
        whole = replace(of, kept=known)
        data = kept.write(whole, kept.collect(whole), {})
    assert [run["arm"] for run in data["runs"]] == ["mars", "zero", "shuffled"]


def played(of: Plan, run: Run) -> RunFolder:
    """A whole run of a plan, of rows of metrics alone."""
    folder = RunFolder.create(run.path, "seed: 0\n", {"commands": []})
    for k in range(1, of.iterations(run.arm) + 1):
        figures = dict.fromkeys((of.spec.figure, *of.spec.also), 0.5)
        folder.metrics.append({"iteration": k, "seconds": {"play": 1.0}, **figures})
    folder.checkpoint(of.iterations(run.arm), write_state)
    return folder


def test_what_the_first_arm_s_mechanism_counts_another_arm_need_not_know(tmp_path: Path) -> None:
    """Patches, branches: an arm without them has no such figure, and the study goes on."""
    plain = experiment_plan(tmp_path / "study", ["mars", "zero"], 1)
    told = plain.spec.model_copy(update={"also": ["patches.count"]})
    of = replace(plain, experiment=with_study(plain.experiment, told))
    mars, zero = of.runs
    played(of, mars), played(plain, zero)
    for _ in range(2):  # the second time it is read from the record
        data = kept.write(of, kept.collect(of), {})
        assert [list(run["also"]) for run in data["runs"]] == [["patches.count"], []]
        assert list(data["also"]["patches.count"]) == ["mars"] and list(data["summary"]) == ["mars", "zero"]
        of = replace(of, kept=index_runs(find_record(of.record)))


def test_the_first_arm_knows_all_figures(tmp_path: Path) -> None:
    of = experiment_plan(tmp_path / "study", ["mars"], 1)
    played(of, of.runs[0])
    told = of.spec.model_copy(update={"also": ["patches.conut"]})
    with pytest.raises(ConfigError, match=r"no figure 'patches\.conut'"):
        kept.collect(replace(of, experiment=with_study(of.experiment, told)))


def test_only_what_was_committed_of_a_run_is_told(tmp_path: Path) -> None:
    of = experiment_plan(tmp_path / "study", ["mars"], 1)
    (run,) = of.runs
    folder = played(of, run)
    folder.metrics.append({"iteration": 21, "seconds": {"play": 9.0}, of.spec.figure: 9.0})
    (told,) = kept.write(of, kept.collect(of), {})["runs"]
    assert told["curve"] == [0.5] * 20 and told["seconds"] == 20.0
    metrics = run.path / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("0.5", "5.5"))
    with pytest.raises(StoreError, match=r"mars-0/metrics\.jsonl is not as it was written"):
        kept.collect(of)


def test_an_edited_record_is_refused(tmp_path: Path) -> None:
    of = experiment_plan(tmp_path / "study", ["mars"], 1)
    played(of, of.runs[0])
    data, place = kept.write(of, kept.collect(of), {}), tmp_path / "study" / "study.json"
    assert kept.read(place).curves["mars"][0] == [0.5] * 20
    data["runs"][0]["curve"] = [5.5] * 20
    place.write_text(json.dumps(data))
    with pytest.raises(StoreError, match=r"study\.json is not as it was written: restore it from a copy"):
        experiment_plan(tmp_path / "study", ["mars"], 1)


def test_damaged_results_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(StoreError, match="cannot be read as a study's results"):
        kept.read(tmp_path / "study.json")


def test_what_is_recorded_need_not_run_again_and_is_never_lost(tmp_path: Path) -> None:
    """A study.json alone, in a new folder, is enough to go on with: other arms and seeds are what is due."""
    first = planned(tmp_path / "one")
    known = {
        (run.arm, run.seed): RecordedRun(arm=run.arm, seed=run.seed, seconds=1.0, curve=[0.5] * 20)
        for run in first.runs
    }
    whole = replace(first, kept=known)
    kept.write(whole, kept.collect(whole), {})
    (tmp_path / "two").mkdir()
    copy(tmp_path / "one" / "study.json", tmp_path / "two")

    wide = experiment_plan(tmp_path / "two", ["mars", "zero", "shuffled"], 3)
    assert [run.path.name for run in Runner(wide, 1).due] == [
        "shuffled-0", "shuffled-1", "mars-2", "zero-2", "shuffled-2",
    ]  # fmt: skip
    narrow = experiment_plan(tmp_path / "two", ["mars"], 1)
    data = kept.write(narrow, kept.collect(narrow), {})
    assert not Runner(narrow, 1).due and data["missing"] == [] and len(data["runs"]) == 4
    assert {arm: [*seeds] for arm, seeds in kept.read(tmp_path / "two" / "study.json").curves.items()} == {"mars": [0]}


@pytest.mark.parametrize("beside", [True, False])
def test_a_record_of_another_experiment_is_refused(tmp_path: Path, beside: bool) -> None:
    """Where it came into the folder of this one, too."""
    first = planned(tmp_path / "one")
    kept.write(first, kept.collect(first), {})
    (tmp_path / "one" / EXPERIMENT).unlink()
    if beside:
        planned(tmp_path / "two", iterations=7)
        copy(tmp_path / "two" / EXPERIMENT, tmp_path / "one")
    with pytest.raises(ConfigError, match=r"study.json is another experiment: iterations \(20 → 7\)"):
        planned(tmp_path / "one", iterations=7)


@pytest.mark.parametrize("damage", [
    lambda it: it["runs"][0].update(arm="ours"), lambda it: it["runs"][0].update(curve=[]),
    lambda it: it["runs"][0].update(curve=[1.0]), lambda it: it["runs"][0].update(curve=["much"] * 20),
    lambda it: it["runs"][0].update(curve=[1e300] * 20), lambda it: it.pop("experiment"),
    lambda it: it.update(study={}), lambda it: it.update(runs=None),
])  # fmt: skip
def test_a_damaged_record_is_one_line(tmp_path: Path, damage: Callable[[Any], Any]) -> None:
    first = planned(tmp_path / "one")
    known = {("mars", s): RecordedRun(arm="mars", seed=s, seconds=1.0, curve=[0.5] * 20) for s in range(2)}
    whole = replace(first, kept=known)
    data = kept.write(whole, kept.collect(whole), {})
    del data[SEAL]  # as an older Arena wrote it
    damage(data)
    (tmp_path / "one" / "study.json").write_text(json.dumps(data))
    with pytest.raises(StoreError, match="cannot be read as a study's results: "):
        planned(tmp_path / "one")


def test_a_figure_of_an_evaluation_is_told_before_and_after(tmp_path: Path) -> None:
    file = tmp_path / "evaluation.json"
    file.write_text(
        json.dumps(
            {
                moment: [{"figures": {"solved": [value, 0.0, 1.0]}} for value in values]
                for moment, values in (("before", (0.25, 0.125)), ("results", (0.5, 0.75)))
            }
        )
    )
    assert kept.read_evaluated(tmp_path, *parse_evaluated_figure("evaluation.solved")) == [0.25, 0.5]
    assert kept.read_evaluated(tmp_path, *parse_evaluated_figure("evaluation.2.solved")) == [0.125, 0.75]
    assert parse_evaluated_figure("evaluation.ended.right") == (1, "ended.right")
    assert parse_evaluated_figure(f"evaluation.{'9' * 5000}.solved")[0] == 1, "more digits than Python reads"
    with pytest.raises(ConfigError, match=r"no figure 'solve' — did you mean 'solved'"):
        kept.read_evaluated(tmp_path, 1, "solve")
    for damaged in (
        "",
        "[]",
        '{"before": [], "results": []}',
        '{"before": [{"figures": 3}], "results": [{"figures": {}}]}',
    ):
        file.write_text(damaged)
        with pytest.raises(StoreError, match=r"evaluation.json cannot be read as an evaluation"):
            kept.read_evaluated(tmp_path, 1, "solved")


def test_a_figure_of_an_evaluation_may_decide(tmp_path: Path) -> None:
    """Its last value does, whatever `last` says of iterations: by hand 0.6 less 0.25 and 0.7 less 0.35."""
    asked = {"evaluate": {"games": [{"name": "negotiation"}]}, "study": {**SPEC, "figure": "evaluation.deal"}}
    experiment = compose([recipe_layer("negotiation-nano"), Layer("test", "", asked)])
    assert asked["study"]["last"] > 1
    of = plan(experiment, tmp_path / "study", ["mars", "zero"], 2, lambda it: it)
    curves = {"mars": [[0.2, 0.6], [0.3, 0.7]], "zero": [[0.2, 0.25], [0.3, 0.35]]}
    known = {
        (arm, seed): RecordedRun(arm=arm, seed=seed, seconds=1.0, curve=curve)
        for arm, both in curves.items()
        for seed, curve in enumerate(both)
    }
    found = kept.collect(replace(of, kept=known))
    assert [round(arm.last.estimate, 9) for arm in found.arms] == [0.65, 0.3]
    assert found.arms[1].behind is not None and found.arms[1].behind.estimate == pytest.approx(0.35)
    without = compose([recipe_layer("negotiation-nano"), Layer("test", "", {"study": asked["study"]})])
    with pytest.raises(ConfigError, match=r"evaluation\.deal needs a section `evaluate` with `games`"):
        check_arms(without)
    for number in (0, 2):
        beyond = {**asked, "study": {**SPEC, "figure": f"evaluation.{number}.deal"}}
        with pytest.raises(ConfigError, match=rf"evaluation\.{number}\.deal names game {number} .* has games 1 to 1"):
            check_arms(compose([recipe_layer("negotiation-nano"), Layer("test", "", beyond)]))


def evaluation_line(iteration: int, payoffs: list[float], key: str = "same") -> str:
    cell = {"member": "random", "seat": "opener", "payoff": payoffs, "valid": [1.0] * len(payoffs)}
    return json.dumps(
        {"iteration": iteration, "contender": "shared", "panel": "some", "key": key, "game": "negotiation",
         "options": {}, "seed": 0, "deals": len(payoffs), "cells": [cell]}
    )  # fmt: skip


def test_a_figure_of_a_panel_is_told_each_time_that_it_judged(tmp_path: Path) -> None:
    """Means by hand: (1 + 3) / 2 before, (4 + 6) / 2 after; what another panel found is another matter."""
    asked = {"evaluate": {"panel": "negotiation"}, "study": {**SPEC, "figure": "panel.payoff"}}
    experiment = compose([recipe_layer("negotiation-nano"), Layer("test", "", asked)])
    of = plan(experiment, tmp_path / "study", ["mars"], 1, lambda it: it)
    (run,) = of.runs
    run.path.mkdir()
    lines = [evaluation_line(0, [9.0, 9.0], "other"), evaluation_line(0, [1.0, 3.0]), evaluation_line(4, [4.0, 6.0])]
    (run.path / "panel.jsonl").write_text("".join(f"{line}\n" for line in lines))
    assert kept.read_curve(run, "panel.payoff") == [2.0, 5.0]
    with pytest.raises(ConfigError, match=r"no figure 'panel.payof' — did you mean 'panel.payoff'"):
        kept.read_curve(run, "panel.payof")


def test_a_figure_of_a_panel_needs_one(tmp_path: Path) -> None:
    asked = Layer("test", "", {"study": {**SPEC, "figure": "panel.payoff"}})
    experiment = compose([recipe_layer("negotiation-nano"), asked])
    with pytest.raises(ConfigError, match=r"panel\.payoff needs a section `evaluate` with a `panel`"):
        plan(experiment, tmp_path / "study", ["mars"], 1, lambda it: it)


def test_judged_seeds_begin_where_those_of_the_search_end(tmp_path: Path) -> None:
    asked = Layer("test", "", {"study": {**SPEC, "first_seed": 10}})
    of = plan(compose([recipe_layer("negotiation-nano"), asked]), tmp_path / "study", ["mars"], 3, lambda it: it)
    assert [run.seed for run in of.runs] == [10, 11, 12]
    runs = [RecordedRun(arm="mars", seed=s, seconds=1.0, curve=[float(s)], also={}) for s in (9, 10, 12, 13)]
    found = kept._to_results("name", of.spec, 3, ["mars"], runs)
    assert sorted(found.curves["mars"]) == [10, 12]


# -- the rule holds the sample -------------------------------------------------------------------------------


def ruled(folder: Path, wanted: int = 2, **study: Any) -> Plan:
    section = {"verdict": {"better_than": ["zero"]}, **study}
    experiment = compose([recipe_layer("negotiation-nano"), Layer("test", "", {"study": section})])
    return plan(experiment, folder, ["mars", "zero"], wanted, lambda it: it)


def test_another_rule_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    ruled(tmp_path / "study")
    with pytest.raises(ConfigError, match=r"study.verdict.*choose another --out"):
        ruled(tmp_path / "study", verdict={"better_than": ["zero"], "by": -1.0})


def test_more_seeds_than_the_rule_judges_and_those_of_the_tuning_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--seeds 3: the rule judges 2 seeds"):
        ruled(tmp_path / "study", 3, seeds=2)
    with pytest.raises(
        ConfigError, match=r"seed 1 is in `tuned_on`: 0 to 1 cannot be test seeds, take another first_seed"
    ):
        ruled(tmp_path / "study", tuned_on=[1])
    assert not (tmp_path / "study").exists()


def test_what_tells_and_what_decides_are_told_apart() -> None:
    of = spec()
    assert of.rule == of.model_copy(update={"minutes": 9.0, "claim": "another", "also": ["deal"]}).rule
    for other in ({"first_seed": 3}, {"seeds": 9}, {"last": 1}, {"tuned_on": [7]}):
        assert of.rule != of.model_copy(update=other).rule
