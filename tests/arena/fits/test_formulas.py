"""Memory formulas against numbers worked by hand and torch's saved tensors."""

import subprocess
import sys
from typing import Any

import pytest
import torch

from agents.precision import Precision
from arena.fits import formulas as f
from arena.fits.formulas import ComputeConfig, LearningWorkload, PlayWorkload, Shape

# Embedding 10 × 4 = 40, tied. A layer: queries 4 × 4, keys and values 4 × 2 each, output 4 × 4, gate, up, down 3 × 24:
# 16 + 16 + 16 + 72 = 120 weights and two norms of 4; a last norm. 40 + 2 × 128 + 4 = 300.
TINY = Shape(
    layers=2, width=4, inner=6, heads=2, kv_heads=1, head_width=2, vocabulary=10, parameters=300, linear=240,
    edges=2 * (8 + 6 + 6 + 8 + 10 + 10 + 10), tied=True,
)  # fmt: skip
FP32, BF16, TRUE = (ComputeConfig(precision) for precision in Precision)


def test_weights_by_hand() -> None:
    assert (TINY.head, TINY.other_weights, TINY.bf16_bytes) == (40, 60, 560)
    assert f.estimate_frozen_weights(TINY, FP32) == 4 * 300
    assert f.estimate_frozen_weights(TINY, BF16) == 2 * 280 + 4 * 60, "the tied head is a copy beside the embedding"
    assert f.estimate_frozen_weights(TINY, TRUE) == 2 * 280 + 2 * 60
    assert f.count_adapter_weights(TINY, 3) == 3 * 116


def test_loading_by_hand() -> None:
    def peak(config: ComputeConfig, file_bytes: int, frozen: bool = True) -> int:
        return f.estimate_loading(TINY, config, file_bytes, frozen)["weights while loading"]

    unpacked, gpu = ComputeConfig(Precision.BF16, packs=False), ComputeConfig(Precision.BF16, gpu=True)
    assert peak(FP32, 1200) == 1200 + 1200, "file and copy"
    assert peak(BF16, 1200) == 1200 + 1200, "more than the packed layers, 560 and 160"
    assert peak(BF16, 600) == 600 + 560 + 160, "copy in bfloat16, packed layers, head twice"
    assert peak(TRUE, 1200) == 600 + 1200
    assert peak(unpacked, 600) == peak(gpu, 600) == 600 + 600
    assert peak(unpacked, 1000) == 1200 + 1000, "not all of it can be bfloat16"
    assert peak(unpacked, 600, frozen=False) == 1200 + 600, "what learns is float32"
    assert peak(BF16, 600, frozen=False) == 1200 + 560 + 160


def test_play_by_hand() -> None:
    assert f.estimate_cache_per_token(TINY, FP32) == 2 * 2 * 1 * 2 * 4 and f.estimate_cache_per_token(TINY, BF16) == 16
    parts = f.estimate_play_buffers(TINY, FP32, PlayWorkload(rows=4, streams=8, context=10, fresh=5))
    assert parts["attention caches"] == 8 * 10 * 32 + 7 * 4 * 10 * 32 // 4
    assert parts["reading new tokens"] == 4 * 5 * (12 * 6 + 12 * 4)
    assert parts["sampling"] == 4 * 10 * 24 and parts["compiled products"] == 0
    capped = f.estimate_play_buffers(TINY, FP32, PlayWorkload(rows=4, streams=8, context=10, fresh=5, cache_bytes=100))
    assert capped["attention caches"] == 100 + 2240, "engine.cache_mb bounds what is kept"
    assert f.estimate_play(TINY, FP32, PlayWorkload(1, 1, 1, 1))["weights"] == 1200


def test_learning_all_weights_by_hand() -> None:
    parts = f.estimate_update(TINY, FP32, LearningWorkload(tokens=100, sampled=50, learners=2, reference=True))
    assert parts["weights"] == 2 * 1200 and parts["gradients"] == 1200 and parts["optimiser"] == 2 * 2400
    assert parts["reference"] == 2400 and parts["bfloat16 copies"] == 0
    assert parts["activations"] == 2 * 100 * 2 * 4 * (24 + 24 + 8 + 4)
    assert parts["logits"] == 2 * 2 * 50 * 10 * 4
    assert f.estimate_update(TINY, BF16, LearningWorkload(tokens=100, sampled=50))["bfloat16 copies"] == 560
    true = f.estimate_update(TINY, TRUE, LearningWorkload(tokens=100, sampled=50))
    assert (true["weights"], true["gradients"], true["optimiser"]) == (600, 1800, 3600), "float32 masters and sums"
    gpu = f.estimate_update(TINY, ComputeConfig(Precision.FP32, gpu=True), LearningWorkload(tokens=100, sampled=50))
    assert gpu["activations"] == parts["activations"] // 2


def test_learning_adapters_by_hand() -> None:
    parts = f.estimate_update(TINY, BF16, LearningWorkload(tokens=100, sampled=50, learners=2, rank=3))
    assert parts["weights"] == (560 + 240) + 560 + 2 * 6 * 348, "the base, its layers as they play, the adapters"
    assert parts["gradients"] == 4 * 348 and parts["optimiser"] == 2 * 8 * 348 and parts["reference"] == 0
    gpu = f.estimate_update(
        TINY, ComputeConfig(Precision.BF16, gpu=True), LearningWorkload(tokens=100, sampled=50, learners=2, rank=3)
    )
    assert gpu["weights"] == parts["weights"] - 560


