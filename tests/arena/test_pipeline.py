"""A pipeline killed at any step resumes bit-equal, and no stage starts from a partial or changed predecessor."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents import strict_yaml
from analysis.frames import load
from analysis.view.runs import Library
from arena.cli.loop import wait
from arena.config.sources import set_layer
from arena.errors import ConfigError, Interrupted, StoreError
from arena.pipelines.running import resume_pipeline, start_pipeline
from arena.store.locks import lock_folder
from arena.store.reader import RunReader
from arena.store.run import RunFolder, create_folder
from arena.store.stages import read_stage_end as ended
from tests.factories.children import Child, run_arena_child
from tests.factories.commands import arena, get_refusal
from tests.factories.labs import RecordingWatcher, read_weight_files
from tests.factories.pipelines import (
    CONFIG,
    STAGES,
    check_killed_pipeline,
    count_steps,
    make_pipeline,
    read_results,
    run_pipeline,
)
from tests.factories.thorough import count_cases


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_pipeline(tmp_path_factory.mktemp("pipeline") / "run")


@pytest.fixture
def run_copy(finished_run: Path, tmp_path: Path) -> Path:
    """Return a copy of the finished pipeline."""
    folder = tmp_path / "copy"
    shutil.copytree(finished_run, folder)
    return folder


def remove_stages_from(folder: Path, first: str) -> None:
    """Remove this stage and all later ones."""
    for name in STAGES[STAGES.index(first) :]:
        shutil.rmtree(folder / "stages" / name)


def test_each_stage_starts_from_the_weights_of_the_one_before(finished_run: Path) -> None:
    experiments = [RunReader(finished_run / "stages" / name).environment()["experiment"] for name in STAGES]
    models = [each["policies"]["player"]["model"] for each in experiments]
    ends = [ended(finished_run / "stages" / name) for name in STAGES]
    assert models[0] == "nano"
    assert models[1:] == [str(end.weights["player"]) for end in ends[:2] if end]
    assert experiments[2]["policies"]["old"]["model"] == models[1], "`stage:first:player` is the first stage's"
    assert [each["policies"]["player"]["imitate"] is not None for each in experiments] == [True, False, False]
    assert [each["learn"]["lr"] for each in experiments] == [1e-3, 5e-4, 1e-3]
    assert len({each["seed"] for each in experiments}) == 3
    first, second = (read_weight_files(finished_run / "stages" / name, 2, "player")[0] for name in STAGES[:2])
    assert first != second, "a stage did not learn"


def test_ended_pipeline_has_nothing_to_do(finished_run: Path) -> None:
    before = read_results(finished_run)
    watcher = RecordingWatcher()
    wait(resume_pipeline(finished_run, watcher))
    assert read_results(finished_run) == before and watcher.rows == []


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("config") / "chain.yaml"
    file.write_text(CONFIG)
    return file


@pytest.fixture(scope="module")
def step_count(config: Path, finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Return the number of durable steps of the whole pipeline."""
    folder = tmp_path_factory.mktemp("steps")
    steps = count_steps(config, folder)
    assert read_results(folder / "run") == read_results(finished_run), "another process plays the same"
    return steps


@pytest.mark.thorough
@pytest.mark.parametrize("case", range(count_cases(4, 40)))
def test_a_pipeline_killed_at_any_step_resumes_bit_by_bit(
    finished_run: Path, config: Path, step_count: int, tmp_path: Path, case: int
) -> None:
    """Each case kills in its own slice of the steps; every third one kills the resumed pipeline, too."""
    count = count_cases(4, 40)
    steps = range(1 + step_count * case // count, 1 + step_count * (case + 1) // count)
    check_killed_pipeline(config, finished_run, steps, tmp_path, random.Random(case), again=case % 3 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [("iteration", 1), ("phase", (2, "learn")), ("phase", (2, "commit"))])
def test_an_interrupted_pipeline_says_how_to_resume_it(
    finished_run: Path, tmp_path: Path, stop: tuple[str, object]
) -> None:
    folder, seen = tmp_path / "run", [0]

    def is_second_time(what: str, value: object) -> bool:
        seen[0] += (what, value) == stop
        return (what, value) == stop and seen[0] == 2

    with pytest.raises(Interrupted, match=f"arena resume {folder} continues"):
        wait(start_pipeline(make_pipeline(), folder, RecordingWatcher(is_second_time)))
    assert ended(folder / "stages" / "01-first") and not ended(folder / "stages" / "02-play")
    wait(resume_pipeline(folder / "stages" / "02-play", RecordingWatcher()))
    assert read_results(folder) == read_results(finished_run)


Damage = Callable[[Path], object]


def flip_last_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))


