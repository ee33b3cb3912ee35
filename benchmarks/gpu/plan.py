"""Larger parts: a complete run, a comparison with TRL, two ranks on one device, decoding, long updates, vision.

Figures are written as they are measured. Runs are in `runs/gpu-…` of the working directory; the next call resumes them.
"""

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from large import make_adapter
from learners import make_lessons, make_sample
from models import build_model, make_request
from rates import measure_copy_rate, measure_peak_flops, prepare_model, read_peak_memory, reset_peak_memory
from sheet import Sheet
from size import Size
from timing import time_call

from agents.engines.in_process import InProcessEngine
from agents.precision import Precision
from agents.published import ModuleWeights
from arena.cli.loop import wait
from arena.config.experiment import LearnSpec

CODER = "ARENA_QWEN"
"""Environment variable with the folder of Qwen2.5-Coder-0.5B-Instruct (benchmarks/qwen.py)."""
SHUTDOWN_SECONDS = 25.0
"""Time for a run to end after an interrupt."""
MAX_DIFFERENCE = 1e-5
"""Maximum difference of a weight between one rank and two."""
ADVANTAGE_SCALE = 0.01
"""Factor on advantages. Adam divides larger gradients by their own size, which would hide a wrong scale."""


def run_flagship(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Run the flagship recipe with a real model, and record its payoff against the panel before and after."""
    coder = os.environ.get(CODER)
    if size.flagship == "negotiation" and coder is None:
        sheet.skip("Qwen2.5-Coder-0.5B-Instruct", f"{CODER} names no folder: SmolLM2 instead")
    model = [f"policies.shared.model={coder}"] if size.flagship == "negotiation" and coder else []
    folder = _run_recipe(sheet, size.flagship, [*model, *size.flagship_settings], "flagship")
    payoffs = _read_payoffs(folder)
    rows = _read_metrics(folder)
    sheet.note("iterations", rows)
    if len(payoffs) > 1:
        text = f"{payoffs[0]:.2f} before, {payoffs[-1]:.2f} after {len(rows)} iterations"
        sheet.claim(f"{size.flagship}: payoff against the panel", text)
    else:
        sheet.skip(f"{size.flagship}: payoff against the panel", f"evaluated {len(payoffs)} times: run this part again")
    for name in ("play", "learn"):
        sheet.claim(
            f"seconds to {name}, median", f"{median(row['seconds'][name] for row in rows):.2f}" if rows else "none"
        )


def run_vision(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Train a small vision policy to point at named objects."""
    folder = _run_recipe(sheet, "mgpo-nano", size.vision_settings, "vision")
    stages = sorted(path for path in folder.rglob("metrics.jsonl"))
    counts = {str(path.parent.relative_to(folder)): path.read_text().count("\n") for path in stages}
    sheet.note("iterations by stage", counts)
    sheet.claim("mgpo-nano: iterations", ", ".join(f"{name} {count}" for name, count in counts.items()) or "none yet")


def _run_recipe(sheet: Sheet, recipe: str, settings: Any, label: str) -> Path:
    """Start or resume a run in its own process for as long as the part may take, and return the run's folder."""
    folder = Path("runs") / f"gpu-{label}-{recipe}"
    if (folder / "config.yaml").exists():
        command = ["resume", str(folder)]
    else:
        command = ["run", "selfplay", "--recipe", recipe, "--out", str(folder)]
        command += [word for setting in settings for word in ("--set", setting)]
    process = subprocess.Popen([sys.executable, "-m", "arena", *command, "--json"], stdout=subprocess.DEVNULL)
    try:
        code = process.wait(max(1.0, sheet.seconds_left - SHUTDOWN_SECONDS))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait(SHUTDOWN_SECONDS)
        sheet.note("ended", "by the part's time; the next call resumes it")
        return folder
    if code:
        raise RuntimeError(f"arena {' '.join(command[:3])} ended with exit code {code}")
    sheet.note("ended", "complete")
    return folder


def _read_metrics(folder: Path) -> list[dict[str, Any]]:
    from arena.store.reader import RunReader

    return list(RunReader(folder).metrics()) if (folder / "metrics.jsonl").exists() else []


def _read_payoffs(folder: Path) -> list[float]:
    """Return the mean payoffs against the panel, one per evaluation."""
    from arena.store.evaluations import read_evaluations

    def mean(evaluation: Any) -> float:
        payoffs = [value for cell in evaluation.cells for value in cell.payoff if value is not None]
        return float(np.mean(payoffs))

    return [mean(evaluation) for evaluation in read_evaluations(folder)] if folder.exists() else []


def compare_with_trl(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Time an iteration and TRL's step of as many tokens: with one prompt for all replies, then one per pair."""
    if importlib.util.find_spec("trl") is None:
        raise ImportError("No module named 'trl'")
    from against_trl import judge_ratio, measure

    rows, tokens, rounds = size.trl_shape
    for name, group in (("one prompt", rows), ("a prompt for each pair", 2)):
        if sheet.seconds_left < 20.0:
            return sheet.skip(f"compared with TRL, {name}", "the part's time was up")
        found = measure(0, rows, tokens, rounds, ["autocast"], group)
        sheet.note(name, found)
        seconds = found["settings"]["autocast"]["seconds"]
        text = f"Arena {seconds['arena']:.2f} s, TRL {seconds['trl']:.2f} s"
        sheet.claim(
            f"compared with TRL, {name}, {rows} × {tokens} tokens",
            f"{text}, ratio {judge_ratio(found['settings'])['ratio']:.2f}",
        )


def check_two_ranks(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Check that two ranks on this device, connected by gloo, learn the same as one process."""
    if importlib.util.find_spec("ray") is None:
        raise ImportError("No module named 'ray'")
    lessons = make_lessons(build_model("nano", device)[0], False, 12, 64)
    samples = [make_sample(replace(each, advantages=each.advantages * ADVANTAGE_SCALE)) for each in lessons]
    seconds, two_ranks = time_call(partial(asyncio.run, _train_two_ranks(samples, device)))
    one_rank = _train_one_rank(samples)
    initial = build_model("nano", device)[0].state_dict()
    difference, change = (
        max(float((other[name].cpu() - value.cpu()).abs().max()) for name, value in one_rank.items())
        for other in (two_ranks, initial)
    )
    sheet.note("seconds with the start of Ray", seconds)
    text = f"weights differ by {difference:.2g}, and from the initial ones by {change:.2g}"
    sheet.claim("two ranks on one device = one rank, after 3 updates", text, difference < MAX_DIFFERENCE < change)


def _make_rule() -> LearnSpec:
    return LearnSpec(lr=2e-5, token_budget=128, minibatches=2, regularisers={}, grad_clip=0.0, gate_tolerance=1e9)


def _load_policy() -> Any:
    from agents.policy import Policy
    from agents.weights import resolve

    return Policy.load("p", resolve("nano"), resolve("nano"), True, empty=True)


def _train_one_rank(samples: Any) -> dict[str, torch.Tensor]:
    from agents.policy import trainable_parameters
    from arena.learn.trainer import create_local_trainer

    trainer: Any = create_local_trainer(_load_policy(), _make_rule(), False)
    for k in range(3):
        trainer.carry_out(trainer.plan(samples, np.random.default_rng(k)))
    return {name: value.detach() for name, value in trainable_parameters(trainer.model).items()}


async def _train_two_ranks(samples: Any, device: torch.device) -> dict[str, torch.Tensor]:
    from arena.scale.cluster import open_cluster
    from arena.scale.ranks import Ranks
    from arena.scale.settings import ResourcesSpec, ScaleSpec, WorkerResources
    from arena.scale.trainer import ScaledTrainer

    share = WorkerResources(cpus=0.5, gpus=0.4 if device.type == "cuda" else 0.0)
    spec = ScaleSpec(trainers=2, engines=1, resources=ResourcesSpec(trainer=share, engine=WorkerResources(cpus=0.1)))
    async with open_cluster(spec, lambda line: None) as cluster:
        ranks = await Ranks.start([cluster.get_trainer_options(rank) for rank in range(2)], 60.0, 120.0)
        try:
            trainer = await asyncio.to_thread(ScaledTrainer, ranks, _load_policy(), _make_rule(), False)
            for k in range(3):
                await trainer.update(trainer.plan(samples, np.random.default_rng(k)))
            weights = await trainer.weights()
            return await asyncio.to_thread(dict, weights.tensors)
        finally:
            await ranks.close()


def measure_decoding(sheet: Sheet, size: Size, device: torch.device, name: str) -> None:
    """Measure the milliseconds of a model's decoding step, and the time to read its weights and caches once."""
    with prepare_model(sheet, size, device, name) as (model, _):
        rate = measure_copy_rate(device, size.matmul_width)
        sheet.note("copied_bytes_per_second", rate)
        for rows in size.decoding_rows:
            sheet.attempt(f"decode, {rows} in flight", partial(_measure_rows, sheet, size, model, rows, rate))


def _measure_rows(sheet: Sheet, size: Size, model: Any, rows: int, rate: float) -> None:
    engine, rng, version = InProcessEngine(Precision.BF16, max_batch=rows), np.random.default_rng(0), 0
    contexts = rng.integers(model.config.vocab_size, size=(rows, size.context)).tolist()

    def time_replies(new: int) -> float:
        nonlocal version
        version += 1
        wait(engine.publish("p", version, ModuleWeights(model)))
        requests = [make_request(ids, f"{i}", new, (0, i)) for i, ids in enumerate(contexts)]
        return time_call(lambda: wait(engine.generate(requests)))[0]

    reset_peak_memory()
    time_replies(size.decoded_tokens)
    memory = read_peak_memory()
    short, long = (median(time_replies(new) for _ in range(size.rounds)) for new in (1, size.decoded_tokens))
    step = max(1e-9, long - short) / (size.decoded_tokens - 1)
    limit = count_moved_bytes(model, rows, size.context + size.decoded_tokens // 2) / rate
    found = {"ms": 1000 * step, "limit_ms": 1000 * limit, "tokens_per_second": rows / step, "memory_gb": memory}
    sheet.note(f"decode, {rows} in flight", found)
    text = (
        f"{1000 * step:.2f} ms a step, {1000 * limit:.2f} by bandwidth ({limit / step:.0%}); {rows / step:,.0f} tok/s"
    )
    sheet.claim(f"decode, {rows} in flight", text)


def count_moved_bytes(model: Any, rows: int, context: int) -> float:
    """Return the bytes that a decoding step must read: bfloat16 weights, and keys and values of all rows."""
    config = model.config
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache: int = 2 * config.num_hidden_layers * config.num_key_value_heads * width * context * rows
    return float(2 * (sum(p.numel() for p in model.parameters()) + cache))


def measure_long_updates(sheet: Sheet, size: Size, device: torch.device, name: str) -> None:
    """Measure updates of many tokens, as a share of the peak rate of matrix products. Large models use an adapter."""
    has_adapter = name not in ("nano", "qwen2-0.5b")
    model, source = build_model(name, device, dtype=torch.bfloat16 if has_adapter else torch.float32)
    head = model.get_output_embeddings().weight.numel()
    body = sum(p.numel() for p in model.parameters()) - head
    peak = measure_peak_flops(device, size.matmul_width)
    sheet.note("weights", source)
    weights = make_adapter(model) if has_adapter else ModuleWeights(model)
    for tokens in size.update_tokens:
        sheet.attempt(
            f"an update of {tokens:,} tokens", partial(_measure_update, sheet, size, weights, tokens, body, head, peak)
        )


def _measure_update(
    sheet: Sheet, size: Size, weights: ModuleWeights, tokens: int, body: int, head: int, peak: float
) -> None:
    from arena.learn.trainer import PolicyTrainer

    length = min(tokens, 4 * size.context)
    lessons = make_lessons(weights.module, True, tokens // length, length)
    rule = LearnSpec(lr=0.0, minibatches=1, token_budget=min(tokens, 16384), regularisers={}, gate_tolerance=1e9)
    trainer = PolicyTrainer("p", weights.module, rule, True, weights.base)
    samples, rng = [make_sample(lesson) for lesson in lessons], np.random.default_rng(0)
    reset_peak_memory()
    times = [time_call(lambda: trainer.carry_out(trainer.plan(samples, rng)))[0] for _ in range(1 + size.rounds)]
    wall, memory = median(times[1:]), read_peak_memory()
    passes = 4.0 if weights.base else 6.0  # a frozen weight has no gradient
    sampled = sum(len(lesson.advantages) for lesson in lessons)
    share = passes * (body * tokens + head * sampled) / wall / peak
    sheet.note(f"{tokens} tokens", {"seconds": times, "share_of_peak": share, "memory_gb": memory})
    text = f"{tokens / wall:,.0f} tok/s, {share:.0%} of the peak of products"
    sheet.claim(f"an update of {tokens:,} tokens", text + (f", {memory['allocated']:.1f} GB" if memory else ""))
