"""Agreement of log-probabilities between engine, scorer and trainer, on this device and on the CPU."""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from learners import ArenaLearner, Lesson
from models import build_model, play_conversations
from sheet import Sheet
from size import Size

from agents.scoring import StreamScorer, score_with_entropy
from agents.stream import Stream

TOLERANCE = {"fp32": 1e-4, "bf16": 0.1}
"""Maximum mean |difference| in nats. Random contexts are the hardest case for bf16: on a CPU, SmolLM2 has .055 there.
In real play, runs enforce the gate's own tolerance of .05.
"""
WHAT = (
    "conversations of two turns, sampled by InProcessEngine at temperatures .7 and 1: a shared opening, unequal "
    "lengths, replies that end one by one. gate: the engine's log-probabilities against agents.scoring on the same "
    "tokens; trainer: against PolicyTrainer.update's own gate; cpu: agents.scoring here against the same on the CPU. "
    "Mean and largest |difference| in nats over all sampled tokens"
)


def check_agreement(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Compare the engine with scorer (as the gate does), trainer and CPU, for each model and precision."""
    sheet.note("what", WHAT)
    for name in size.parity_models:
        found = sheet.attempt(f"{name}: built", partial(build_model, name, device))
        if found is None:
            continue
        model, source = found
        sheet.note(f"{name} weights", source)
        for precision in TOLERANCE:
            label = f"{name}, {precision}"
            sheet.attempt(label, partial(_check_model, sheet, label, precision, model, size, device))


def _check_model(sheet: Sheet, label: str, precision: str, model: Any, size: Size, device: torch.device) -> None:
    bf16 = precision == "bf16"
    streams, temperatures = play_conversations(model, bf16, size.streams, size.reply_tokens)
    device_scores = _score(model, bf16, streams, temperatures)
    _claim(
        sheet,
        f"{label}: engine = scorer (the gate)",
        precision,
        _compute_differences(_select_sampled(streams), device_scores),
    )

    def check_trainer() -> None:
        lessons = [Lesson(s, np.ones(s.sampled_count), h) for s, h in zip(streams, temperatures, strict=True)]
        gap = ArenaLearner(copy.deepcopy(model), bf16, 0.0, 2048, gate_tolerance=1e9).update(lessons)["logprob_gap"]
        sheet.note(f"{label}: engine = trainer", gap)
        sheet.claim(f"{label}: engine = PolicyTrainer", f"mean {gap:.2g}", gap <= TOLERANCE[precision])

    def check_cpu() -> None:
        cpu_scores = _score(copy.deepcopy(model).cpu(), bf16, streams, temperatures)
        _claim(sheet, f"{label}: this device = CPU", precision, _compute_differences(cpu_scores, device_scores))

    sheet.attempt(f"{label}: engine = PolicyTrainer", check_trainer)
    if device.type == "cpu":
        sheet.skip(f"{label}: this device = CPU", "this device is the CPU")
    else:
        sheet.attempt(f"{label}: this device = CPU", check_cpu)


def _claim(sheet: Sheet, claim: str, precision: str, gaps: np.ndarray) -> None:
    mean, largest = float(gaps.mean()), float(gaps.max())
    sheet.note(claim, {"mean": mean, "max": largest, "tokens": len(gaps), "tolerance": TOLERANCE[precision]})
    sheet.claim(claim, f"mean {mean:.2g}, max {largest:.2g} ({len(gaps)} tokens)", mean <= TOLERANCE[precision])


def _score(model: Any, bf16: bool, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[np.ndarray]:
    return [scores.logprobs for scores in score_with_entropy(StreamScorer(model, bf16), streams, temperatures)]


def _select_sampled(streams: Sequence[Stream]) -> list[np.ndarray]:
    return [np.asarray(s.logprobs)[np.asarray(s.mask, bool)] for s in streams]


def _compute_differences(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> np.ndarray:
    gaps: np.ndarray = np.abs(np.concatenate(one) - np.concatenate(other))
    return gaps
