"""Do engine, scorer and trainer say the same of the same tokens, on this device and on the CPU?"""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from learners import Lesson, Trainer
from models import build, conversations
from sheet import Sheet
from size import Size

from agents.scoring import StreamScorer, score_with_entropy
from agents.stream import Stream

TOLERANCE = {"fp32": 1e-4, "bf16": 0.1}
"""Mean |difference| in nats. Random contexts are the hardest case for bf16: SmolLM2 has .055 there on a CPU. In real
play the gate's own .05 has to hold, which the recipes see to.
"""
WHAT = (
    "conversations of two turns, sampled by InProcessEngine at temperatures .7 and 1: a shared opening, unequal "
    "lengths, replies that end one by one. gate: the engine's log-probabilities against agents.scoring on the same "
    "tokens; trainer: against PolicyTrainer.update's own gate; cpu: agents.scoring here against the same on the CPU. "
    "Mean and greatest |difference| in nats over all sampled tokens"
)


def agreement(sheet: Sheet, size: Size, device: torch.device) -> None:
    """The gate, the trainer's own gate, and the CPU's view, for each model and precision."""
    sheet.note("what", WHAT)
    for name in size.judged:
        found = sheet.attempt(f"{name}: built", partial(build, name, device))
        if found is None:
            continue
        model, source = found
        sheet.note(f"{name} weights", source)
        for precision in TOLERANCE:
            where = f"{name}, {precision}"
            sheet.attempt(where, partial(_judge, sheet, where, precision, model, size, device))


def _judge(sheet: Sheet, where: str, precision: str, model: Any, size: Size, device: torch.device) -> None:
    bf16 = precision == "bf16"
    streams, temperatures = conversations(model, bf16, size.streams, size.new)
    here = _scored(model, bf16, streams, temperatures)
    _claim(sheet, f"{where}: engine = scorer (the gate)", precision, _differences(_sampled(streams), here))

    def at_the_trainer() -> None:
        lessons = [Lesson(s, np.ones(s.sampled_count), h) for s, h in zip(streams, temperatures, strict=True)]
        gap = Trainer(copy.deepcopy(model), bf16, 0.0, 2048, gate_tolerance=1e9).update(lessons)["logprob_gap"]
        sheet.note(f"{where}: engine = trainer", gap)
        sheet.claim(f"{where}: engine = PolicyTrainer", f"mean {gap:.2g}", gap <= TOLERANCE[precision])

    def at_the_cpu() -> None:
        there = _scored(copy.deepcopy(model).cpu(), bf16, streams, temperatures)
        _claim(sheet, f"{where}: this device = CPU", precision, _differences(there, here))

    sheet.attempt(f"{where}: engine = PolicyTrainer", at_the_trainer)
    if device.type == "cpu":
        sheet.skip(f"{where}: this device = CPU", "this device is the CPU")
    else:
        sheet.attempt(f"{where}: this device = CPU", at_the_cpu)


def _claim(sheet: Sheet, claim: str, precision: str, size: np.ndarray) -> None:
    mean, most = float(size.mean()), float(size.max())
    sheet.note(claim, {"mean": mean, "max": most, "tokens": len(size), "tolerance": TOLERANCE[precision]})
    sheet.claim(claim, f"mean {mean:.2g}, max {most:.2g} ({len(size)} tokens)", mean <= TOLERANCE[precision])


def _scored(model: Any, bf16: bool, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[np.ndarray]:
    return [scores.logprobs for scores in score_with_entropy(StreamScorer(model, bf16), streams, temperatures)]


def _sampled(streams: Sequence[Stream]) -> list[np.ndarray]:
    return [np.asarray(s.logprobs)[np.asarray(s.mask, bool)] for s in streams]


def _differences(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> np.ndarray:
    gaps: np.ndarray = np.abs(np.concatenate(one) - np.concatenate(other))
    return gaps
