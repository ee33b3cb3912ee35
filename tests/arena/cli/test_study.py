"""`arena study` as a user types it: a whole study, kills, failures and refusals."""

import json
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from arena.cli import batch
from arena.cli.study import get_rehearsal_folder
from arena.config.arms import with_arm
from arena.config.layers import compose
from arena.config.sources import file_layer
from arena.evaluate.study import results
from arena.evaluate.study.plan import plan
from arena.evaluate.study.record import RecordedRun
from arena.store.locks import is_in_use
from arena.store.reader import RunReader
from tests.factories.children import Child
from tests.factories.commands import arena, get_refusal
from tests.factories.tiny_study import ITERATIONS, write_study

ALSO = {"deal": [0.5] * ITERATIONS, "evaluation.deal": [0.25, 0.5]}


@pytest.mark.slow
def test_same_command_continues_a_killed_study(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    words = ["study", write_study(tmp_path), "--seeds", "1", "--jobs", "1", "--out", folder, "--json"]
    child = Child(tmp_path / "first", *words)
    assert child.wait_until(lambda: (folder / "mars-0" / "checkpoints" / "0001").exists())
    assert is_in_use(folder / "mars-0")
    assert f"{folder} is in use by process {child.process.pid}" == get_refusal(*words)
    child.signal(signal.SIGKILL)
    assert child.end().code == -signal.SIGKILL
    result = Child(tmp_path / "second", *words).end(400)
    assert result.code == 0, result.err
    for run in ("mars-0", "zero-0"):
        reader = RunReader(folder / run)
        assert [row["iteration"] for row in reader.metrics()] == list(range(1, ITERATIONS + 1))
        assert len({row["id"] for row in reader.matches()}) == len(list(reader.matches())) == 4 * ITERATIONS
    assert RunReader(folder / "mars-0").environment()["commands"][1:], "the run was restarted instead of resumed"
    warm = yaml.safe_load(RunReader(folder / "zero-0").config())["policies"]["shared"]
    assert warm["imitate"] is None and "mars-0/checkpoints/0000" in warm["model"]
    data = json.loads(result.out)
    assert data == json.loads((folder / "study.json").read_text()) and (folder / "study.png").stat().st_size > 5000
    assert data["verdict"] == {"verdict": "not judged", "because": "one seed has no interval: run two or more"}
    assert data["summary"]["zero"]["first_arm_minus"]["low"] is None and data["missing"] == []
    assert [len(run["curve"]) for run in data["runs"]] == [ITERATIONS] * 2 and data["runs"][0]["seconds"] > 0
    assert [[*map(len, run["also"].values())] for run in data["runs"]] == [[ITERATIONS, 2]] * 2
    deal = json.loads((folder / "mars-0" / "evaluation.json").read_text())["results"][0]["figures"]["deal"][0]
    assert data["also"]["evaluation.deal"]["mars"]["last"]["estimate"] == deal
    assert data["arms"]["zero"] == {"set": ["credit.estimator=zero"], "iterations": 3, "matches": 4}
    assert "torch" in data["machine"]["versions"] and data["command"].startswith("arena study")
    began = time.monotonic()
    again = arena(*words[:-1], "--redraw")
    assert again.code == 0 and "mars - arm" in again.out and "tiny things learn" in again.out
    assert time.monotonic() - began < 30, "finished runs were repeated"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_runs_end_with_the_study_that_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    child = Child(tmp_path / "it", "study", write_study(tmp_path), "--seeds", "1", "--jobs", "1", "--out", folder)
    assert child.wait_until(lambda: (folder / "mars-0" / "checkpoints" / "0000").exists())
    child.signal(signal.SIGKILL)
    child.end()
    deadline = time.monotonic() + 60
    while is_in_use(folder / "mars-0"):
        assert time.monotonic() < deadline, "the run still plays"
        time.sleep(0.1)
    assert len(RunReader(folder / "mars-0").metrics()) < ITERATIONS


@pytest.mark.slow
def test_failed_run_gives_one_line_and_others_continue(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    (folder / "mars-0").mkdir(parents=True)
    file = write_study(tmp_path, warm=[])
    (folder / "mars-0" / "foreign.txt").write_text("mine")
    (folder / "experiment.yaml").write_text(file.read_text())
    result = Child(tmp_path / "it", "study", file, "--seeds", "1", "--jobs", "1", "--out", folder).end(400)
    assert result.code == 1
    (line,) = [line for line in result.err.splitlines() if "failed" in line]
    assert (
        line.startswith("arena: mars, seed 0 failed") and "is not empty" in line and str(folder / "mars-0.log") in line
    )
    assert "missing: mars-0" in result.out and "not judged: 0 of 1 runs of mars are finished" in result.out
    assert len(RunReader(folder / "zero-0").metrics()) == ITERATIONS


@pytest.mark.slow
def test_unknown_figure_ends_the_study_after_one_iteration(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    file = write_study(tmp_path, figure="valid_rat")
    result = Child(tmp_path / "it", "study", file, "--seeds", "1", "--jobs", "1", "--out", folder).end(400)
    assert result.code == 2
    *notes, last = result.err.splitlines()
    assert last.startswith("arena: study.figure: no figure 'valid_rat' — did you mean 'valid_rate'?")
    assert (
        notes[0]
        == "arena: negotiation-nano: 2 arms × 1 seeds: 2 runs, 1 at a time, about 12 s by the recipe's estimate"
    )
    assert len(RunReader(folder / "mars-0").metrics()) < ITERATIONS and not (folder / "zero-0").exists()


def test_refusals_create_no_folder(tmp_path: Path) -> None:
    out = ["--out", tmp_path / "study"]
    assert "no section `study`" in get_refusal("study", "tic_tac_toe-nano", *out)
    assert "unknown recipe 'negotiation-nan'" in get_refusal("study", "negotiation-nan", *out)
    assert "--arms: no arm 'zeor' — did you mean 'zero'?" in get_refusal(
        "study", "negotiation-nano", "--arms", "zeor", *out
    )
    assert "cannot be read" in get_refusal("study", str(tmp_path / "nowhere.yaml"), *out)
    uneven = write_study(tmp_path, arms={"zero": ["credit.estimator=zero", "play.matches=8"]})
    assert "study.arms.zero: plays 3 × 8 matches, mars 3 × 4" in get_refusal("study", uneven, *out)
    assert "--redraw: there is no study in" in get_refusal("study", "negotiation-nano", "--redraw", *out)
    assert "no arm 'zeor'" in get_refusal("run", "selfplay", "--recipe", "negotiation-nano", "--arm", "zeor", *out)
    assert not (tmp_path / "study").exists()


def test_settings_apply_to_every_arm_and_belong_to_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other settings in the same folder are refused; an arm keeps the settings that define it."""
    monkeypatch.setattr(batch, "_preflight_arms", lambda arms, quiet: lambda experiment: experiment)
    monkeypatch.setattr(batch, "_run_all", lambda runner, quiet: None)
    folder, file = tmp_path / "study", write_study(tmp_path, each=["policies.shared.model=nano-{seed}"])
    words = ["study", file, "--seeds", "2", "--out", folder]
    own_settings = ["--set", "learn.lr=0.5", "--set", "policies.shared.model=nano-7", "--first-seed", "40"]
    result = arena(*words, *own_settings, "--set", "credit.estimator=rae")
    assert result.code == 0, result.err
    assert "--set credit.estimator=rae: arm zero keeps its own credit.estimator=zero" in result.err
    planned = compose([file_layer(folder / "experiment.yaml")])
    mars, zero = (with_arm(planned, arm, 3) for arm in ("mars", "zero"))
    assert [arm_config.learn.lr for arm_config in (mars, zero)] == [0.5, 0.5]
    assert [arm_config.policies["shared"].model for arm_config in (mars, zero)] == ["nano-7", "nano-7"], (
        "--set overrides `each`"
    )
    assert [arm_config.credit.estimator.name for arm_config in (mars, zero)] == ["rae", "zero"]
    assert planned.study and planned.study.first_seed == 40
    assert "mars-40, zero-40, mars-41, zero-41" in result.out
    for other in (["--first-seed", "41"], ["--first-seed", "40", "--set", "learn.lr=0.25"]):
        line = arena(*words, *own_settings, "--set", "credit.estimator=rae", *other).err.splitlines()[-1]
        assert "is another experiment: " in line
        assert "give the options it was begun with, restore it, or choose another --out" in line
    assert "learn.lrr: unknown field — did you mean 'lr'?" in get_refusal(*words, "--set", "learn.lrr=1")


@pytest.mark.parametrize("words", [["study"], ["sweep", "--set", "learn.lr=1e-4"]])
def test_launcher_is_refused_and_no_folder_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = arena(words[0], "negotiation-nano", *words[1:], "--out", tmp_path / "it")
    assert result.code == 2 and "WORLD_SIZE=2: a launcher (torchrun, srun)" in result.err
    assert not (tmp_path / "it").exists()


@pytest.mark.parametrize(
    ("folder", "expected"),
    [("a/b", "a/b-rehearsal"), (".", "/home/it-rehearsal"), ("..", "/home-rehearsal"), ("/", "/-rehearsal")],
)
def test_rehearsal_folder_lies_beside_the_study(folder: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getcwd", lambda: "/home/it")
    assert get_rehearsal_folder(Path(folder)) == Path(expected)


@pytest.mark.slow
def test_unknown_gauge_is_reported_while_runs_wait(tmp_path: Path) -> None:
    file, folder = write_study(tmp_path, gauges=[{"figure": "report.deal"}, {"figure": "deal"}]), tmp_path / "study"
    child = Child(tmp_path / "it", "study", file, "--seeds", "1", "--jobs", "1", "--out", folder)
    assert child.wait_until(lambda: (folder / "zero-0" / "metrics.jsonl").exists())
    child.signal(signal.SIGINT)
    result = child.end()
    assert result.err.count("no run has the gauge") == 1 and "gauge report.deal: its name is another" in result.err


@pytest.mark.slow
def test_rehearsal_plays_two_iterations_per_arm_and_estimates_the_time(tmp_path: Path) -> None:
    file, folder = write_study(tmp_path, warm=[], minutes=50, gauges=[{"figure": "report.deal"}]), tmp_path / "study"
    words = ["study", file, "--seeds", "3", "--jobs", "2", "--out", folder, "--rehearse", "--json"]
    result = Child(tmp_path / "it", *words).end(400)
    assert result.code == 0 and result.err.count("no run has the gauge report.deal: its name is another") == 1
    data = json.loads(result.out)
    rehearsal = tmp_path / "study-rehearsal"
    assert not folder.exists() and data["rehearsed"] == str(rehearsal) and data["failures"] == []
    for run in (rehearsal / "mars-1000", rehearsal / "zero-1000"):
        assert len(RunReader(run).metrics()) == 2, "rehearsals use other seeds"
    seconds = list(data["seconds"].values())
    assert data["whole"] == pytest.approx(max(sum(seconds) * 3 / 2, *seconds)) and 0 < data["whole"] < 50 * 60
    assert not (rehearsal / "study.json").exists() and not (rehearsal / "study.png").exists()
    again = arena(*words[:-1])
    assert (
        again.code == 0 and "no verdict from a rehearsal" in again.out and "2 arms × 3 seeds, 2 at a time" in again.out
    )


def test_one_arm_runs_by_itself(tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = arena("run", "selfplay", "--config", write_study(tmp_path), "--arm", "zero", "--out", run)
    assert result.code == 0, result.err
    assert compose([file_layer(run / "config.yaml")]).credit.estimator.name == "zero"
    assert {row["learn"]["shared"]["advantage_size"] for row in RunReader(run).metrics()} == {0.0}


def test_recipes_are_listed_with_the_paper_they_replicate() -> None:
    rows = {row["recipe"]: row for row in json.loads(arena("list", "recipes", "--json").out)}
    assert rows["negotiation-nano"]["family"] == "negotiation" and "MARS" in rows["negotiation-nano"]["replicates"]
    assert float(rows["negotiation-nano"]["minutes"]) > 0
    assert rows["tic_tac_toe-nano"]["replicates"] == ""


def test_redraw_needs_only_the_record_and_keeps_the_first_arm(tmp_path: Path) -> None:
    file, folder = write_study(tmp_path, arms={"zero": [], "other": []}, warm=[]), tmp_path / "study"
    planned = plan(compose([file_layer(file)]), tmp_path / "one", ["mars", "zero", "other"], 2, lambda it: it)
    runs = [(run.arm, run.seed) for run in planned.runs]
    known = {
        (arm, seed): RecordedRun(arm=arm, seed=seed, seconds=1.0, curve=[0.5] * ITERATIONS, also=ALSO)
        for arm, seed in runs
    }
    study_plan = replace(planned, recorded=known)
    results.write(study_plan, results.collect(study_plan), {})
    folder.mkdir()
    (tmp_path / "one" / "study.json").rename(folder / "study.json")
    result = arena("study", file, "--seeds", "2", "--arms", "zero", "--redraw", "--out", folder, "--json")
    assert result.code == 0, result.err
    data = json.loads(result.out)
    assert [*data["arms"]] == ["mars", "zero"] and len(data["runs"]) == 6 and data["missing"] == []