WEIGHTS = "checkpoints/0002/policies/player/model.safetensors"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda stage: flip_last_byte(stage / WEIGHTS), "model.safetensors is not as it was written"),
        (lambda stage: (stage / WEIGHTS).unlink(), "model.safetensors is missing"),
        (lambda stage: (stage / WEIGHTS).with_name("extra.json").write_text("{}"), "extra.json is not as it was"),
        (lambda stage: flip_last_byte(stage / "done.json"), "done.json is not as it was written"),
        (lambda stage: (stage / "done.json").write_text("[" * 9999), "done.json is not as it was written"),
        (lambda stage: flip_last_byte(stage / "log/0001.parquet"), "0001.parquet is not as it was written"),
        (lambda stage: shutil.rmtree(stage / "checkpoints"), "is missing, and later stages start from it"),
    ],
)
def test_a_changed_predecessor_is_refused(run_copy: Path, damage: Damage, message: str) -> None:
    remove_stages_from(run_copy, "02-play")
    damage(run_copy / "stages" / "01-first")
    line = get_refusal("resume", run_copy)
    assert message in line and "Traceback" not in line
    assert not (run_copy / "stages" / "02-play").exists()


def test_weights_outside_the_folder_are_refused(run_copy: Path) -> None:
    from arena.store.manifest import write_sealed

    remove_stages_from(run_copy, "02-play")
    done = run_copy / "stages" / "01-first" / "done.json"
    body = json.loads(done.read_text())
    body.pop("sha256")
    body["weights"]["player"]["folder"] = "../../../elsewhere"
    write_sealed(done, body)
    assert "leads out of" in get_refusal("resume", run_copy)


def test_an_edited_config_is_refused(run_copy: Path) -> None:
    text = (run_copy / "config.yaml").read_text()
    (run_copy / "config.yaml").write_text(text.replace("seed: 3", "seed: 4"))
    assert "config.yaml was edited since its run began" in get_refusal("resume", run_copy)


def test_a_second_process_is_refused(run_copy: Path) -> None:
    with lock_folder(run_copy):
        assert "is in use by" in get_refusal("resume", run_copy)
        assert "is in use by" in get_refusal("resume", run_copy / "stages" / "03-last")


