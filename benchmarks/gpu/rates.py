"""Speed of play and training, how busy that keeps the device, and the most memory it takes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from learners import OPENING, Bare, Trainer, made_up_lessons
from models import build, reply_to
from sheet import Sheet
from size import Size
from timing import seconds_of, take_turns

from agents.engines import decoding, graphs, in_process
from agents.engines.in_process import InProcessEngine
from agents.precision import Precision
from agents.published import ModuleWeights
from arena.cli.loop import wait

WHAT = (
    "bf16 matrix products over float32 weights, as precision: bf16 has it. decode: tokens/s after the first of each "
    "reply, from the difference between replies of all and of one token, caches empty, no reply ends early; prefill: "
    "tokens of the contexts (one shared id, the rest their own) until the first token is sampled. train: tokens of "
    "all streams by forward, backward, clip and AdamW, lr 0, half of the tokens sampled, advantages random. Medians "
    "over rounds in which arms alternate. recorded: as the engine does it, on a GPU steps as CUDA graphs; started one "
    "by one: the same steps, no graph; transformers: its forward pass for every step; 512 a pass: contexts are read at "
    "most so many tokens at a time, as on a CPU. first: the first reply of weights new to the engine, graphs and all. "
    "FLOP: decode 2 · parameters a token; train 6 · (parameters without the "
    "embedding) a token and 6 · head a sampled token; attention's own products are left out. Peak: the best of bf16 "
    "products of square matrices of random normals, before and after. busy: time with a kernel or copy running, seen "
    "by torch.profiler, over wall time without profiler"
)


def speed(sheet: Sheet, size: Size, device: torch.device, name: str) -> None:
    """One model: decode and prefill at each number of rows, with shares of the peak."""
    with _measured(sheet, size, device, name) as (model, peak):
        for rows in size.rows:
            sheet.attempt(f"decode, {rows} in flight", partial(_play, sheet, size, model, rows, peak))


def train(sheet: Sheet, size: Size, device: torch.device, name: str) -> None:
    """One model: training, with shares of the peak."""
    with _measured(sheet, size, device, name) as (model, peak):
        sheet.attempt("train", lambda: _train(sheet, size, model, peak))


@contextmanager
def _measured(sheet: Sheet, size: Size, device: torch.device, name: str) -> Iterator[tuple[Any, float]]:
    """The model, and the best rate of products before the measurements."""
    sheet.note("what", WHAT)
    model, source = build(name, device)
    sheet.note("weights", source)
    sheet.note("parameters", sum(p.numel() for p in model.parameters()))
    before = peak_flops(device, size.matmul)
    yield model, before
    sheet.note("peak_tflops", {"before": before / 1e12, "after": peak_flops(device, size.matmul) / 1e12})


def peak_flops(device: torch.device, width: int, dtype: torch.dtype = torch.bfloat16) -> float:
    """FLOP/s of a product of square matrices of random normals, the best of several rounds."""
    generator = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(width, width, device=device, generator=generator).to(dtype) for _ in range(2))
    repeats = 10 if device.type == "cuda" else 2

    def work() -> None:
        for _ in range(repeats):
            torch.mm(a, b)

    work()
    times = [seconds_of(work)[0] for _ in range(5)]
    return 2.0 * width**3 * repeats / min(times)


@contextmanager
def _set(module: Any, **values: Any) -> Iterator[None]:
    before = {name: getattr(module, name) for name in values}
    try:
        for name, value in values.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


@contextmanager
def _transformers() -> Iterator[None]:
    with _set(in_process, replays=lambda model: False), _set(decoding, steps=lambda model: False):
        yield


_AS_IT_IS = "recorded"
_ARMS: dict[str, Callable[[], Any]] = {
    _AS_IT_IS: lambda: _set(graphs),
    "started one by one": lambda: _set(graphs, CAPTURE_AT=10**9),
    "transformers": _transformers,
    "512 a pass": lambda: _set(decoding, MOST_AT_ONCE={"cpu": 512, "cuda": 512}),
}


def _play(sheet: Sheet, size: Size, model: Any, rows: int, peak: float) -> None:
    engines = {arm: InProcessEngine(Precision.BF16, max_batch=rows) for arm in _ARMS}
    version, rng, vocabulary = 0, np.random.default_rng(0), model.config.vocab_size
    contexts = [[7] * OPENING + rng.integers(vocabulary, size=size.context - OPENING).tolist() for _ in range(rows)]

    def decode(arm: str, new: int) -> float:
        """Seconds for replies of so many tokens, nothing kept from before but what was recorded."""
        nonlocal version
        version += 1
        engine = engines[arm]
        with _ARMS[arm]():
            wait(engine.publish("p", version, ModuleWeights(model)))
            requests = [reply_to(ids, f"{i}", new, (0, i)) for i, ids in enumerate(contexts)]
            return seconds_of(lambda: wait(engine.generate(requests)))[0]

    asked = [(arm, new) for arm in _ARMS for new in ((1,) if "pass" in arm else (1, size.decoded))]
    found: dict[str, Any] = {"rows": rows, "context": size.context, "new": size.decoded, "first": {}, "seconds": {}}
    seconds: dict[str, dict[int, list[float]]] = {arm: {} for arm in _ARMS}
    for arm, new in asked:
        reset_peak_memory()
        found["first"].setdefault(arm, {})[new] = decode(arm, new)
        seconds[arm][new] = []
        if (arm, new) == (_AS_IT_IS, size.decoded):
            memory = peak_memory()
    for _ in range(size.rounds):
        for arm, new in asked:
            seconds[arm][new].append(decode(arm, new))
    found |= {"seconds": seconds, "memory_gb": memory}
    flop = 2.0 * sum(p.numel() for p in model.parameters())
    step_ms, prefill = {}, {}
    for arm, times in seconds.items():
        prefill[arm] = (OPENING + rows * (size.context - OPENING)) / median(times[1])
        if size.decoded in times:
            step_ms[arm] = 1000 * max(1e-6, median(times[size.decoded]) - median(times[1])) / (size.decoded - 1)
    decoded = 1000 * rows / step_ms[_AS_IT_IS]
    found |= {"decode_tokens_per_second": decoded, "prefill_tokens_per_second": prefill, "step_ms": step_ms}
    found |= {"decode_utilisation": decoded * flop / peak, "prefill_utilisation": prefill[_AS_IT_IS] * flop / peak}
    few = min(8, size.decoded)
    found |= busy(lambda: decode(_AS_IT_IS, few), model)
    sheet.note(f"play at {rows}", found)
    steps = ", ".join(f"{time:.1f} {arm}" for arm, time in step_ms.items())
    reading = ", ".join(f"{rate:,.0f} {arm}" for arm, rate in prefill.items() if arm in (_AS_IT_IS, "512 a pass"))
    told = f"{decoded:,.0f} tok/s; ms a step: {steps}; prefill tok/s: {reading}"
    sheet.claim(f"decode, {rows} in flight", told + _shares(found["decode_utilisation"], found.get("busy"), memory))


def _train(sheet: Sheet, size: Size, model: Any, peak: float) -> None:
    count, length = size.trained
    lessons = made_up_lessons(model, True, count, length)
    arms: dict[str, Callable[[], Any]] = {}
    memory: dict[str, dict[str, float]] = {}

    def enter(arm: str, work: Callable[[], Any]) -> None:
        """One update unmeasured but for its memory: kernels are chosen, moments and buffers made."""
        reset_peak_memory()
        work()
        memory[arm] = peak_memory()
        arms[arm] = work

    def trainer() -> None:
        learner = Trainer(model, True, 0.0, size.budgets[-1])
        for budget in size.budgets:
            enter(f"{Trainer.name}, {budget} a micro-batch", partial(learner.update_within, budget, lessons))

    sheet.attempt(f"train, {Trainer.name}", trainer)
    bare = Bare(model, True, 0.0, size.budgets[-1])
    enter(f"{Bare.name}, {size.budgets[-1]} a micro-batch", lambda: bare.update(lessons))
    seconds = take_turns(arms, size.rounds)
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
        found |= {"utilisation": flop / wall / peak, "memory_gb": memory[arm]} | busy(arms[arm], model)
        sheet.note(f"train, {arm}", found)
        told = f"{found['tokens_per_second']:,.0f} tok/s"
        sheet.claim(f"train, {arm}", told + _shares(found["utilisation"], found.get("busy"), memory[arm]))


def busy(work: Callable[[], Any], model: Any) -> dict[str, float]:
    """Share of the wall time in which the device ran something; empty without an accelerator or a profiler of it."""
    if next(model.parameters()).device.type != "cuda":
        return {}
    wall = median(seconds_of(work)[0] for _ in range(2))
    kernels = _kernel_seconds(work)
    return {"busy": kernels / wall, "busy_seconds": kernels, "busy_wall": wall} if kernels else {}


def _kernel_seconds(work: Callable[[], Any]) -> float:
    """Time with at least one kernel or copy on the device."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        seconds_of(work)
    ran = (e.time_range for e in profiler.events() if e.device_type == torch.profiler.DeviceType.CUDA)
    total, until = 0.0, float("-inf")
    for start, end in sorted((span.start, span.end) for span in ran):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total / 1e6


def reset_peak_memory() -> None:
    """Count from here."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_memory() -> dict[str, float]:
    """Most held on the device since, in GB (10^9 bytes); empty without one."""
    if not torch.cuda.is_available():
        return {}
    held = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    return {name: size / 1e9 for name, size in held.items()}


def _shares(utilisation: float, busy: float | None, memory: dict[str, float]) -> str:
    told = f", {100 * utilisation:.2g} % of peak"
    told += f", busy {100 * busy:.0f} %" if busy is not None else ", busy: no device to watch"
    return told + (f", {memory['allocated']:.1f} GB" if memory else "")
