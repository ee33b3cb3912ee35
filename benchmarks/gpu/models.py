"""Models for the measurements, engine requests, and sampled conversations."""

from typing import Any

import engine_requests
import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, Qwen2Config

from agents.engines.base import Request
from agents.engines.in_process import InProcessEngine
from agents.model_folder import load_model
from agents.precision import Precision
from agents.published import ModuleWeights
from agents.stream import Stream
from agents.weights import DEFAULT, list_models, resolve
from arena.cli.loop import wait


def _make_qwen2_config(width: int, inner: int, layers: int, heads: int, kv_heads: int, **more: Any) -> Qwen2Config:
    """Return the configuration of a published Qwen2.5 model with these sizes."""
    return Qwen2Config(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        **{"vocab_size": 151936, "tie_word_embeddings": True, **more},
    )


SHAPES: dict[str, PreTrainedConfig] = {
    "smollm2-135m": LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rope_theta=100000.0,
        tie_word_embeddings=True,
    ),
    "qwen2-0.5b": _make_qwen2_config(896, 4864, layers=24, heads=14, kv_heads=2),
    "qwen2-1.5b": _make_qwen2_config(1536, 8960, layers=28, heads=12, kv_heads=2),
    "qwen2-3b": _make_qwen2_config(2048, 11008, layers=36, heads=16, kv_heads=2),
    "qwen2-7b": _make_qwen2_config(
        3584, 18944, layers=28, heads=28, kv_heads=4, vocab_size=152064, tie_word_embeddings=False
    ),
}


def has_smollm2() -> bool:
    """Return whether SmolLM2's own weights are in ARENA_HOME. Downloads nothing."""
    return any(info.name == DEFAULT and info.state == "ready" for info in list_models())


def build_model(name: str, device: torch.device, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[Any, str]:
    """Return a model on the device and a description of its weights' source."""
    if name == "nano":
        return load_model(resolve("nano"), dtype).to(device), "made by agents.nano"
    if name == "smollm2-135m" and has_smollm2():
        return load_model(resolve(DEFAULT)).to(device), "its own weights"
    torch.manual_seed(seed)
    with device:
        model = AutoModelForCausalLM.from_config(SHAPES[name], attn_implementation="sdpa", dtype=dtype)
    return model.eval(), f"random weights of its shape, seed {seed}"


def make_request(
    ids: list[int], key: str, max_tokens: int, seed: tuple[int, ...], temperature: float = 1.0, vocabulary: int = 0
) -> Request:
    """Return a request for a reply. If `vocabulary` is its size, every 24th id ends the reply, so lengths differ."""
    stop_ids = frozenset(range(0, vocabulary, 24))
    return engine_requests.make_request(ids, max_tokens, key, seed=seed, temperature=temperature, stop_ids=stop_ids)


def play_conversations(
    model: Any, bf16: bool, count: int, max_tokens: int, seed: int = 0
) -> tuple[list[Stream], list[float]]:
    """Sample conversations of two turns in one batch. Returns their streams and temperatures.

    They share an opening, continue with contexts of unequal length and end one by one, so that caches, padding and
    compaction are used.
    """
    rng, vocabulary = np.random.default_rng(seed), model.config.vocab_size
    engine = InProcessEngine(Precision.BF16 if bf16 else Precision.FP32)
    wait(engine.publish("p", 1, ModuleWeights(model)))
    opening = rng.integers(vocabulary, size=24).tolist()
    streams, temperatures = [Stream() for _ in range(count)], [1.0 if i % 2 else 0.7 for i in range(count)]
    for turn in range(2):
        for stream in streams:
            new_ids = rng.integers(vocabulary, size=int(rng.integers(2, 40))).tolist()
            stream.observe(new_ids if turn else [*opening, *new_ids])
        requests = [
            make_request(stream.ids, f"{i}", max_tokens, (seed, turn, i), temperatures[i], vocabulary)
            for i, stream in enumerate(streams)
        ]
        for stream, reply in zip(streams, wait(engine.generate(requests)), strict=True):
            stream.append_sampled(reply.ids, reply.logprobs, turn)
    return streams, temperatures
