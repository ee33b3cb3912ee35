"""Single-token steps: logits, keys and values equal transformers' forward pass for every supported kind."""

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, MistralConfig, PreTrainedConfig, Qwen2Config

from agents.bf16 import convert_to_bf16
from agents.engines.in_process import InProcessEngine
from agents.engines.kv import KV, BatchKV, empty_kv
from agents.engines.step import step, supports_step
from agents.published import ModuleWeights
from arena.cli.loop import wait
from tests.factories.models import CONFIGS, GROUPED, STEPPED, VOCABULARY, make_float64_model, make_model
from tests.factories.requests import generate, make_contexts, make_request

LENGTHS = (7, 1, 12, 4)
"""Tokens of the rows' pasts."""


def next_column(batch: BatchKV) -> slice:
    """Return the index of the next column."""
    return slice(batch.filled, batch.filled + 1)


def compute_reference(model: Any, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits after the last of [W] ids, and keys and values [layers, 2, key heads, W, width]."""
    output = model(input_ids=ids[None], use_cache=True)
    key_values = [torch.stack((layer.keys[0], layer.values[0])) for layer in output.past_key_values.layers]
    return output.logits[0, -1], torch.stack(key_values)


@pytest.mark.parametrize("name", STEPPED)
def test_steps_match_whole_sequence(name: str) -> None:
    model, steps_ahead = make_float64_model(name), 3
    assert supports_step(model)
    streams = [
        torch.randint(VOCABULARY, (n + steps_ahead,), generator=torch.Generator().manual_seed(n)) for n in LENGTHS
    ]
    with torch.no_grad():
        pasts = [
            KV(tuple(ids[:n].tolist()), compute_reference(model, ids[:n])[1])
            for n, ids in zip(LENGTHS, streams, strict=True)
        ]
        batch = BatchKV(pasts, room=steps_ahead)
        for ahead in range(steps_ahead):
            tokens = torch.stack([ids[n + ahead] for n, ids in zip(LENGTHS, streams, strict=True)])
            batch.mask[:, batch.filled] = True
            positions = torch.tensor([[n + ahead] for n in LENGTHS])
            logits = step(model, batch.data, tokens, positions, batch.mask[:, : batch.filled + 1], next_column(batch))
            batch.advance(1)
            for i, (n, ids) in enumerate(zip(LENGTHS, streams, strict=True)):
                expected, key_values = compute_reference(model, ids[: n + ahead + 1])
                torch.testing.assert_close(logits[i], expected, rtol=1e-9, atol=1e-9)
                torch.testing.assert_close(batch.copy_out(i), key_values, rtol=1e-9, atol=1e-9)


def test_halved_layers_step_as_transformers_does_up_to_bfloat16() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = convert_to_bf16(AutoModelForCausalLM.from_config(STEPPED["qwen3"]).eval())
    nothing = empty_kv(model.config, torch.bfloat16, torch.device("cpu"))
    batches = [BatchKV([nothing] * 3, room=4) for _ in range(2)]
    tokens = torch.tensor([3, 5, 7])
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for ahead in range(4):
            ours, reference = batches
            for batch in batches:
                batch.mask[:, ahead] = True
            positions = torch.full((3, 1), ahead)
            logits = step(model, ours.data, tokens + ahead, positions, ours.mask[:, : ahead + 1], next_column(ours))
            expected = model(
                input_ids=(tokens + ahead)[:, None],
                attention_mask=reference.mask[:, : ahead + 1].long(),
                position_ids=positions,
                past_key_values=reference,
                use_cache=True,
            ).logits[:, -1]
            for batch in batches:
                batch.advance(1)
            torch.testing.assert_close(logits.float(), expected.float(), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_masked_columns_change_nothing(dtype: torch.dtype) -> None:
    """In bfloat16 all columns are read while that is cheaper than copying the visible ones."""
    model = make_float64_model("qwen3").to(dtype)
    nothing = empty_kv(model.config, dtype, torch.device("cpu"))
    outputs = []
    for room in (6, 10, 100):
        batch, rows = BatchKV([nothing] * 3, room), []
        for ahead in range(6):
            batch.mask[:, ahead] = torch.tensor([True, ahead > 1, True])
            mask = batch.mask[:, : ahead + 1]
            wide = batch.select_mask(mask)
            assert wide.shape[1] == (room if dtype == torch.bfloat16 and room <= 2 * (ahead + 1) else ahead + 1)
            tokens, positions = torch.tensor([3, 5, 7]) + ahead, torch.tensor([[ahead], [max(0, ahead - 2)], [ahead]])
            with torch.no_grad():
                rows.append(step(model, batch.data, tokens, positions, wide, next_column(batch)).float())
            batch.advance(1)
        outputs.append(torch.stack(rows))
    for other in outputs[1:]:
        close = 0.05 if dtype == torch.bfloat16 else 1e-6
        torch.testing.assert_close(other[:, [0, 2]], outputs[0][:, [0, 2]], rtol=close, atol=close)
        torch.testing.assert_close(other[2:, 1], outputs[0][2:, 1], rtol=close, atol=close)


def test_copied_row_has_no_gaps_between_columns() -> None:
    rows = [KV((1,) * n, torch.full((2, 2, 3, n, 4), float(n))) for n in (2, 3)]
    batch = BatchKV(rows, room=3)
    batch.data[:, :, :, :, 3:5] = torch.tensor([7.0, 8.0])[:, None]
    batch.mask[0, 4] = True  # one new token, right-aligned
    batch.mask[1, 3:5] = True
    batch.advance(2)
    assert batch.copy_out(0)[0, 0, 0, :, 0].tolist() == [2.0, 2.0, 8.0]
    assert batch.copy_out(1)[0, 0, 0, :, 0].tolist() == [3.0, 3.0, 3.0, 7.0, 8.0]
    row = batch.copy_out(1)
    batch.data.zero_()
    assert row.any() and row.is_contiguous()


def make_windowed_model(family: type[PreTrainedConfig], **more: Any) -> Any:
    return AutoModelForCausalLM.from_config(family(**GROUPED, sliding_window=4, **more))


def test_other_kinds_go_through_transformers() -> None:
    """Sliding windows, experts, capped logits, no rotation: `step` supports none of them."""
    assert not supports_step(make_windowed_model(MistralConfig))
    assert not supports_step(make_windowed_model(Qwen2Config, use_sliding_window=True, max_window_layers=1))
    assert supports_step(make_windowed_model(Qwen2Config, use_sliding_window=False))
    assert {name for name in CONFIGS if supports_step(make_model(name))} == {"tied", "untied", "biases"}


def test_engine_steps_only_where_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(model: Any, data: torch.Tensor, tokens: torch.Tensor, *more: Any) -> torch.Tensor:
        calls.append(len(tokens))
        return step(model, data, tokens, *more)

    monkeypatch.setattr("agents.engines.decoding.step", counted)
    replies = {}
    for name in ("untied", "capped logits"):
        calls.clear()
        engine = InProcessEngine()
        wait(engine.publish("p", 1, ModuleWeights(make_model(name))))
        replies[name] = generate(engine, [make_request(ids, i, f"k{i}") for i, ids in enumerate(make_contexts(24, 5))])
        assert all(len(one.ids) == 6 for one in replies[name])
        assert bool(calls) == (name == "untied")
