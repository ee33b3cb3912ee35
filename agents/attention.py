"""Attention in bfloat16 on a CPU by plain matrix products instead of torch's fused kernel.

On short streams torch's fused CPU kernel takes twice as long forward, five times as long backward and, with one query
as in decoding, eight times as long as the matrix products. transformers also makes it copy keys and values for every
head that shares them. Like the kernel, we do not store probabilities for the backward pass. All other cases use torch's
kernel.
"""

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "arena"
"""Name of this attention in transformers, for `attn_implementation`."""
MAX_SCORES = 1 << 23
"""Maximum attention scores computed at once, about one row of a thousand tokens. Longer rows use torch's kernel, which
is as fast there and needs less memory; larger batches are split."""
_NEUTRAL_ARGUMENTS = {"dropout", "scaling", "position_ids", "use_cache", "is_causal", "logits_to_keep"}
"""Arguments of ordinary softmax attention. Calls with any other argument use torch's kernel."""


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """Return (attention output [B, Q, heads, width], None), the signature of transformers' attention functions.

    `query` is [B, heads, Q, width]; `key` and `value` are [B, key heads, S, width]. `attention_mask` is a bool tensor
    [B, 1, Q, S], True if a query may attend to a key; None means causal attention. Computes matrix products for
    bfloat16 on a CPU and calls torch's kernel in all other cases.
    """
    if not _is_supported(query, key, value, settings):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)  # type: ignore[no-any-return]
    queries, keys = query.shape[2], key.shape[2]
    if attention_mask is None and queries > 1:
        attention_mask = torch.ones((1, 1, queries, keys), dtype=torch.bool).tril()
    bias = None
    if attention_mask is not None:  # the lowest finite number: -inf would make rows of padding NaN
        bias = torch.zeros(attention_mask.shape, dtype=torch.bfloat16)
        bias.masked_fill_(~attention_mask, torch.finfo(torch.bfloat16).min)
    scale = settings.get("scaling") or query.shape[-1] ** -0.5
    query, key, value = (tensor.to(torch.bfloat16) for tensor in (query, key, value))
    step = MAX_SCORES // _count_row_scores(query, key)
    parts: list[torch.Tensor] = []
    with torch.autocast("cpu", enabled=False):
        for rows in (slice(at, at + step) for at in range(0, len(query), step)):
            row_bias = bias[rows] if bias is not None and len(bias) == len(query) else bias  # or one for all rows
            parts.append(_Attention.apply(query[rows], key[rows], value[rows], row_bias, scale))  # type: ignore[no-untyped-call]
    output = torch.cat(parts) if len(parts) > 1 else parts[0]
    return output.transpose(1, 2), None


def _count_row_scores(query: torch.Tensor, key: torch.Tensor) -> int:
    """Return the number of attention scores of one sequence of the batch, over all heads."""
    return query.shape[1:3].numel() * key.shape[2]


def _is_supported(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, settings: dict[str, Any]) -> bool:
    if query.device.type != "cpu" or key.shape != value.shape or _count_row_scores(query, key) > MAX_SCORES:
        return False
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else query.dtype
    plain = (
        settings.keys() <= _NEUTRAL_ARGUMENTS and not settings.get("dropout") and settings.get("is_causal") is not False
    )
    return dtype == torch.bfloat16 and plain


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


class _Attention(torch.autograd.Function):
    """Autograd function for softmax(scale q k^T + bias) v. Queries of heads that share a key are multiplied at once.

    With p the probabilities, recomputed in the backward pass, and g the output's gradient: dv = p^T g, ds = p (g v^T -
    sum of p g v^T), dq = scale ds k, dk = scale ds^T q (Dao et al. 2022, "FlashAttention", appendix B).
    """

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None, scale: float
    ) -> torch.Tensor:
        ctx.save_for_backward(query, key, value, bias)
        ctx.scale = scale
        p = _compute_probabilities(_group_heads(query, key) * scale, key.flatten(0, 1), bias)
        return torch.bmm(p, value.flatten(0, 1)).view(query.shape)

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None, None]:
        query, key, value, bias = ctx.saved_tensors
        q, k, v, g = (
            _group_heads(query, key) * ctx.scale,
            key.flatten(0, 1),
            value.flatten(0, 1),
            _group_heads(grad_output, key),
        )
        p = _compute_probabilities(q, k, bias)
        ds = torch._softmax_backward_data(torch.bmm(g, v.transpose(1, 2)), p, -1, p.dtype)
        dq, dk, dv = torch.bmm(ds, k).mul_(ctx.scale), torch.bmm(ds.transpose(1, 2), q), torch.bmm(p.transpose(1, 2), g)
        return dq.view(query.shape), dk.view(key.shape), dv.view(value.shape), None, None


def _group_heads(heads: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Reshape [B, heads, Q, width] to [B * key heads, heads per key * Q, width]."""
    return heads.reshape(len(key) * key.shape[1], -1, heads.shape[-1])


def _compute_probabilities(q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return softmax of the biased scores, [B * key heads, heads per key * Q, S] in the dtype of q.

    torch's softmax sums in float32.
    """
    scores = torch.bmm(q, k.transpose(1, 2))
    if bias is not None:
        scores.view(len(bias), -1, *bias.shape[2:]).add_(bias)
    return torch.softmax(scores, -1)
