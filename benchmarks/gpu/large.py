"""Large models on one device: time and memory of an update and of play, and the memory that Arena estimates.

`qwen2-3b` trains all its weights in bfloat16, `qwen2-7b` an adapter on a frozen base.
"""

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from learners import make_lessons, make_sample
from models import build_model, make_request
from rates import read_peak_memory, reset_peak_memory
from sheet import Sheet
from size import Size
from timing import time_call

from agents.adapter import create_adapter
from agents.adapter_config import AdapterSpec
from agents.bf16 import convert_to_bf16
from agents.engines.in_process import InProcessEngine
from agents.policy import AdapterOnBase
from agents.precision import Precision
from agents.published import ModuleWeights
from arena.cli.loop import wait
from arena.config.experiment import LearnSpec
from arena.fits.formulas import ComputeConfig, LearningWorkload, estimate_update
from arena.fits.shape import count_shape
from arena.learn.trainer import PolicyTrainer

WHAT = (
    "learn: one update of two steps by PolicyTrainer, lr 0, half of the tokens sampled; tokens/s of all streams; the "
    "first update is not timed. play: a batch of replies of 32 tokens, caches empty, prefill included. memory: torch's "
    "peak on the device; estimate: arena.fits.formulas.estimate_update without the parts that are not on the device"
)
NOT_ON_DEVICE = ("libraries", "compiled products")
"""Parts of the estimate that are not on the GPU."""
TOLERANCE = 0.25
"""Accepted relative error of the estimate. Its constants were fitted on a CPU to models of up to 0.5B."""
BUDGET = 4096
"""Token budget of a pass, padding included."""


def measure_large(sheet: Sheet, size: Size, device: torch.device, name: str) -> None:
    """Measure one model while it plays, learns, and plays again, as in a run."""
    sheet.note("what", WHAT)
    has_adapter, count, length = name not in size.fully_trained, size.update_shape[0] // 2, 4 * size.context
    precision = Precision.BF16 if has_adapter else Precision.BF16_TRUE
    model, source = build_model(name, device, dtype=torch.bfloat16 if precision.has_bf16_weights else torch.float32)
    sheet.note("weights", source)
    settings, lessons = model.config.to_dict(), make_lessons(model, True, count, length)
    weights = make_adapter(model) if has_adapter else ModuleWeights(model)
    rule = LearnSpec(
        lr=0.0,
        minibatches=2,
        token_budget=BUDGET,
        regularisers={},
        gate_tolerance=1e9,
        zero_stage=0 if has_adapter else 2,
    )
    trainer, rng = PolicyTrainer("p", weights.module, rule, True, weights.base), np.random.default_rng(0)
    samples, rows = [make_sample(lesson) for lesson in lessons], size.batch_sizes[-1]
    engine = InProcessEngine(precision, max_batch=rows)
    del model, lessons
    play_seconds, learned = _time_play(engine, weights, size), []
    for _ in range(1 + size.rounds):
        wait(engine.release("p"))
        reset_peak_memory()
        learned.append(time_call(lambda: trainer.carry_out(trainer.plan(samples, rng)))[0])
    memory, played_again = read_peak_memory(), _time_play(engine, weights, size)
    rate, play_rate = count * length / median(learned[1:]), rows * size.decoded_tokens / played_again
    estimate = _estimate_memory(settings, name, precision, device, AdapterSpec().rank if has_adapter else None)
    sheet.note("streams", {"learned": [count, length], "played": [rows, size.context, size.decoded_tokens]})
    sheet.note("figures", {"learn_seconds": learned, "play_seconds": [play_seconds, played_again], "memory_gb": memory})
    sheet.note("estimate_gb", estimate)
    method = f"an adapter of rank {AdapterSpec().rank}" if has_adapter else "all weights, bf16-true"
    speeds = f"learns {rate:,.0f} tok/s, {rows} in flight write {play_rate:,.0f} tok/s"
    sheet.claim(f"{name}, {method}", speeds)
    ratio = sum(estimate.values()) / memory["allocated"] if memory else None
    comparison = f"{sum(estimate.values()):.1f} GB estimated"
    comparison += f", {memory['allocated']:.1f} GB measured, ratio {ratio:.2f}" if ratio else ", no device to watch"
    sheet.claim(f"{name}: memory of an update", comparison, abs(ratio - 1) <= TOLERANCE if ratio else None)


def make_adapter(model: Any) -> ModuleWeights:
    """Return a new adapter on the frozen model, whose linear layers become bfloat16, as in `agents.policy.Bases`."""
    base = convert_to_bf16(model.requires_grad_(False), packed=False)
    adapter = create_adapter(base, AdapterSpec(), 0)
    return ModuleWeights(adapter, AdapterOnBase(adapter, base, Path("made-up"), "made-up"))


def _time_play(engine: InProcessEngine, weights: ModuleWeights, size: Size) -> float:
    """Return the seconds of the second of two batches of replies. Publishing empties the caches before each."""
    rows, rng, vocabulary = size.batch_sizes[-1], np.random.default_rng(0), weights.module.config.vocab_size
    contexts = rng.integers(vocabulary, size=(rows, size.context)).tolist()
    seconds = 0.0
    for version in (1, 2):
        wait(engine.publish("p", version, weights))
        requests = [make_request(ids, f"{i}", size.decoded_tokens, (0, i)) for i, ids in enumerate(contexts)]
        seconds = time_call(lambda: wait(engine.generate(requests)))[0]  # noqa: B023 called at once
    return seconds


def _estimate_memory(
    settings: dict[str, Any], name: str, precision: Precision, device: torch.device, rank: int | None
) -> dict[str, float]:
    """Return the estimated GB on the device by part."""
    config = ComputeConfig(precision, gpu=device.type == "cuda")
    parts = estimate_update(
        count_shape(settings, name), config, LearningWorkload(tokens=BUDGET, sampled=BUDGET // 2, rank=rank)
    )
    return {part: size / 1e9 for part, size in parts.items() if part not in NOT_ON_DEVICE}
