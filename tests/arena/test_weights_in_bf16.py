"""Runs with bfloat16 weights: half the bytes, float32 masters, and bit-equal resumption."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from agents.engines.in_process import InProcessEngine
from arena.cli.loop import wait
from arena.evaluate.specs import ContenderLoader
from arena.play.contenders import ModelContender
from tests.factories.commands import get_refusal
from tests.factories.labs import check_resume, make_warm_experiment, run_lab

BF16 = ("precision=bf16-true", "learn.zero_stage=2")
LEAGUE = "league={opponents: [{play: self}, {play: past, lag: 1}], pool: {every: 1}}"


def load_tensors(folder: Path, name: str) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoints" / "0003" / "policies" / "shared" / name)


SHARDED = pytest.param(("learn.zero_stage=3", "learn.offload_optimizer=true"), marks=pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), SHARDED], ids=str)
def test_bf16_runs_resume_bit_equal_with_their_masters(more: tuple[str, ...], warm: str, tmp_path: Path) -> None:
    config = make_warm_experiment(
        warm, *BF16, *more, LEAGUE, "iterations=3", "checkpoint.keep=9", "play.matches=4", "learn.lr=1e-5"
    )
    check_resume(config, tmp_path)
    held, optimizer = (
        load_tensors(tmp_path / "whole", "model.safetensors"),
        load_tensors(tmp_path / "whole", "optimizer.safetensors"),
    )
    assert {tensor.dtype for tensor in held.values()} == {torch.bfloat16}
    masters = {name.removesuffix(".master"): tensor for name, tensor in optimizer.items() if name.endswith(".master")}
    assert masters.keys() == held.keys()
    assert all(torch.equal(master.bfloat16(), held[name]) for name, master in masters.items())
    assert any(not torch.equal(master, held[name].float()) for name, master in masters.items())


@pytest.mark.slow
def test_served_and_reloaded_weights_are_bfloat16(warm: str, tmp_path: Path) -> None:
    lab = run_lab(tmp_path / "run", make_warm_experiment(warm, *BF16, LEAGUE, "iterations=2", "learn.lr=0"))
    assert isinstance(lab.engine, InProcessEngine)
    past = [name for name in lab.engine._served if name.startswith("shared@")]
    assert "shared@reference" in past and len(past) > 1
    for name in ("shared", *past):
        assert list_dtypes(lab.engine, name) == {torch.bfloat16}, name
    row = next(iter(lab.run_folder.reader.metrics()))
    assert row["learn"]["shared"]["kl"] == 0, "unchanged weights differ from their reference"
    (contender,) = wait(ContenderLoader().load(str(tmp_path / "run")))
    assert isinstance(contender, ModelContender) and isinstance(contender.engine, InProcessEngine)
    assert {d for name in contender.engine._served for d in list_dtypes(contender.engine, name)} == {torch.bfloat16}


def list_dtypes(engine: Any, name: str) -> set[torch.dtype]:
    return {parameter.dtype for parameter in engine._served[name].model.parameters()}


def test_bf16_weights_without_zero_are_refused(tmp_path: Path) -> None:
    start = ("run", "selfplay", "--recipe", "negotiation-nano", "--out", tmp_path / "x")
    for stage in (0, 1):
        line = get_refusal(*start, "--set", "precision=bf16-true", "--set", f"learn.zero_stage={stage}")
        assert "set learn.zero_stage to 2 or 3" in line
    assert not (tmp_path / "x").exists()