def test_checkpointing_keeps_inputs_and_one_layer() -> None:
    without = LearningWorkload(tokens=100, sampled=50)
    with_checkpointing = LearningWorkload(tokens=100, sampled=50, checkpointing=True)
    assert (
        f.estimate_activations(TINY, FP32, with_checkpointing)
        == 100 * (2 * 4 * 4 + 240)
        < f.estimate_activations(TINY, FP32, without)
    )


def test_play_between_updates_holds_the_optimiser_but_no_gradients() -> None:
    parts = f.estimate_play_between_updates(
        TINY, FP32, LearningWorkload(tokens=100, sampled=50), PlayWorkload(4, 8, 10, 5)
    )
    assert parts["optimiser"] == 2400 and parts["gradients"] == 0 and parts["attention caches"] > 0


# -- beside torch ---------------------------------------------------------------------------------------------

SIZES = {
    "hidden_size": 96, "intermediate_size": 352, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
    "vocab_size": 500, "tie_word_embeddings": True,
}  # fmt: skip
ROWS, LONG = 4, 50


WAYS: list[tuple[str, int | None]] = [
    ("fp32", None), ("bf16", None), ("bf16-true", None), ("fp32", 8), ("bf16", 8)
]  # fmt: skip


@pytest.fixture(scope="module")
def measured_bytes() -> list[float]:
    """Return the bytes that a layer keeps per token, for each way of learning, measured in a fresh process."""
    result = subprocess.run([sys.executable, "-m", __name__], capture_output=True, text=True, check=True)
    return [float(line) for line in result.stdout.splitlines()[-len(WAYS) :]]


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "rank"), WAYS)
def test_bytes_per_token_and_layer_equal_those_of_torch(
    precision: str, rank: int | None, measured_bytes: list[float]
) -> None:
    """The formula omits only small tensors: means, masks and an adapter's inner vectors."""
    shape = Shape(
        layers=1,
        width=96,
        inner=352,
        heads=6,
        kv_heads=2,
        head_width=16,
        vocabulary=500,
        parameters=0,
        linear=0,
        edges=0,
        tied=True,
    )
    workload = LearningWorkload(tokens=ROWS * LONG, sampled=ROWS * LONG, rank=rank)
    bytes_per_token = measured_bytes[WAYS.index((precision, rank))]
    assert bytes_per_token == pytest.approx(
        f.estimate_activations_per_token(shape, ComputeConfig(Precision(precision)), workload), rel=0.04
    )


def measure_bytes_per_token(precision: str, rank: int | None) -> float:
    one_layer, two_layers = (measure_activation_bytes(layers, Precision(precision), rank) for layers in (1, 2))
    return (two_layers - one_layer) / (ROWS * LONG)


def measure_activation_bytes(layers: int, precision: Precision, rank: int | None) -> int:
    """Bytes of activations that a forward pass of a random model keeps."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from agents import attention
    from agents.adapter import create_adapter
    from agents.adapter_config import AdapterSpec
    from agents.bf16 import Bf16Linear, convert_to_bf16
    from agents.scoring import StreamBatch, StreamScorer

    config = LlamaConfig(num_hidden_layers=layers, **SIZES)
    config._attn_implementation = attention.NAME
    model: Any = LlamaForCausalLM(config)
    if precision.has_bf16_weights:
        model = model.bfloat16()
    if rank is not None:
        model.requires_grad_(False)
        base = convert_to_bf16(model, packed=False) if precision.uses_bf16_products else model
        model = create_adapter(base, AdapterSpec(rank=rank), 0)
    many, rows = ROWS * (LONG - 1), torch.arange(ROWS).repeat_interleave(LONG - 1)
    batch = StreamBatch(
        index=tuple(range(ROWS)), prefix=torch.zeros(0, dtype=torch.long),
        suffix=torch.ones((ROWS, LONG), dtype=torch.long), lengths=torch.full((ROWS,), LONG), owners=rows, rows=rows,
        columns=torch.arange(LONG - 1).repeat(ROWS), targets=torch.ones(many, dtype=torch.long),
        temperatures=torch.ones(many),
    )  # fmt: skip
    weights = [*model.parameters(), *(layer.weight for layer in model.modules() if isinstance(layer, Bf16Linear))]
    weight_storages = {weight.untyped_storage().data_ptr() for weight in weights}
    sizes = {weight.shape for weight in weights} | {weight.t().shape for weight in weights if weight.dim() == 2}
    saved_tensors: dict[int, torch.Tensor] = {}  # held, so that no storage takes another's config

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if (
            tensor.untyped_storage().data_ptr() not in weight_storages and tensor.shape not in sizes
        ):  # bfloat16 copies of weights
            saved_tensors[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    scorer = StreamScorer(model, precision.uses_bf16_products)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        scorer(batch)
    return sum(tensor.untyped_storage().nbytes() for tensor in saved_tensors.values())


if __name__ == "__main__":
    print(*(measure_bytes_per_token(*way) for way in WAYS), sep="\n")