@pytest.mark.slow
def test_a_second_resume_is_refused_while_the_first_runs(config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = Child(tmp_path / "first", "run", "selfplay", "--config", config, "--out", folder, "--json")
    assert first.wait_until((folder / "stages" / "01-first" / "config.yaml").exists)
    result = run_arena_child(tmp_path / "second", "resume", folder)
    assert result.code == 2 and "is in use by" in result.line
    assert first.end().code == 0


@pytest.mark.slow
def test_settings_change_in_the_stage_that_runs_now(run_copy: Path) -> None:
    remove_stages_from(run_copy, "02-play")
    wait(resume_pipeline(run_copy, RecordingWatcher(), [set_layer("iterations=3")]))
    iterations = [RunReader(run_copy / "stages" / name).environment()["experiment"]["iterations"] for name in STAGES]
    assert iterations == [2, 3, 2]


@pytest.mark.parametrize(
    ("path", "assignment", "message"),
    [
        ("", "learn.lr=1e-5", "all stages of"),
        ("stages/01-first", "learn.lr=1e-5", "all stages of"),
    ],
)
def test_an_ended_pipeline_takes_no_settings(run_copy: Path, path: str, assignment: str, message: str) -> None:
    assert message in get_refusal("resume", run_copy / path, "--set", assignment)


def test_settings_of_another_stage_or_of_the_game_are_refused(run_copy: Path) -> None:
    remove_stages_from(run_copy, "03-last")
    assert "01-first does not run now: settings can change in" in get_refusal(
        "resume", run_copy / "stages/01-first", "--set", "learn.lr=1e-5"
    )
    assert "play.matches (8 → 4) cannot change" in get_refusal("resume", run_copy, "--set", "play.matches=4")


def test_edited_own_files_are_refused(tmp_path: Path) -> None:
    role = tmp_path / "mine.yaml"
    role.write_text("role: mine\nsystem: Play.\nturn: '{{ messages[-1].text }}'\nreply: {format: free}\n")
    folder = tmp_path / "run"
    stop = RecordingWatcher(lambda what, value: (what, value) == ("iteration", 1))
    with pytest.raises(Interrupted):
        wait(start_pipeline(make_pipeline(f"stages.last.play.seats.first.role={role}"), folder, stop))
    assert RunFolder.open(folder / "stages" / "01-first")
    role.write_text(role.read_text() + "# edited\n")
    with pytest.raises(ConfigError, match=r"mine.yaml was edited since"):
        wait(resume_pipeline(folder, RecordingWatcher()))


@pytest.mark.parametrize(
    "stages",
    [
        [{"name": "../../../etc", "play": {}}], [{"name": "/etc", "play": {}}], [{"name": "x" * 300, "play": {}}],
        [{"play": {}}], [5], 5, [{"name": "a"}], [{"name": "a", "play": {}}] * 120,
    ],
)  # fmt: skip
def test_a_hostile_config_is_shown_in_one_line(tmp_path: Path, stages: object) -> None:
    folder = tmp_path / "run"
    (folder / "stages").mkdir(parents=True)
    (folder / "config.yaml").write_text(json.dumps({"name": "x", "stages": stages}))
    assert "stage" in get_refusal("show", folder) or "restore it" in get_refusal("show", folder)
    assert get_refusal("resume", folder)


def test_untrusted_code_is_refused(tmp_path: Path) -> None:
    """Neither code in a foreign pipeline's settings nor its kind of stage is imported."""
    canary, code = tmp_path / "canary", tmp_path / "mine.py"
    code.write_text(f"import pathlib\npathlib.Path({str(canary)!r}).write_text('ran')\n")
    estimator = {"iterations": 1, "credit": {"estimator": f"{code}:mine"}}
    stages: list[dict[str, Any]] = [{"play": estimator}, {f"{code}:kind": {}}]
    for stage in stages:
        data = {**strict_yaml.load(CONFIG, "test"), "stages": [{"name": "a", **stage}]}
        folder = tmp_path / f"run-{len(str(stage))}"
        create_folder(folder, strict_yaml.dump(data, "config.yaml"), {"experiment": data}, empty_folder="stages")
        assert "read it, then pass --trust" in get_refusal("resume", folder)
        assert not canary.exists()


def test_folder_without_a_pipeline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a pipeline"):
        wait(resume_pipeline(tmp_path, RecordingWatcher()))


def test_commands_for_single_runs_suggest_a_stage(finished_run: Path) -> None:
    for words in (
        ["credit", finished_run],
        ["export", finished_run, "--to", finished_run / "x"],
        ["show", finished_run, "0001-0000"],
    ):
        assert "is a pipeline: name one of its stages, such as" in get_refusal(*words)


def test_show_lists_the_stages(finished_run: Path) -> None:
    rows = json.loads(arena("show", finished_run, "--json").out)
    assert [(row["stage"], row["kind"], row["state"]) for row in rows] == [
        ("first", "play", "done"), ("play", "play", "done"), ("last", "play", "done"),
    ]  # fmt: skip
    assert all(row["iterations"] == row["planned"] == 2 and "valid_rate" in row["metrics"] for row in rows)
    shown = arena("show", finished_run).out
    assert "first" in shown and "done, 2 of 2 iterations" in shown
    assert arena("show", finished_run / "stages" / "02-play").code == 0


def test_viewer_lists_the_stages_and_the_report_takes_the_newest(finished_run: Path, tmp_path: Path) -> None:
    names = [f"{finished_run.name}~{name}" for name in STAGES]
    assert [*Library([finished_run]).runs()] == names == [*Library([finished_run.parent]).runs()]
    assert [*Library([finished_run / "stages" / STAGES[1]]).runs()] == names[1:2]
    log = load(finished_run)
    assert [*log.readers] == [finished_run.name] and log.readers[
        finished_run.name
    ].path == finished_run / "stages" / STAGES[2]
    assert log.runs.iloc[0]["config.policies.player.model"].startswith("stages/02-play/checkpoints/")
    assert log.runs.iloc[0]["config.stages.play.play.learn.lr"] == 5e-4
    assert arena("report", finished_run, "--out", tmp_path / "page.html").code == 0
