"""Models of users' sizes on one device: what an update and play take beside what `arena doctor` estimates.

`qwen2-3b` learns with all its weights in bfloat16, `qwen2-7b` through an adapter on a frozen base.
"""

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from learners import made_up_lessons, sample_of
from models import build, reply_to
from rates import peak_memory, reset_peak_memory
from sheet import Sheet
from size import Size
from timing import seconds_of

from agents.adapter import adapted
from agents.adapter_config import AdapterSpec
from agents.engines.in_process import InProcessEngine
from agents.half import half
from agents.policy import OnBase
from agents.precision import Precision
from agents.published import ModuleWeights
from arena.cli.loop import wait
from arena.config.experiment import LearnSpec
from arena.fits.formulas import LearningWorkload, Place, estimate_update
from arena.fits.shape import count_shape
from arena.learn.trainer import PolicyTrainer

WHAT = (
    "learn: one update of two steps by PolicyTrainer, lr 0, half of the tokens sampled; tokens/s of all streams; the "
    "first update is not timed. play: replies of 32 tokens in company, caches empty, prefill included. memory: most "
    "that torch held on the device; estimate: arena.fits.formulas.estimate_update without the libraries, which lie "
    "elsewhere"
)
ELSEWHERE = ("libraries", "compiled products")
"""Parts of the estimate that are no memory of a GPU."""
WITHIN = 0.25
"""Share by which estimate and measurement may differ: the constants were fitted on a CPU, to models of .5B at most."""
BUDGET = 4096
"""Padded tokens of a pass."""


def large(sheet: Sheet, size: Size, device: torch.device, name: str) -> None:
    """One model, as a run holds it: it plays, learns, and plays again."""
    sheet.note("what", WHAT)
    on_adapter, count, length = name not in size.whole, size.trained[0] // 2, 4 * size.context
    precision = Precision.BF16 if on_adapter else Precision.BF16_TRUE
    model, source = build(name, device, dtype=torch.bfloat16 if precision.bf16_weights else torch.float32)
    sheet.note("weights", source)
    settings, lessons = model.config.to_dict(), made_up_lessons(model, True, count, length)
    weights = on_base(model) if on_adapter else ModuleWeights(model)
    rule = LearnSpec(
        lr=0.0,
        minibatches=2,
        token_budget=BUDGET,
        regularisers={},
        gate_tolerance=1e9,
        zero_stage=0 if on_adapter else 2,
    )
    trainer, rng = PolicyTrainer("p", weights.module, rule, True, weights.base), np.random.default_rng(0)
    samples, engine = [sample_of(lesson) for lesson in lessons], InProcessEngine(precision, max_batch=size.rows[-1])
    del model, lessons
    played, learned = _play(engine, weights, size), []
    for _ in range(1 + size.rounds):
        wait(engine.release("p"))
        reset_peak_memory()
        learned.append(seconds_of(lambda: trainer.carry_out(trainer.plan(samples, rng)))[0])
    memory, played_again = peak_memory(), _play(engine, weights, size)
    rate, play_rate = count * length / median(learned[1:]), size.rows[-1] * size.decoded / played_again
    estimate = _estimate(settings, name, precision, device, AdapterSpec().rank if on_adapter else None)
    sheet.note("streams", {"learned": [count, length], "played": [size.rows[-1], size.context, size.decoded]})
    sheet.note("figures", {"learn_seconds": learned, "play_seconds": [played, played_again], "memory_gb": memory})
    sheet.note("estimate_gb", estimate)
    how = f"an adapter of rank {AdapterSpec().rank}" if on_adapter else "all weights, bf16-true"
    told = f"learns {rate:,.0f} tok/s, {size.rows[-1]} in flight write {play_rate:,.0f} tok/s"
    sheet.claim(f"{name}, {how}", told)
    ratio = sum(estimate.values()) / memory["allocated"] if memory else None
    said = f"{sum(estimate.values()):.1f} GB estimated"
    said += f", {memory['allocated']:.1f} GB measured, ratio {ratio:.2f}" if ratio else ", no device to watch"
    sheet.claim(f"{name}: memory of an update", said, abs(ratio - 1) <= WITHIN if ratio else None)


def on_base(model: Any) -> ModuleWeights:
    """A new adapter on the frozen model, its linear layers in bfloat16, as `agents.policy.Bases` holds it."""
    base = half(model.requires_grad_(False), packed=False)
    adapter = adapted(base, AdapterSpec(), 0)
    return ModuleWeights(adapter, OnBase(adapter, base, Path("made-up"), "made-up"))


def _play(engine: InProcessEngine, weights: ModuleWeights, size: Size) -> float:
    """Seconds of a batch of replies, contexts read again; the second of two batches is timed."""
    rows, rng, vocabulary = size.rows[-1], np.random.default_rng(0), weights.module.config.vocab_size
    contexts = rng.integers(vocabulary, size=(rows, size.context)).tolist()
    seconds = 0.0
    for version in (1, 2):
        wait(engine.publish("p", version, weights))
        requests = [reply_to(ids, f"{i}", size.decoded, (0, i)) for i, ids in enumerate(contexts)]
        seconds = seconds_of(lambda: wait(engine.generate(requests)))[0]  # noqa: B023 called at once
    return seconds


def _estimate(
    settings: dict[str, Any], name: str, precision: Precision, device: torch.device, rank: int | None
) -> dict[str, float]:
    """GB on the device by part."""
    place = Place(precision, gpu=device.type == "cuda")
    parts = estimate_update(
        count_shape(settings, name), place, LearningWorkload(tokens=BUDGET, sampled=BUDGET // 2, rank=rank)
    )
    return {part: size / 1e9 for part, size in parts.items() if part not in ELSEWHERE}
