"""Estimate the fixed costs of a model's forward pass, and test if it supports tree attention."""

from typing import Any
from weakref import WeakKeyDictionary

import torch

from agents.packing import Costs, Pass, Row
from agents.scoring import build_batch, compute_hidden_states
from agents.stream import Stream
from agents.vision import get_vision, has_vision


def estimate_costs(model: torch.nn.Module, bf16: bool = False) -> Costs:
    """Return the fixed costs of a model's forward pass, converted to tokens; cached per model.

    `scores` is 0 if the model does not support tree attention. `bf16` states whether the model computes in bfloat16.
    Under ZeRO-3, call it while the parameters are gathered.
    """
    if model not in _CACHE:
        _CACHE[model] = Costs(
            estimate_start_cost(model), _estimate_scores_per_token(model) if supports_trees(model, bf16) else 0
        )
    return _CACHE[model]


_CACHE: WeakKeyDictionary[torch.nn.Module, Costs] = WeakKeyDictionary()


def estimate_start_cost(model: torch.nn.Module) -> int:
    """Return the start cost of a forward pass: the number of tokens that take as long. It is lower for larger models.

    Measured on a CPU: 70 at 135M parameters, over 256 at 0.9M.
    """
    return 64 if sum(parameter.numel() for parameter in model.parameters()) > 2 * 10**7 else 256


def _estimate_scores_per_token(model: Any) -> int:
    """Return the number of attention scores that take as long as one token: half of the arithmetic estimate.

    Measured with 135M parameters on a CPU: 3,000 in rows of 256, 1,500 in rows of 1,024 and 2,048; this returns 1,536.
    """
    config = model.config.get_text_config(decoder=True)
    layers = sum(parameter.numel() for parameter in model.parameters()) - config.vocab_size * config.hidden_size
    return int(max(1, layers // (4 * config.num_hidden_layers * config.hidden_size)))


def supports_trees(model: Any, bf16: bool = False) -> bool:
    """Return True if a model supports tree attention: a token tree in one row gives the same results as its paths.

    Tests it by small forward passes, and returns False if they fail. Also returns False for sliding-window or chunked
    attention in any layer, because such models build their own masks, and for bidirectional attention in images.
    """
    if has_vision(model.config) and (vision := get_vision(model)) and vision.is_bidirectional:
        return False
    config = model.config.get_text_config(decoder=True)
    window = getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if window or getattr(config, "attention_chunk_size", None) or kinds != {"full_attention"}:
        return False
    try:
        with torch.no_grad(), torch.autocast(next(model.parameters()).device.type, torch.bfloat16, enabled=bf16):
            return _measure_deviation(model) < MAX_DEVIATION
    except Exception:  # noqa: BLE001 a model of an unknown kind may refuse a mask in any way
        return False


MAX_DEVIATION = 0.25
"""Maximum of `_measure_deviation` for models that support trees."""


def _measure_deviation(model: Any) -> float:
    """Return the deviation of a path's last hidden state in a token tree from that of the path alone.

    It is 1 if the model lets the path attend to its neighbour; rounding gives 1e-5.
    """
    trunk, first, second = [0, 1, 2, 3], [1, 2, 3, 1, 2, 3], [3, 2, 1]
    streams = []
    for ids in (trunk + first, trunk + second, trunk + first + second):
        streams.append(Stream())
        streams[-1].observe(ids[:-1])
        streams[-1].append_sampled(ids[-1:], [0.0], 0)

    def last_state(plan: Pass) -> torch.Tensor:
        batch = build_batch(streams, [1.0] * len(streams), plan).to(next(model.parameters()).device)
        return compute_hidden_states(model.base_model, batch)[-1].float()

    alone, chain = (last_state(Pass.of((i,), (len(streams[i]),))) for i in (1, 2))
    in_tree = last_state(Pass((Row((0, 1), len(streams[2])),), 0))
    return float((in_tree - alone).norm() / (chain - alone).norm())
