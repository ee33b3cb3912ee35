"""CPU attention: results and gradients equal torch's, and unsupported cases fall back to it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from agents import attention

LAYER: Any = SimpleNamespace(num_key_value_groups=2, is_causal=True)


def draw_query_key_value(
    rows: int, queries: int, keys: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a random query of four heads, and key and value of two."""
    rng = torch.Generator().manual_seed(queries * keys + rows)
    shapes = (rows, 4, queries, 8), (rows, 2, keys, 8), (rows, 2, keys, 8)
    query, key, value = (torch.randn(shape, generator=rng).to(dtype).requires_grad_() for shape in shapes)
    return query, key, value


def make_padded_causal_mask(rows: int, queries: int, keys: int) -> torch.Tensor:
    """Return a causal mask in which the first row's oldest key is padding."""
    mask = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries).expand(rows, 1, queries, keys).clone()
    mask[0, :, :, 0] = False
    return mask


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 9), (5, 5), (3, 11)])
@pytest.mark.parametrize("masked", [True, False])
def test_matches_torch_attention_up_to_bfloat16_rounding(queries: int, keys: int, masked: bool) -> None:
    if not masked and 1 < queries < keys:
        pytest.skip("queries after others always come with a mask")
    mask = make_padded_causal_mask(3, queries, keys) if masked and keys > 1 else None
    inputs = draw_query_key_value(3, queries, keys, torch.bfloat16)
    output, _ = attention.attend(LAYER, *inputs, mask, scaling=0.3)
    exact = [one.detach().double().requires_grad_() for one in inputs]
    expected, _ = sdpa_attention_forward(LAYER, *exact, mask, scaling=0.3)
    seen = torch.ones_like(expected) if mask is None else mask.any(-1).transpose(1, 2)[..., None].expand_as(expected)
    slope = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)) * seen
    (output * slope).sum().backward()
    (expected * slope).sum().backward()
    torch.testing.assert_close((output * seen).double(), expected * seen, atol=0.03, rtol=0.03)
    for actual, reference in zip(inputs, exact, strict=True):
        assert actual.grad is not None and reference.grad is not None
        torch.testing.assert_close(actual.grad.double(), reference.grad, atol=0.06, rtol=0.06)


def test_gradient_matches_finite_differences() -> None:
    bias = torch.zeros(2, 1, 3, 5, dtype=torch.double).masked_fill_(~make_padded_causal_mask(2, 3, 5), -1e30)
    inputs = draw_query_key_value(2, 3, 5, torch.double)
    assert torch.autograd.gradcheck(lambda *qkv: attention._Attention.apply(*qkv, bias, 0.3), inputs)


def test_fully_masked_rows_are_finite() -> None:
    """Padding rows run through the model too, and their NaN would spread."""
    nothing = torch.zeros(1, 1, 4, 4, dtype=torch.bool)
    output, _ = attention.attend(LAYER, *draw_query_key_value(1, 4, 4, torch.bfloat16), nothing)
    assert torch.isfinite(output).all()


def test_computes_in_autocast_dtype() -> None:
    inputs = draw_query_key_value(2, 4, 4, torch.float32)
    full, _ = attention.attend(LAYER, *inputs, None)
    with torch.autocast("cpu", torch.bfloat16):
        halved, _ = attention.attend(LAYER, *inputs, None)
    assert full.dtype == torch.float32 and halved.dtype == torch.bfloat16
    torch.testing.assert_close(full, sdpa_attention_forward(LAYER, *inputs, None)[0])
    torch.testing.assert_close(full, halved.float(), atol=0.03, rtol=0.03)


@pytest.mark.parametrize("other", [{"dropout": 0.5}, {"sliding_window": 4}, {"is_causal": False}])
def test_falls_back_to_torch_for_unknown_settings(other: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []
    monkeypatch.setattr(attention, "sdpa_attention_forward", lambda *given, **settings: requests.append(settings))
    attention.attend(LAYER, *draw_query_key_value(1, 2, 2, torch.bfloat16), None, **other)
    assert requests == [other]


@pytest.mark.parametrize("masked", [True, False])
def test_splits_many_rows_into_chunks(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    together, apart = draw_query_key_value(5, 6, 6, torch.bfloat16), draw_query_key_value(5, 6, 6, torch.bfloat16)
    mask = make_padded_causal_mask(5, 6, 6) if masked else None
    full, _ = attention.attend(LAYER, *together, mask)
    monkeypatch.setattr(attention, "MAX_SCORES", 2 * 4 * 6 * 6)
    taken: list[int] = []
    probabilities = attention._compute_probabilities
    monkeypatch.setattr(
        attention, "_compute_probabilities", lambda q, k, b: (taken.append(len(q) // 2), probabilities(q, k, b))[1]
    )
    parts, _ = attention.attend(LAYER, *apart, mask)
    assert taken == [2, 2, 1], "rows of both key heads"
    assert torch.equal(full, parts)
    torch.testing.assert_close(torch.autograd.grad(parts.sum(), apart), torch.autograd.grad(full.sum(), together))


def test_falls_back_to_torch_for_long_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "MAX_SCORES", 1 * 4 * 3 * 3)
    monkeypatch.setattr(attention, "sdpa_attention_forward", lambda *given, **settings: "torch's")
    assert attention.attend(LAYER, *draw_query_key_value(1, 3, 4, torch.bfloat16), None) == "torch's"
    assert attention.attend(LAYER, *draw_query_key_value(1, 3, 3, torch.bfloat16), None) != "torch's"
