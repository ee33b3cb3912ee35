"""A checkpoint written in buckets equals the folder that one process with the whole model writes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from agents.adapter_config import AdapterSpec
from agents.model_folder import load_model
from agents.policy import NewAdapter, Origin, Policy
from agents.precision import Precision
from agents.weights import resolve
from arena.config.experiment import LearnSpec
from arena.learn.trainer import PolicyTrainer
from tests.factories.scaled import make_ragged_samples

pytest.importorskip("ray")

from arena.scale import rank as ranks
from arena.scale import tensors
from arena.scale.layout import Layout
from arena.scale.packed_plan import pack_plan
from arena.scale.rank import PolicyDescription, Rank, TensorKind, TrainerSpec
from arena.scale.tensors import Fetch, RankTensors, RankWeights


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use buckets so small that most parameters span several."""
    for module in (ranks, tensors):
        monkeypatch.setattr(module, "FILE_BUCKET", 40_000)


def add_policy(
    name: str, adapter: NewAdapter | None = None, precision: Precision = Precision.FP32
) -> tuple[Rank, PolicyDescription]:
    """Return a rank with a policy of a built-in model, and its description."""
    rank, folder = Rank(), resolve(name)
    origin = Origin(folder, folder, adapter, precision, frozen=False)
    return rank, rank.add(TrainerSpec("p", origin, LearnSpec(gate_tolerance=1e9), False))


def make_fetch(rank: Rank, kind: TensorKind) -> Fetch:
    async def fetch(layout: Layout, number: int) -> np.ndarray:
        bucket = rank.gather_bucket("p", kind, layout, number)
        assert bucket is not None
        return bucket

    return fetch


def make_weights(
    rank: Rank, description: PolicyDescription, name: str, adapter: NewAdapter | None = None
) -> RankWeights:
    origin = Origin(resolve(name), resolve(name), adapter, Precision.FP32, frozen=False)
    fetched: Any = RankTensors(description.weights, make_fetch(rank, "weights"))
    return RankWeights("p", origin, description, fetched, lambda: True, None, None)  # type: ignore[arg-type]


def assert_same_files(one: Path, other: Path) -> None:
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    for name in names:
        if not name.endswith(".safetensors"):
            assert (one / name).read_bytes() == (other / name).read_bytes(), name
            continue
        own_tensors, other_tensors = load_file(one / name), load_file(other / name)
        assert own_tensors.keys() == other_tensors.keys()
        assert all(
            own_tensors[key].dtype == other_tensors[key].dtype and torch.equal(own_tensors[key], other_tensors[key])
            for key in own_tensors
        )


@pytest.mark.parametrize(
    ("name", "precision"), [("nano", Precision.FP32), ("nano", Precision.BF16_TRUE), ("nano-vlm", Precision.FP32)]
)
def test_full_model_is_written_as_by_one_process(name: str, precision: Precision, tmp_path: Path) -> None:
    rank, description = add_policy(name, precision=precision)
    policy = Policy.load("p", resolve(name), resolve(name), True, precision=precision)
    policy.save(tmp_path / "one")
    make_weights(rank, description, name).write(tmp_path / "many")
    policy.save_companions(tmp_path / "many")
    assert_same_files(tmp_path / "one", tmp_path / "many")
    load_model(tmp_path / "many")


def test_adapter_is_written_as_by_one_process(tmp_path: Path) -> None:
    new = NewAdapter(AdapterSpec(rank=4), 5, "nano")
    rank, description = add_policy("nano", new)
    Policy.load("p", resolve("nano"), resolve("nano"), True, new).save(tmp_path / "one")
    make_weights(rank, description, "nano", new).write(tmp_path / "many")
    assert_same_files(tmp_path / "one", tmp_path / "many")


def test_moments_are_written_and_restored_in_buckets(tmp_path: Path) -> None:
    rank, _ = add_policy("nano")
    trainer: PolicyTrainer = rank._trainers["p"]
    rank.update("p", pack_plan(trainer.plan(make_ragged_samples(1), np.random.default_rng(0)).for_rank(0)))
    moments = RankTensors(rank.describe_moments("p"), make_fetch(rank, "moments"))
    expected = dict(trainer.optimiser.moments.named_tensors())
    assert moments.keys() == expected.keys() and any(value.any() for value in expected.values())
    file = tmp_path / "optimizer.safetensors"
    moments.write(file, {"steps": "1"})
    assert all(torch.equal(value, expected[name]) for name, value in load_file(file).items())

    restored_rank, _ = add_policy("nano")
    layout, begin = Layout.read_file(file)
    data = np.frombuffer(file.read_bytes()[begin:], np.uint8)
    assert restored_rank.resume("p", trainer.state()) == trainer.state()
    for number in layout.buckets(40_000):
        restored_rank.restore("p", layout, number, data[number * 40_000 :][: layout.length(number, 40_000)])
    restored = dict(restored_rank._trainers["p"].optimiser.moments.named_tensors())
    assert restored.keys() == expected.keys() and all(torch.equal(restored[name], expected[name]) for name in expected)
    assert restored_rank._trainers["p"].steps == trainer.steps


def test_single_tensor_can_be_read() -> None:
    rank, description = add_policy("nano")
    rank_tensors = make_weights(rank, description, "nano").tensors
    name, value = next(iter(load_file(resolve("nano") / "model.safetensors").items()))
    assert torch.equal(rank_tensors[name], value.float())
    with pytest.raises(KeyError):
        rank_tensors["absent"]
