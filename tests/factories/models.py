"""Small models with random weights, and comparisons of their weights."""

from pathlib import Path
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
from agents.policy import AdapterOnBase
from agents.published import ModuleWeights

VOCABULARY = 24


def make_tiny_llama(seed: int = 0, *, vocabulary: int = VOCABULARY) -> LlamaForCausalLM:
    """Return a random float32 Llama of two layers with clearly unequal token probabilities."""
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
    """Return a small random model of an architecture in `CONFIGS`."""
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
    """Return a random float64 model of `STEPPED`, whose differences are not due to rounding."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(STEPPED[name]).eval().double()
        for parameter_name, parameter in model.named_parameters():
            torch.nn.init.normal_(parameter, 1.0 if "norm" in parameter_name else 0.0, 0.3)
    return model


def randomise_adapter(model: Any, seed: int = 1) -> Any:
    """Draw the B matrices of the model's adapter at random, so that it has an effect; return the model."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, layer in low_rank_layers(model):
            layer.b.copy_(torch.empty(layer.b.shape).normal_(std=0.3, generator=generator))
    return model


def wrap_adapter(adapter: Any, base: Any, folder: Path = Path("there"), name: str = "base") -> ModuleWeights:
    """Return an adapter under training on `base` as published weights."""
    return ModuleWeights(adapter, AdapterOnBase(adapter, base, folder, name))


def copy_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return CPU copies of all parameters by name."""
    return {name: p.detach().cpu().clone() for name, p in model.named_parameters()}


def are_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Whether two models' parameters are bit-equal."""
    return all(torch.equal(value, second[name]) for name, value in first.items())


def assert_nearly_equal(model: torch.nn.Module, other: torch.nn.Module, lr: float) -> None:
    """Assert that parameters are equal up to rounding, which Adam amplifies for tiny gradients."""
    reference = copy_weights(other)
    steps = torch.cat([(p - reference[n]).abs().flatten() for n, p in copy_weights(model).items()]) / lr
    assert steps.mean() < 0.01 and (steps > 0.1).float().mean() < 0.01, f"{steps.mean()=} {steps.max()=}"
