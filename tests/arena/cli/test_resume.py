"""Going on with a run: what may be changed is recorded, what may not is refused by name."""

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


def edited(run: Path, before: str, after: str) -> None:
    config = run / "config.yaml"
    assert re.search(before, config.read_text())
    config.write_text(re.sub(before, after, config.read_text(), count=1))


def test_a_run_goes_on_for_longer_and_notes_what_was_changed(run: Path) -> None:
    more = ITERATIONS + 1
    told = arena("resume", run, "--iterations", str(more), "--set", "learn.lr=1e-5", "--json")
    assert told.code == 0, told.err
    reader = RunReader(run)
    assert [row["iteration"] for row in reader.metrics()] == list(range(1, more + 1))
    began, went_on = reader.environment()["commands"]
    assert began["changed"] == {} and "selfplay" in began["command"]
    assert went_on["changed"] == {"iterations": [ITERATIONS, more], "learn.lr": [0.0003, 1e-05]}
    assert went_on["time"] >= began["time"] and "torch" in went_on["versions"]
    assert f"iterations: {more}" in reader.config() and "lr: 1.0e-05" in reader.config()
    assert arena("resume", run).code == 0, "and so it stays"


def test_a_stray_file_among_checkpoints_counts_for_nothing(run: Path) -> None:
    (run / "checkpoints" / "0009").write_text("")
    assert "has 3 committed: ask for more" in get_refusal("resume", run, "--iterations", 2)
    assert arena("resume", run).code == 0


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("seed=5", "seed (0 → 5) cannot change"),
        ("learn.betas=[0.5, 0.9]", "learn.betas ([0.9, 0.95] → [0.5, 0.9]) cannot change"),
        ("policies.shared.model=nano-2", "policies.shared.model (nano → nano-2) cannot change"),
        ("game.options.max_turns=6", "game.options.max_turns (4 → 6) cannot change"),
        ("learn.lrr=1", "learn.lrr: unknown field"),
        ("iterations=1", "has 3 committed: ask for more"),
    ],
)
def test_what_may_not_change_is_refused_by_name(run: Path, setting: str, told: str) -> None:
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    line = get_refusal("resume", run, "--set", setting)
    assert told in line
    if "cannot change" in told:
        assert "start a new run" in line and "iterations, checkpoint" in line
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("command", [["resume"], ["eval", "--game", "negotiation"]])
def test_an_edited_config_is_refused_naming_what_differs(run: Path, command: list[str]) -> None:
    edited(run, "seed: 0", "seed: 7")
    edited(run, "grad_clip: 1.0", "grad_clip: 2.0")
    line = get_refusal(command[0], run, *command[1:])
    assert line.startswith(f"{run / 'config.yaml'} was edited since its run began: ")
    assert "learn.grad_clip (1.0 → 2.0), seed (0 → 7)" in line and "restore it" in line


def test_an_edit_of_what_may_change_is_recorded(run: Path) -> None:
    edited(run, "lr: 0.0003", "lr: 0.002")
    assert arena("resume", run, "--json").code == 0
    assert RunReader(run).environment()["commands"][-1]["changed"] == {"learn.lr": [0.0003, 0.002]}


@pytest.mark.parametrize("file", ["metrics.jsonl", "log/0001.parquet", "log/0002.credit.parquet"])
def test_reading_commands_notice_what_changed(run: Path, file: str) -> None:
    flip_byte(run / file)
    commands: list[list[str | Path]] = [["show", run], ["show", run, "--json"], ["credit", run, "--estimators", "mars"]]
    for command in commands:
        assert f"{run / file} is not as it was written" in get_refusal(*command)


def test_eval_takes_no_older_weights_unasked(run: Path) -> None:
    newest = run / "checkpoints" / f"{ITERATIONS:04d}"
    flip_byte(newest / "policies" / "shared" / "model.safetensors")
    for command in (["eval", run, "--game", "negotiation"], ["export", run, "--to", run.parent / "out"]):
        line = get_refusal(*command)
        assert line.startswith(f"checkpoint {newest} is torn") and "ask for an older one (0, 2)" in line
    told = arena("eval", f"{run}@2", "--game", "negotiation", "--matches", "2", "--json")
    assert told.code == 0 and json.loads(told.out)["contender"].endswith("@2")


def test_what_a_refused_resume_would_have_changed_is_not_recorded(run: Path) -> None:
    for weights in (run / "checkpoints").rglob("model.safetensors"):
        flip_byte(weights)
    before = [(run / name).read_bytes() for name in ("environment.json", "config.yaml")]
    assert "no checkpoint is intact" in get_refusal("resume", run, "--set", "learn.lr=1e-5", "--json")
    assert [(run / name).read_bytes() for name in ("environment.json", "config.yaml")] == before


def test_a_full_gpu_is_told_in_a_line_and_the_run_goes_on_with_less(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(*given: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee documentation")

    more = ("--iterations", str(ITERATIONS + 1))
    with monkeypatch.context() as patch:
        patch.setattr("arena.lab.Lab.learn", learn)
        told = arena("resume", run, *more)
    assert told.code == 1 and "(CUDA out of memory. Tried to allocate 2.00 GiB.)" in told.err
    assert f"arena resume {run} with --set learn.gradient_checkpointing=true" in told.err
    told = arena("resume", run, *more, "--set", "learn.gradient_checkpointing=true")
    assert told.code == 0, told.err


@pytest.mark.parametrize("variable", ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE"])
def test_one_rank_of_several_begins_no_run_of_its_own(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "4")
    for words in ([*TINY, "--out", tmp_path / "new"], ["resume", run, "--iterations", ITERATIONS + 1]):
        line = get_refusal(*words)
        assert f"{variable}=4" in line and "start one process" in line
    assert not (tmp_path / "new").exists()
    for one in ("1", "", "many"):
        monkeypatch.setenv(variable, one)
        assert find_launched_ranks() == ("", 1)
