"""Recorded steps: what the plain ones compute, whatever has changed since they were recorded.

Where there is no GPU the same storage and rounded shapes are used, and nothing is recorded.
"""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agents.adapter import create_adapter
from agents.adapter_config import AdapterSpec
from agents.bf16 import convert_to_bf16
from agents.engines import graphs
from agents.engines.base import Completion
from agents.engines.graphs import GraphCache, can_record, round_up_columns, round_up_rows
from agents.engines.in_process import InProcessEngine
from agents.engines.step import supports_step
from agents.errors import WeightsError
from agents.precision import Precision
from agents.published import ModuleWeights
from arena.cli.loop import wait
from tests.factories.models import STEPPED, VOCABULARY, make_float64_model, randomise_adapter, wrap_adapter
from tests.factories.requests import assert_agrees, generate, make_contexts, make_request

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))
PRECISIONS = [Precision.FP32, Precision.BF16]
NEVER = 10**9


@pytest.fixture(params=["cpu", GPU])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "cpu":
        monkeypatch.setattr("agents.engines.in_process.can_record", supports_step)
    return str(request.param)


def make_engine(model: Any, precision: Precision = Precision.FP32) -> InProcessEngine:
    engine = InProcessEngine(precision)
    wait(engine.publish("p", 1, ModuleWeights(model)))
    return engine


def play_conversation(engine: InProcessEngine, policies: tuple[str, ...] = ("p",)) -> list[Completion]:
    """Generate two turns of nine streams with common prefixes that end at different times."""
    requests = [
        make_request(ids, i, f"k{i}", max_tokens=9 - i % 5, policy=policies[i % len(policies)])
        for i, ids in enumerate([*make_contexts(VOCABULARY, 7), [1, 2, 3], [1, 2, 3]])
    ]
    completions = generate(engine, requests)
    more = [
        make_request([*one.ids, *own.ids, 5], 9 + i, one.key, max_tokens=7, policy=one.policy)
        for i, (one, own) in enumerate(zip(requests, completions, strict=True))
    ]
    return [*completions, *generate(engine, more)]


