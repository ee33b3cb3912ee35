"""Decode one token per row with a Llama-like model in few operator calls.

transformers' forward pass supports any length and cache. With one token per row, most of its 250 operator calls per
layer prepare known values, and keys and values are copied for every head that shares them. This module does the same
arithmetic on the model's own layers, of any kind (bfloat16, packed, with adapters), in three fifths of the calls. Other
model types use transformers.
"""

from typing import Any

import torch

from agents.engines.multi_adapter import apply_layer, apply_layers
from agents.vision import text_body

MODEL_TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"})
"""transformers' names of models whose layers are x + attention(norm(x)), then x + mlp(norm(x))."""


def supports_step(model: Any) -> bool:
    """Return True if `step` supports this model: a Llama-like type with full attention in every layer."""
    config = model.config.get_text_config(decoder=True)
    return (
        config.model_type in MODEL_TYPES
        and hasattr(model, "lm_head")
        and getattr(config, "sliding_window", None) is None
        and set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
    )


def step(
    model: Any,
    data: torch.Tensor,
    tokens: torch.Tensor,
    positions: torch.Tensor,
    mask: torch.Tensor,
    column: slice | torch.Tensor,
) -> torch.Tensor:
    """Run a model on one new token per row; return the logits [B, vocabulary] for tokens [B] at `positions` [B, 1].

    `data` [layers, 2, B, key heads, S or more, width] holds keys and values; the new ones are written to `column`, a
    slice or an index [1]. `mask` [B, S] is True where a row may attend, including the new column.
    """
    core = text_body(model)
    x = core.embed_tokens(tokens)
    rotation = core.rotary_emb(x[:, None], positions)
    attention = _Attention(data, mask, column, *rotation)
    for layer in core.layers[: core.config.num_hidden_layers]:
        x = x + attention(layer.self_attn, _apply_norm(layer.input_layernorm, x))
        x = x + _apply_mlp(layer.mlp, _apply_norm(layer.post_attention_layernorm, x))
    return apply_layer(model.lm_head, _apply_norm(core.norm, x))


def _apply_norm(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """Apply the layer's RMS norm; in float32 one call gives the same bits as the layer's six."""
    if x.dtype != torch.float32 or layer.weight.dtype != torch.float32:
        return layer(x)  # type: ignore[no-any-return]
    return torch.nn.functional.rms_norm(x, layer.weight.shape, layer.weight, layer.variance_epsilon)


def _apply_mlp(layer: Any, x: torch.Tensor) -> torch.Tensor:
    gate, up = apply_layers((layer.gate_proj, layer.up_proj), x).chunk(2, -1)
    return apply_layer(layer.down_proj, layer.act_fn(gate) * up)


class _Attention:
    """Attention with one query per row, for all layers of a step; values common to the layers are computed once."""

    def __init__(
        self,
        data: torch.Tensor,
        mask: torch.Tensor,
        column: slice | torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
    ) -> None:
        """Prepare a step, with arguments as for `step`. `cos` and `sin` are [B, 1, width] for the tokens' positions."""
        self.data, self.column, self.length = data, column, mask.shape[1]
        self.half = cos.shape[-1] // 2
        self.cos, self.sin = cos, torch.cat((-sin[..., : self.half], sin[..., self.half :]), -1)
        bias = data.new_zeros(mask.shape).masked_fill_(~mask, torch.finfo(data.dtype).min)
        self.bias = bias.repeat_interleave(data.shape[3], 0)[:, None]
        """[B * key heads, 1, S]: the lowest finite number instead of -inf where a row may not attend."""

    def __call__(self, layer: Any, x: torch.Tensor) -> torch.Tensor:
        """Store the tokens' keys and values and return the layer's attention output [B, hidden] for `x` [B, hidden].

        Computes softmax(scale q k^T + bias) v. Queries of heads that share a key are multiplied at once.
        """
        keys, values = self.data[layer.layer_idx].unbind()
        rows, width, shared = len(x), layer.head_dim, keys.shape[1]
        y = apply_layers((layer.q_proj, layer.k_proj, layer.v_proj), x).view(rows, -1, width)
        both, heads = y[:, :-shared], y.shape[1] - 2 * shared
        if hasattr(layer, "q_norm"):
            both = torch.cat((layer.q_norm(both[:, :heads]), layer.k_norm(both[:, heads:])), 1)
        both = self._rotate(both).to(keys.dtype)
        self._write(keys, both[:, heads:, None])
        self._write(values, y[:, -shared:, None].to(values.dtype))
        k, v = keys[:, :, : self.length].flatten(0, 1), values[:, :, : self.length].flatten(0, 1)
        q = both[:, :heads].reshape(len(k), -1, width)
        scores = torch.baddbmm(self.bias, q, k.transpose(1, 2), alpha=layer.scaling)
        # without a dtype autocast would return float32, which the product rounds again
        p = torch.softmax(scores, -1, dtype=scores.dtype)
        return apply_layer(layer.o_proj, torch.bmm(p, v).view(rows, -1))

    def _write(self, cache: torch.Tensor, new: torch.Tensor) -> None:
        if isinstance(self.column, slice):
            cache[:, :, self.column] = new
        else:
            cache.index_copy_(2, self.column, new)

    def _rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Return x [B, heads, width] rotated by position (RoPE, Su et al. 2021), in halves as in Llama."""
        return torch.addcmul(x * self.cos, x.roll(self.half, -1), self.sin)
