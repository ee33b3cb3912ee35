"""A checkpoint written in buckets is the folder that one process with the whole model writes."""

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
from arena.scale.parcels import pack
from arena.scale.rank import Form, Kind, Learner, Rank
from arena.scale.tensors import Fetch, RankTensors, RankWeights


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that most parameters lie in several of them."""
    for module in (ranks, tensors):
        monkeypatch.setattr(module, "FILE_BUCKET", 40_000)


def added(name: str, adapter: NewAdapter | None = None, precision: Precision = Precision.FP32) -> tuple[Rank, Form]:
    """A rank with a policy of a built-in model."""
    rank, folder = Rank(), resolve(name)
    origin = Origin(folder, folder, adapter, precision, frozen=False)
    return rank, rank.add(Learner("p", origin, LearnSpec(gate_tolerance=1e9), False))


def fetching(rank: Rank, kind: Kind) -> Fetch:
    async def fetch(layout: Layout, number: int) -> np.ndarray:
        bucket = rank.bucket("p", kind, layout, number)
        assert bucket is not None
        return bucket

    return fetch


def weights(rank: Rank, form: Form, name: str, adapter: NewAdapter | None = None) -> RankWeights:
    origin = Origin(resolve(name), resolve(name), adapter, Precision.FP32, frozen=False)
    fetched: Any = RankTensors(form.weights, fetching(rank, "weights"))
    return RankWeights("p", origin, form, fetched, lambda: True, None, None)  # type: ignore[arg-type]


def same_files(one: Path, other: Path) -> None:
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    for name in names:
        if not name.endswith(".safetensors"):
            assert (one / name).read_bytes() == (other / name).read_bytes(), name
            continue
        here, there = load_file(one / name), load_file(other / name)
        assert here.keys() == there.keys()
        assert all(here[key].dtype == there[key].dtype and torch.equal(here[key], there[key]) for key in here)


@pytest.mark.parametrize(
    ("name", "precision"), [("nano", Precision.FP32), ("nano", Precision.BF16_TRUE), ("nano-vlm", Precision.FP32)]
)
def test_a_full_model_is_written_as_one_process_writes_it(name: str, precision: Precision, tmp_path: Path) -> None:
    rank, form = added(name, precision=precision)
    policy = Policy.load("p", resolve(name), resolve(name), True, precision=precision)
    policy.save(tmp_path / "one")
    weights(rank, form, name).write(tmp_path / "many")
    policy.save_companions(tmp_path / "many")
    same_files(tmp_path / "one", tmp_path / "many")
    load_model(tmp_path / "many")


def test_an_adapter_is_written_as_one_process_writes_it(tmp_path: Path) -> None:
    new = NewAdapter(AdapterSpec(rank=4), 5, "nano")
    rank, form = added("nano", new)
    Policy.load("p", resolve("nano"), resolve("nano"), True, new).save(tmp_path / "one")
    weights(rank, form, "nano", new).write(tmp_path / "many")
    same_files(tmp_path / "one", tmp_path / "many")


def test_moments_are_written_and_restored_in_buckets(tmp_path: Path) -> None:
    rank, _ = added("nano")
    trainer: PolicyTrainer = rank._trainers["p"]
    rank.update("p", pack(trainer.plan(make_ragged_samples(1), np.random.default_rng(0)).for_rank(0)))
    found = RankTensors(rank.moments("p"), fetching(rank, "moments"))
    expected = dict(trainer.optimiser.moments.each())
    assert found.keys() == expected.keys() and any(value.any() for value in expected.values())
    file = tmp_path / "optimizer.safetensors"
    found.write(file, {"steps": "1"})
    assert all(torch.equal(value, expected[name]) for name, value in load_file(file).items())

    other, _ = added("nano")
    layout, begin = Layout.read_file(file)
    data = np.frombuffer(file.read_bytes()[begin:], np.uint8)
    assert other.resume("p", trainer.state()) == trainer.state()
    for number in layout.buckets(40_000):
        other.restore("p", layout, number, data[number * 40_000 :][: layout.length(number, 40_000)])
    restored = dict(other._trainers["p"].optimiser.moments.each())
    assert restored.keys() == expected.keys() and all(torch.equal(restored[name], expected[name]) for name in expected)
    assert other._trainers["p"].steps == trainer.steps


def test_one_tensor_can_be_read_alone() -> None:
    rank, form = added("nano")
    found = weights(rank, form, "nano").tensors
    name, value = next(iter(load_file(resolve("nano") / "model.safetensors").items()))
    assert torch.equal(found[name], value.float())
    with pytest.raises(KeyError):
        found["absent"]