@pytest.mark.parametrize("name", STEPPED)
def test_replies_are_those_of_the_model(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_float64_model(name).float().to(device)
    engine, used = make_engine(model), []
    one_step = GraphCache.__call__
    monkeypatch.setattr(GraphCache, "__call__", lambda *given: used.append(len(given[3])) or one_step(*given))
    requests = [make_request(ids, i, f"k{i}") for i, ids in enumerate(make_contexts(VOCABULARY, 9))]
    for _ in range(2):
        for one, got in zip(requests, generate(engine, requests), strict=True):
            assert_agrees(model, one, got)
    assert used and set(used) == {9}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_padded_shapes_match_plain_steps(precision: Precision, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_float64_model("qwen3").float().to(device)
    rounded = play_conversation(make_engine(model, precision))
    monkeypatch.setattr("agents.engines.in_process.can_record", lambda model: False)
    plain = play_conversation(make_engine(model, precision))
    if precision is Precision.FP32:
        assert [one.ids for one in rounded] == [one.ids for one in plain]
    for first, second in zip(rounded, plain, strict=True):
        if first.ids == second.ids:
            assert first.logprobs == pytest.approx(second.logprobs, abs=1e-4 if precision is Precision.FP32 else 0.3)


@pytest.mark.parametrize("device", [GPU])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_replay_equals_eager_execution(precision: Precision, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_float64_model("llama").float().to(device)
    engine = make_engine(model, precision)
    play_conversation(engine)
    recorded = play_conversation(engine)
    (replay,) = engine._replays.values()
    assert any(step.graph is not None for step in replay._steps.values())
    monkeypatch.setattr(graphs, "CAPTURE_AT", NEVER)
    plain = make_engine(model, precision)
    play_conversation(plain)
    assert recorded == play_conversation(plain)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_replays_use_updated_weights(precision: Precision, device: str) -> None:
    """Changed in place, as by an optimiser; then moved; then after their copies were freed."""
    model, rng = make_float64_model("llama").float().to(device), torch.Generator().manual_seed(0)
    engine = make_engine(model, precision)
    for version in range(2, 5):
        play_conversation(engine)
        with torch.no_grad():
            for parameter in model.parameters():
                moved = parameter + 0.2 * torch.randn(parameter.shape, generator=rng).to(device)
                if version == 3:
                    parameter.data = moved
                else:
                    parameter.copy_(moved)
        if version == 4:
            wait(engine.release("p"))
            assert not engine._replays
        wait(engine.publish("p", version, ModuleWeights(model)))
        fresh = make_engine(copy.deepcopy(model), precision)
        wait(fresh.publish("p", version, ModuleWeights(fresh._served["p"].weights)))
        assert play_conversation(engine) == play_conversation(fresh)


def test_nan_weights_leave_no_trace(device: str) -> None:
    model = make_float64_model("llama").float().to(device)
    engine = make_engine(model)
    before = play_conversation(engine)
    with torch.no_grad():
        model.model.layers[0].self_attn.v_proj.weight.fill_(float("nan"))
    wait(engine.publish("p", 2, ModuleWeights(model)))
    with pytest.raises(WeightsError, match="NaN"):
        play_conversation(engine)
    model.load_state_dict(make_float64_model("llama").float().state_dict())
    wait(engine.publish("p", 1, ModuleWeights(model)))
    assert play_conversation(engine) == before


@pytest.mark.parametrize("precision", PRECISIONS)
def test_adapters_take_turns_and_share_batches(precision: Precision, device: str) -> None:
    """One alone, another alone, both together, the first again: the stacked matrices move each time."""
    base = make_float64_model("qwen2").float().to(device).requires_grad_(False)
    base = convert_to_bf16(base, packed=False) if precision.uses_bf16_products else base
    models = {name: randomise_adapter(create_adapter(base, AdapterSpec(rank=2), i), i) for i, name in enumerate("ab")}
    engine, fresh = (InProcessEngine(precision) for _ in range(2))
    for each in (engine, fresh):
        for name, model in models.items():
            wait(each.publish(name, 1, wrap_adapter(model, base)))
    for policies in [("a",), ("b",), ("a", "b"), ("a",), ("b", "a"), ("b",)]:
        fresh._replays.clear()
        assert play_conversation(engine, policies) == play_conversation(fresh, policies)
    randomise_adapter(models["a"], 9)
    wait(engine.publish("a", 2, wrap_adapter(models["a"], base)))
    with torch.autocast(device, torch.bfloat16, enabled=precision.uses_bf16_products):
        requests = [make_request(ids, i, f"n{i}", policy="a") for i, ids in enumerate(make_contexts(VOCABULARY, 5))]
        for one, got in zip(requests, generate(engine, requests), strict=True):
            assert_agrees(models["a"], one, got, atol=0.3 if precision.uses_bf16_products else 1e-4)


def test_a_larger_batch_after_a_smaller_one(device: str) -> None:
    model = make_float64_model("llama").float().to(device)
    engine = make_engine(model)
    for count in (2, 20, 3, 33, 2):
        requests = [
            make_request(ids, i, f"{count}.{i}") for i, ids in enumerate(make_contexts(VOCABULARY, count, seed=count))
        ]
        for one, got in zip(requests, generate(engine, requests), strict=True):
            assert_agrees(model, one, got)


def test_models_of_one_engine_share_the_room_for_caches(device: str) -> None:
    """Small and large batches of both models move it; neither sees the other's contents."""
    models = {"p": make_float64_model("llama").float().to(device), "q": make_float64_model("qwen3").float().to(device)}
    engine = InProcessEngine()
    for name, model in models.items():
        wait(engine.publish(name, 1, ModuleWeights(model)))
    for turn, count in enumerate((2, 2, 20, 3, 3, 33, 2)):
        for name, model in models.items():
            contexts = make_contexts(VOCABULARY, count, seed=turn)
            requests = [make_request(ids, i, f"{turn}.{i}", policy=name) for i, ids in enumerate(contexts)]
            for one, got in zip(requests, generate(engine, requests), strict=True):
                assert_agrees(model, one, got)
    assert {id(replay.buffers) for replay in engine._replays.values()} == {id(engine._buffers)}
    wait(engine.release("p"))
    assert not engine._buffers._buffers and list(engine._replays) == [models["q"]]
    assert_agrees(models["q"], requests[0], generate(engine, requests[:1])[0])


def test_steps_are_recorded_on_a_gpu_only() -> None:
    model = make_float64_model("llama")
    assert not can_record(model)
    if torch.cuda.is_available():
        assert can_record(model.cuda())


def test_rows_are_rounded_up_to_few_numbers() -> None:
    assert [round_up_rows(n) for n in (1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 128, 129)] == [
        1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 128, 192,
    ]  # fmt: skip
    assert [round_up_columns(n) for n in (1, 64, 65, 129, 300, 400)] == [64, 64, 128, 192, 384, 512]


@given(st.integers(1, 10**6))
def test_rounding_up_adds_at_most_half(count: int) -> None:
    assert count <= round_up_rows(count) <= 1.5 * count
    assert round_up_rows(round_up_rows(count)) == round_up_rows(count)
