"""Small models with random weights, and what tests compare of them."""

from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from agents.adapter import low_rank_layers

VOCABULARY = 24


def make_tiny_llama(seed: int = 0, *, vocabulary: int = VOCABULARY) -> LlamaForCausalLM:
    """A Llama of two layers, in float32, whose random weights are wide enough to prefer some tokens to others."""
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, initializer_range=0.3, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "initializer_range": 0.4,
}  # fmt: skip
CONFIGS = {
    "tied": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "untied": LlamaConfig(**SIZES, tie_word_embeddings=False),
    "biases": Qwen2Config(**SIZES),
    "capped logits": Gemma2Config(**SIZES),
    "no linear layers": GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, initializer_range=0.4),
    "experts": Qwen3MoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8),
}


def make_model(name: str) -> Any:
    """Small random weights of the architecture of this name in `CONFIGS`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(CONFIGS[name]).eval()


GROUPED: dict[str, Any] = SIZES | {"num_attention_heads": 4, "num_key_value_heads": 2}
STEPPED: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**GROUPED),
    "llama, every head its own key": LlamaConfig(**GROUPED | {"num_key_value_heads": 4}),
    "llama, one key for all": LlamaConfig(**GROUPED | {"num_key_value_heads": 1}),
    "llama with biases": LlamaConfig(**GROUPED, attention_bias=True, mlp_bias=True),
    "llama with stretched positions": LlamaConfig(
        **GROUPED,
        rope_parameters={
            "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ),
    "mistral": MistralConfig(**GROUPED, sliding_window=None),
    "qwen2": Qwen2Config(**GROUPED),
    "qwen3": Qwen3Config(**GROUPED),
}  # fmt: skip
"""Models whose decoding steps `agents.engines.step` computes."""


def make_float64_model(name: str) -> Any:
    """A model with random weights, biases and norms, in float64: what is left of a difference is no rounding."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(STEPPED[name]).eval().double()
        for place, parameter in model.named_parameters():
            torch.nn.init.normal_(parameter, 1.0 if "norm" in place else 0.0, 0.3)
    return model


def randomise_adapter(model: Any, seed: int = 1) -> Any:
    """The same model, the B of all its low-rank layers drawn at random: an adapter that changes what it computes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, layer in low_rank_layers(model):
            layer.b.copy_(torch.empty(layer.b.shape).normal_(std=0.3, generator=generator))
    return model


def copy_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copies of all parameters by name, where tests compute."""
    return {name: p.detach().cpu().clone() for name, p in model.named_parameters()}


def are_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether two models' parameters are equal bit by bit."""
    return all(torch.equal(value, other[name]) for name, value in one.items())


def assert_nearly_equal(model: torch.nn.Module, other: torch.nn.Module, lr: float) -> None:
    """Assert that parameters are equal up to what rounding does to Adam, which enlarges gradients of nearly nothing."""
    theirs = copy_weights(other)
    off = torch.cat([(p - theirs[n]).abs().flatten() for n, p in copy_weights(model).items()]) / lr
    assert off.mean() < 0.01 and (off > 0.1).float().mean() < 0.01, f"{off.mean()=} {off.max()=}"
