"""Speed of play and training, utilisation of the device, and peak memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from learners import OPENING, ArenaLearner, BareLearner, make_lessons
from models import build_model, make_request
from sheet import Sheet
from size import Size
from timing import time_call, time_in_turns

from agents.engines import decoding, graphs, in_process
from agents.engines.in_process import InProcessEngine
from agents.precision import Precision
from agents.published import ModuleWeights
from arena.cli.loop import wait

WHAT = (
    "bf16 matrix products over float32 weights, as with precision: bf16. decode: tokens/s after the first token of "
    "each reply, from the difference between full replies and replies of one token, caches empty, no reply ends early; "
    "prefill: tokens/s of the contexts (the first id is shared) until the first token is sampled. train: tokens/s of "
    "all streams in forward, backward, clip and AdamW, lr 0, half of the tokens sampled, advantages random. Medians "
    "over rounds in which arms alternate. recorded: the engine's default, on a GPU with CUDA graphs; started one by "
    "one: the same steps without graphs; transformers: its forward pass for every step; 512 a pass: contexts are read "
    "in passes of at most 512 tokens, as on a CPU. first: the first reply with weights new to the engine, including "
    "the capture of graphs. FLOP: decode 2 · parameters per token; train 6 · (parameters without the embedding) per "
    "token and 6 · head per sampled token; attention's own products are left out. Peak: the best rate of bf16 products "
    "of square random matrices, measured before and after. busy: time with a kernel or copy running, by "
    "torch.profiler, over wall time without profiler"
)


def measure_speed(sheet: Sheet, size: Size, device: torch.device, name: str) -> None:
    """Measure decoding and prefill of one model for each number of rows, also as shares of the peak rate."""
    with prepare_model(sheet, size, device, name) as (model, peak):
        for rows in size.batch_sizes:
            sheet.attempt(f"decode, {rows} in flight", partial(_measure_play, sheet, size, model, rows, peak))


def measure_training(sheet: Sheet, size: Size, device: torch.device, name: str) -> None:
    """Measure training of one model, also as a share of the peak rate."""
    with prepare_model(sheet, size, device, name) as (model, peak):
        sheet.attempt("train", lambda: _measure_learners(sheet, size, model, peak))


@contextmanager
def prepare_model(sheet: Sheet, size: Size, device: torch.device, name: str) -> Iterator[tuple[Any, float]]:
    """Yield the model and the peak FLOP/s of matrix products. Measures the rate again afterwards."""
    sheet.note("what", WHAT)
    model, source = build_model(name, device)
    sheet.note("weights", source)
    sheet.note("parameters", sum(p.numel() for p in model.parameters()))
    before = measure_peak_flops(device, size.matmul_width)
    yield model, before
    sheet.note("peak_tflops", {"before": before / 1e12, "after": measure_peak_flops(device, size.matmul_width) / 1e12})


def measure_peak_flops(device: torch.device, width: int, dtype: torch.dtype = torch.bfloat16) -> float:
    """Return the FLOP/s of products of random square matrices of this width, the best of several rounds."""
    generator = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(width, width, device=device, generator=generator).to(dtype) for _ in range(2))
    repeats = 10 if device.type == "cuda" else 2

    def work() -> None:
        for _ in range(repeats):
            torch.mm(a, b)

    work()
    times = [time_call(work)[0] for _ in range(5)]
    return 2.0 * width**3 * repeats / min(times)


def measure_copy_rate(device: torch.device, width: int) -> float:
    """Return the bytes per second that the device reads and writes while it copies a multiple of width² numbers."""
    source = torch.zeros(width**2 * (16 if device.type == "cuda" else 1), device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    seconds = median(time_call(lambda: target.copy_(source))[0] for _ in range(5))
    return float(2.0 * source.numel() * source.element_size() / seconds)


@contextmanager
def _set_attributes(module: Any, **values: Any) -> Iterator[None]:
    before = {name: getattr(module, name) for name in values}
    try:
        for name, value in values.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


@contextmanager
def _use_transformers() -> Iterator[None]:
    with _set_attributes(in_process, replays=lambda model: False), _set_attributes(decoding, steps=lambda model: False):
        yield


_DEFAULT = "recorded"
_ARMS: dict[str, Callable[[], Any]] = {
    _DEFAULT: lambda: _set_attributes(graphs),
    "started one by one": lambda: _set_attributes(graphs, CAPTURE_AT=10**9),
    "transformers": _use_transformers,
    "512 a pass": lambda: _set_attributes(decoding, MAX_TREE_TOKENS={"cpu": 512, "cuda": 512}),
}


def _measure_play(sheet: Sheet, size: Size, model: Any, rows: int, peak: float) -> None:
    engines = {arm: InProcessEngine(Precision.BF16, max_batch=rows) for arm in _ARMS}
    version, rng, vocabulary = 0, np.random.default_rng(0), model.config.vocab_size
    contexts = [[7] * OPENING + rng.integers(vocabulary, size=size.context - OPENING).tolist() for _ in range(rows)]

    def time_decode(arm: str, new: int) -> float:
        """Return the seconds of replies of `new` tokens. Publishing empties the caches but keeps recorded graphs."""
        nonlocal version
        version += 1
        engine = engines[arm]
        with _ARMS[arm]():
            wait(engine.publish("p", version, ModuleWeights(model)))
            requests = [make_request(ids, f"{i}", new, (0, i)) for i, ids in enumerate(contexts)]
            return time_call(lambda: wait(engine.generate(requests)))[0]

    longest = size.decoded_tokens
    cases = [(arm, new) for arm in _ARMS for new in ((1,) if "pass" in arm else (1, longest))]
    found: dict[str, Any] = {
        "rows": rows,
        "context": size.context,
        "new": longest,
        "first": {},
        "seconds": {},
    }
    seconds: dict[str, dict[int, list[float]]] = {arm: {} for arm in _ARMS}
    for arm, new in cases:
        reset_peak_memory()
        found["first"].setdefault(arm, {})[new] = time_decode(arm, new)
        seconds[arm][new] = []
        if (arm, new) == (_DEFAULT, longest):
            memory = read_peak_memory()
    for _ in range(size.rounds):
        for arm, new in cases:
            seconds[arm][new].append(time_decode(arm, new))
    found |= {"seconds": seconds, "memory_gb": memory}
    flop = 2.0 * sum(p.numel() for p in model.parameters())
    step_ms, prefill = {}, {}
    for arm, times in seconds.items():
        prefill[arm] = (OPENING + rows * (size.context - OPENING)) / median(times[1])
        if longest in times:
            step_ms[arm] = 1000 * max(1e-6, median(times[longest]) - median(times[1])) / (longest - 1)
    decoded = 1000 * rows / step_ms[_DEFAULT]
    found |= {"decode_tokens_per_second": decoded, "prefill_tokens_per_second": prefill, "step_ms": step_ms}
    found |= {"decode_utilisation": decoded * flop / peak, "prefill_utilisation": prefill[_DEFAULT] * flop / peak}
    few = min(8, longest)
    found |= measure_busy(lambda: time_decode(_DEFAULT, few), model)
    sheet.note(f"play at {rows}", found)
    steps = ", ".join(f"{time:.1f} {arm}" for arm, time in step_ms.items())
    reading = ", ".join(f"{rate:,.0f} {arm}" for arm, rate in prefill.items() if arm in (_DEFAULT, "512 a pass"))
    text = f"{decoded:,.0f} tok/s; ms a step: {steps}; prefill tok/s: {reading}"
    sheet.claim(
        f"decode, {rows} in flight", text + _format_shares(found["decode_utilisation"], found.get("busy"), memory)
    )


def _measure_learners(sheet: Sheet, size: Size, model: Any, peak: float) -> None:
    count, length = size.update_shape
    lessons = make_lessons(model, True, count, length)
    arms: dict[str, Callable[[], Any]] = {}
    memory: dict[str, dict[str, float]] = {}

    def warm_up(arm: str, work: Callable[[], Any]) -> None:
        """Run a first update, which chooses kernels and allocates buffers, and record only its memory."""
        reset_peak_memory()
        work()
        memory[arm] = read_peak_memory()
        arms[arm] = work

    def add_trainer_arms() -> None:
        learner = ArenaLearner(model, True, 0.0, size.budgets[-1])
        for budget in size.budgets:
            warm_up(f"{ArenaLearner.name}, {budget} a micro-batch", partial(learner.update_within, budget, lessons))

    sheet.attempt(f"train, {ArenaLearner.name}", add_trainer_arms)
    bare = BareLearner(model, True, 0.0, size.budgets[-1])
    warm_up(f"{BareLearner.name}, {size.budgets[-1]} a micro-batch", lambda: bare.update(lessons))
    seconds = time_in_turns(arms, size.rounds)
    head = model.get_output_embeddings().weight.numel()
    body = sum(p.numel() for p in model.parameters()) - head
    flop = 6.0 * (body * count * length + head * sum(len(x.advantages) for x in lessons))
    for arm, times in seconds.items():
        wall = median(times)
        found: dict[str, Any] = {
            "streams": count,
            "length": length,
            "seconds": times,
            "tokens_per_second": count * length / wall,
        }
        found |= {"utilisation": flop / wall / peak, "memory_gb": memory[arm]} | measure_busy(arms[arm], model)
        sheet.note(f"train, {arm}", found)
        text = f"{found['tokens_per_second']:,.0f} tok/s"
        sheet.claim(f"train, {arm}", text + _format_shares(found["utilisation"], found.get("busy"), memory[arm]))


def measure_busy(work: Callable[[], Any], model: Any) -> dict[str, float]:
    """Return the share of wall time in which the device was busy, or {} without a GPU or profiler events."""
    if next(model.parameters()).device.type != "cuda":
        return {}
    wall = median(time_call(work)[0] for _ in range(2))
    kernels = _measure_kernel_seconds(work)
    return {"busy": kernels / wall, "busy_seconds": kernels, "busy_wall": wall} if kernels else {}


def _measure_kernel_seconds(work: Callable[[], Any]) -> float:
    """Return the seconds during which at least one kernel or copy runs on the device."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        time_call(work)
    ranges = (e.time_range for e in profiler.events() if e.device_type == torch.profiler.DeviceType.CUDA)
    total, until = 0.0, float("-inf")
    for start, end in sorted((span.start, span.end) for span in ranges):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total / 1e6


def reset_peak_memory() -> None:
    """Reset the device's peak memory."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def read_peak_memory() -> dict[str, float]:
    """Return the device's peak memory since the reset in GB (10^9 bytes), or {} without a GPU."""
    if not torch.cuda.is_available():
        return {}
    held = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    return {name: size / 1e9 for name, size in held.items()}


def _format_shares(utilisation: float, busy: float | None, memory: dict[str, float]) -> str:
    text = f", {100 * utilisation:.2g} % of peak"
    text += f", busy {100 * busy:.0f} %" if busy is not None else ", busy: no device to watch"
    return text + (f", {memory['allocated']:.1f} GB" if memory else "")
