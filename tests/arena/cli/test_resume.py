"""Resuming a run: allowed changes are recorded, others are refused by name."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from arena.process import find_launched_ranks
from arena.store.reader import RunReader
from tests.factories.commands import ITERATIONS, TINY, arena, get_refusal
from tests.factories.traces import flip_byte


@pytest.fixture
def run(uninterrupted_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(uninterrupted_run, tmp_path / "run"))


def edit_config(run: Path, before: str, after: str) -> None:
    config = run / "config.yaml"
    assert re.search(before, config.read_text())
    config.write_text(re.sub(before, after, config.read_text(), count=1))


def test_longer_run_records_its_changes(run: Path) -> None:
    more = ITERATIONS + 1
    result = arena("resume", run, "--iterations", str(more), "--set", "learn.lr=1e-5", "--json")
    assert result.code == 0, result.err
    reader = RunReader(run)
    assert [row["iteration"] for row in reader.metrics()] == list(range(1, more + 1))
    began, resumed = reader.environment()["commands"]
    assert began["changed"] == {} and "selfplay" in began["command"]
    assert resumed["changed"] == {"iterations": [ITERATIONS, more], "learn.lr": [0.0003, 1e-05]}
    assert resumed["time"] >= began["time"] and "torch" in resumed["versions"]
    assert f"iterations: {more}" in reader.config() and "lr: 1.0e-05" in reader.config()
    assert arena("resume", run).code == 0, "the changes persist"


def test_stray_file_among_checkpoints_is_ignored(run: Path) -> None:
    (run / "checkpoints" / "0009").write_text("")
    assert "has 3 committed: set a higher total" in get_refusal("resume", run, "--iterations", 2)
    assert arena("resume", run).code == 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("seed=5", "seed (0 → 5) cannot change"),
        ("learn.betas=[0.5, 0.9]", "learn.betas ([0.9, 0.95] → [0.5, 0.9]) cannot change"),
        ("policies.shared.model=nano-2", "policies.shared.model (nano → nano-2) cannot change"),
        ("game.options.max_turns=6", "game.options.max_turns (4 → 6) cannot change"),
        ("learn.lrr=1", "learn.lrr: unknown field"),
        ("iterations=1", "has 3 committed: set a higher total"),
    ],
)
def test_forbidden_change_is_refused_by_name(run: Path, setting: str, message: str) -> None:
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    line = get_refusal("resume", run, "--set", setting)
    assert message in line
    if "cannot change" in message:
        assert "start a new run" in line and "iterations, checkpoint" in line
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("command", [["resume"], ["eval", "--game", "negotiation"]])
def test_edited_config_is_refused_with_its_differences(run: Path, command: list[str]) -> None:
    edit_config(run, "seed: 0", "seed: 7")
    edit_config(run, "grad_clip: 1.0", "grad_clip: 2.0")
    line = get_refusal(command[0], run, *command[1:])
    assert line.startswith(f"{run / 'config.yaml'} was edited since its run began: ")
    assert "learn.grad_clip (1.0 → 2.0), seed (0 → 7)" in line and "restore it" in line


def test_edit_of_a_changeable_setting_is_recorded(run: Path) -> None:
    edit_config(run, "lr: 0.0003", "lr: 0.002")
    assert arena("resume", run, "--json").code == 0
    assert RunReader(run).environment()["commands"][-1]["changed"] == {"learn.lr": [0.0003, 0.002]}


@pytest.mark.parametrize("file", ["metrics.jsonl", "log/0001.parquet", "log/0002.credit.parquet"])
def test_reading_commands_notice_damaged_files(run: Path, file: str) -> None:
    flip_byte(run / file)
    commands: list[list[str | Path]] = [["show", run], ["show", run, "--json"], ["credit", run, "--estimators", "mars"]]
    for command in commands:
        assert f"{run / file} is not as it was written" in get_refusal(*command)


def test_eval_and_export_use_no_older_weights_unasked(run: Path) -> None:
    newest = run / "checkpoints" / f"{ITERATIONS:04d}"
    flip_byte(newest / "policies" / "shared" / "model.safetensors")
    for command in (["eval", run, "--game", "negotiation"], ["export", run, "--to", run.parent / "out"]):
        line = get_refusal(*command)
        assert line.startswith(f"checkpoint {newest} is damaged") and "ask for an older one (0, 2)" in line
    result = arena("eval", f"{run}@2", "--game", "negotiation", "--matches", "2", "--json")
    assert result.code == 0 and json.loads(result.out)["contender"].endswith("@2")


def test_refused_resume_records_no_change(run: Path) -> None:
    for weights in (run / "checkpoints").rglob("model.safetensors"):
        flip_byte(weights)
    before = [(run / name).read_bytes() for name in ("environment.json", "config.yaml")]
    assert "no checkpoint is intact" in get_refusal("resume", run, "--set", "learn.lr=1e-5", "--json")
    assert [(run / name).read_bytes() for name in ("environment.json", "config.yaml")] == before


def test_full_gpu_gives_one_line_and_resume_works_with_less(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(*arguments: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee documentation")

    more = ("--iterations", str(ITERATIONS + 1))
    with monkeypatch.context() as patch:
        patch.setattr("arena.lab.Lab.learn", learn)
        result = arena("resume", run, *more)
    assert result.code == 1 and "(CUDA out of memory. Tried to allocate 2.00 GiB.)" in result.err
    assert f"arena resume {run} with --set learn.gradient_checkpointing=true" in result.err
    result = arena("resume", run, *more, "--set", "learn.gradient_checkpointing=true")
    assert result.code == 0, result.err


@pytest.mark.parametrize("variable", ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE"])
def test_refuses_to_start_as_one_of_several_ranks(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "4")
    for words in ([*TINY, "--out", tmp_path / "new"], ["resume", run, "--iterations", ITERATIONS + 1]):
        line = get_refusal(*words)
        assert f"{variable}=4" in line and "start one process" in line
    assert not (tmp_path / "new").exists()
    for value in ("1", "", "many"):
        monkeypatch.setenv(variable, value)
        assert find_launched_ranks() == ("", 1)
