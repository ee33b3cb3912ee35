"""The models that are measured, and the streams they are measured on."""

from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, Qwen2Config

from agents.engines.base import Request
from agents.engines.in_process import InProcessEngine
from agents.precision import Precision
from agents.published import ModuleWeights
from agents.stream import Stream
from agents.weights import DEFAULT, list_models, load_model, resolve
from arena.cli.loop import wait


def _qwen2(width: int, inner: int, layers: int, heads: int, kv_heads: int, **more: Any) -> Qwen2Config:
    """Sizes of a published Qwen2.5."""
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
    "qwen2-0.5b": _qwen2(896, 4864, layers=24, heads=14, kv_heads=2),
    "qwen2-1.5b": _qwen2(1536, 8960, layers=28, heads=12, kv_heads=2),
    "qwen2-3b": _qwen2(2048, 11008, layers=36, heads=16, kv_heads=2),
    "qwen2-7b": _qwen2(3584, 18944, layers=28, heads=28, kv_heads=4, vocab_size=152064, tie_word_embeddings=False),
}


def smollm2_at_hand() -> bool:
    """Return True if SmolLM2's own weights are in ARENA_HOME; nothing is fetched."""
    return any(info.name == DEFAULT and info.state == "ready" for info in list_models())


def build(name: str, device: torch.device, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[Any, str]:
    """A model on the device, and where its weights come from."""
    if name == "nano":
        return load_model(resolve("nano"), dtype).to(device), "made by agents.nano"
    if name == "smollm2-135m" and smollm2_at_hand():
        return load_model(resolve(DEFAULT)).to(device), "its own weights"
    torch.manual_seed(seed)
    with device:
        model = AutoModelForCausalLM.from_config(SHAPES[name], attn_implementation="sdpa", dtype=dtype)
    return model.eval(), f"random weights of its shape, seed {seed}"


def reply_to(
    ids: list[int], key: str, most: int, seed: tuple[int, ...], temperature: float = 1.0, vocabulary: int = 0
) -> Any:
    """A request; with a vocabulary one id in 24 ends the reply, so that rows end one by one."""
    stops = frozenset(range(0, vocabulary, 24))
    return Request(
        policy="p",
        ids=tuple(ids),
        key=key,
        max_tokens=most,
        temperature=temperature,
        top_p=1.0,
        top_k=0,
        stop_ids=stops,
        seed=seed,
    )


def conversations(model: Any, bf16: bool, count: int, most: int, seed: int = 0) -> tuple[list[Stream], list[float]]:
    """Two turns each through the engine, all at once, and the temperatures they were sampled at.

    They share an opening, go on at unequal length and end one by one: caches, padding and compaction all take part.
    """
    rng, vocabulary = np.random.default_rng(seed), model.config.vocab_size
    engine = InProcessEngine(Precision.BF16 if bf16 else Precision.FP32)
    wait(engine.publish("p", 1, ModuleWeights(model)))
    opening = rng.integers(vocabulary, size=24).tolist()
    streams, temperatures = [Stream() for _ in range(count)], [1.0 if i % 2 else 0.7 for i in range(count)]
    for turn in range(2):
        for stream in streams:
            own = rng.integers(vocabulary, size=int(rng.integers(2, 40))).tolist()
            stream.observe(own if turn else [*opening, *own])
        requests = [
            reply_to(stream.ids, f"{i}", most, (seed, turn, i), temperatures[i], vocabulary)
            for i, stream in enumerate(streams)
        ]
        for stream, said in zip(streams, wait(engine.generate(requests)), strict=True):
            stream.append_sampled(said.ids, said.logprobs, turn)
    return streams, temperatures
