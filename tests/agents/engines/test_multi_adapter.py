"""Adapters in one engine: replies do not depend on the batch, and the base is held once."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.adapter import create_adapter, low_rank_layers, save_adapter
from agents.adapter_config import AdapterSpec
from agents.bf16 import convert_to_bf16
from agents.engines.base import Completion, Request
from agents.engines.in_process import InProcessEngine
from agents.engines.multi_adapter import MultiAdapterModel
from agents.errors import WeightsError
from agents.model_folder import load_model
from agents.precision import Precision
from agents.published import FolderWeights
from agents.stream import Stream
from agents.weights import resolve
from arena.cli.loop import wait
from tests.factories.models import make_model, randomise_adapter, wrap_adapter
from tests.factories.requests import assert_agrees, generate, make_contexts, make_request, record_passes

NAMES = ("a", "b", "c", "d")


def make_base(bf16: bool = False, family: str = "untied") -> Any:
    base = make_model(family).requires_grad_(False)
    return convert_to_bf16(base, packed=False) if bf16 else base


def publish_adapters(base: Any, engine: InProcessEngine) -> dict[str, Any]:
    """Publish four adapters of different ranks and layers."""
    specs: list[dict[str, Any]] = [{"rank": 2}, {"rank": 3, "alpha": 1.0}, {"rank": 2, "targets": ["q_proj"]}, {}]
    adapters = [
        randomise_adapter(create_adapter(base, AdapterSpec(**spec), seed), seed) for seed, spec in enumerate(specs)
    ]
    models = dict(zip(NAMES, adapters, strict=True))
    for version, (name, model) in enumerate(models.items()):
        wait(engine.publish(name, version, wrap_adapter(model, base)))
    return models


def make_mixed_requests(count: int = 24) -> list[Request]:
    """Return requests of all four adapters in mixed order."""
    contexts = make_contexts(24, count)
    return [make_request(ids, i, f"k{i}", policy=NAMES[i * 7 % 4]) for i, ids in enumerate(contexts)]


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("family", ["untied", "biases", "experts"])
def test_every_row_has_its_own_adapter(bf16: bool, family: str) -> None:
    engine, base = InProcessEngine(Precision.BF16 if bf16 else Precision.FP32), make_base(bf16, family)
    models = publish_adapters(base, engine)
    requests = make_mixed_requests()
    for one, got in zip(requests, generate(engine, requests), strict=True):
        assert got.version == NAMES.index(one.policy)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            assert_agrees(models[one.policy], one, got, atol=0.25 if bf16 else 1e-4)


def test_adapters_share_base_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = InProcessEngine()
    publish_adapters(make_base(), engine)
    shapes = record_passes(monkeypatch)
    generate(engine, make_mixed_requests())
    assert max(rows for rows, _ in shapes) == 24


def test_adapters_are_scored_separately() -> None:
    engine, base = InProcessEngine(), make_base()
    models = publish_adapters(base, engine)
    stream = Stream()
    stream.observe([1, 2, 3])
    stream.append_sampled([4, 5, 6, 7], [0.0] * 4, 0)
    for name, model in models.items():
        (scored,) = wait(engine.score(name, [stream], [1.0]))
        with torch.no_grad():
            log_p = torch.log_softmax(model(input_ids=torch.tensor([stream.ids])).logits[0], -1)
        expected = [float(log_p[k + 2, token]) for k, token in enumerate((4, 5, 6, 7))]
        np.testing.assert_allclose(scored, expected, atol=1e-5)


@pytest.mark.parametrize("bf16", [False, True])
def test_updated_adapter_is_served_after_publishing(bf16: bool) -> None:
    engine, base = InProcessEngine(Precision.BF16 if bf16 else Precision.FP32), make_base(bf16)
    models, requests = publish_adapters(base, engine), make_mixed_requests()
    before = generate(engine, requests)
    randomise_adapter(models["b"], 99)
    wait(engine.publish("b", 7, wrap_adapter(models["b"], base)))
    after = generate(engine, requests)
    fresh = InProcessEngine(Precision.BF16 if bf16 else Precision.FP32)
    for name, model in models.items():
        wait(fresh.publish(name, 7, wrap_adapter(model, base)))
    for first, old, new, second in zip(requests, before, after, generate(fresh, requests), strict=True):
        assert new.logprobs == pytest.approx(second.logprobs, abs=0.1 if bf16 else 1e-5)
        assert (new.version == 7) == (first.policy == "b")
        if not bf16:  # in which the same words, said again, differ as much as in other company
            assert (first.policy == "b") == (
                compare_first_token(new) != pytest.approx(compare_first_token(old), abs=1e-3)
            )


def compare_first_token(completion: Completion) -> list[float]:
    return [*completion.logprobs, *completion.ids]


def test_folders_and_trained_modules_share_the_base(tmp_path: Path) -> None:
    """A past version is an adapter folder and the reference is the base: neither adds weights."""
    folder = resolve("nano")
    base = load_model(folder).requires_grad_(False)
    model = randomise_adapter(create_adapter(base, AdapterSpec(rank=2), 0))
    save_adapter(randomise_adapter(create_adapter(base, AdapterSpec(rank=2), 0), 5), tmp_path / "past", "nano")
    engine = InProcessEngine()
    wait(engine.publish("p", 3, wrap_adapter(model, base, folder, "nano")))
    wait(engine.publish("p@1", 1, FolderWeights(tmp_path / "past")))
    wait(engine.publish("p@reference", 0, FolderWeights(folder)))
    requests = [make_request([1, 2, 3], i, f"{i}", policy=p) for i, p in enumerate(("p", "p@1", "p@reference"))]
    now, past, reference = generate(engine, requests)
    assert_agrees(model, requests[0], now)
    assert_agrees(base, requests[2], reference)
    assert past.version == 1 and past.logprobs != reference.logprobs
    assert len(engine._folders) == 1 and engine._served["p"].model is engine._served["p@reference"].model
    addresses = {p.data_ptr() for p in engine._served["p"].model.parameters()}
    assert addresses == {p.data_ptr() for p in base.parameters()}
    for name in ("p", "p@1", "p@reference"):
        wait(engine.retire(name))
    assert not engine._folders


def test_without_rows_of_an_adapter_a_pass_is_the_base() -> None:
    """For any shape: a model may see fewer rows than the batch has."""
    base = make_base()
    shared_model = MultiAdapterModel(base, bf16=False)
    shared_model.add_adapter("a", randomise_adapter(create_adapter(base, AdapterSpec(rank=2), 0), 0))
    ids = torch.arange(6).reshape(2, 3)
    with torch.no_grad():
        expected = base(input_ids=ids).logits
        assert torch.equal(shared_model.model(input_ids=ids).logits, expected), "nobody was routed yet"
        shared_model.route(["b", "c", "c"])
        assert torch.equal(shared_model.model(input_ids=ids).logits, expected)
        shared_model.route(["a", "b", "b"])
        with pytest.raises(ValueError, match="a layer got 2"):
            shared_model.model(input_ids=ids)


def test_a_name_that_loses_its_adapter_is_the_base(tmp_path: Path) -> None:
    folder = resolve("nano")
    engine, base = InProcessEngine(), load_model(folder)
    save_adapter(randomise_adapter(create_adapter(base, AdapterSpec(rank=2), 0)), tmp_path, "nano")
    wait(engine.publish("p", 0, FolderWeights(tmp_path)))
    wait(engine.publish("p", 1, FolderWeights(folder)))
    request = make_request([1, 2, 3])
    assert_agrees(base, request, generate(engine, [request])[0])


def test_non_finite_adapter_spoils_no_other_reply() -> None:
    """In a joint product 0 times NaN is NaN: other policies are decoded again without it."""
    engine, base = InProcessEngine(), make_base()
    models = publish_adapters(base, engine)
    with torch.no_grad():
        next(low_rank_layers(models["b"]))[1].b.fill_(torch.nan)
    requests = make_mixed_requests()

    async def every() -> list[Any]:
        return await asyncio.gather(*(engine.generate([one]) for one in requests), return_exceptions=True)

    for one, got in zip(requests, asyncio.run(every()), strict=True):
        if one.policy == "b":
            assert isinstance(got, WeightsError) and "policy 'b'" in str(got)
        else:
            assert_agrees(models[one.policy], one, got[0])
