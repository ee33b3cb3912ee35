"""Simple task that an untrained nano policy learns in seconds on this device.

A match has three turns, each with a cue and a reply of one token. Even ids are right after one cue, odd ids after the
other. Cues are drawn anew in every turn, so a turn's reward is independent of all other turns.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from learners import Lesson, choose_learner
from models import build_model, make_request
from sheet import Sheet
from size import Size
from timing import time_call

from agents.engines.in_process import InProcessEngine
from agents.published import ModuleWeights
from agents.stream import Stream
from arena.cli.loop import wait

TURNS, STREAMS, CUES, LAST = 3, 64, (7, 8), 5
LEARNED, CHANCE = 0.9, (0.4, 0.6)
"""Share of right replies: the minimum with credit, and the range without."""
WHAT = (
    f"nano, fp32, {STREAMS} streams of {TURNS} turns an update, two optimiser steps each, lr 1e-3; arms alternate. "
    f"credit: advantage = right - mean right; control: advantage 0. Share of right replies in the last {LAST} updates"
)


class Arm:
    """Policy that plays and learns the task. `scale` multiplies its advantages; 0 makes it the control."""

    def __init__(self, device: torch.device, scale: float, seed: int = 0) -> None:
        self.model, _ = build_model("nano", device)
        self.engine, self.rng, self.scale = InProcessEngine(), np.random.default_rng(seed), scale
        self.learner = choose_learner()[0](self.model, False, 1e-3, 8192, minibatches=2)
        self.shares: list[float] = []

    def update(self) -> None:
        """Play one batch and learn from it."""
        streams, right = self._play(len(self.shares) + 1)
        self.shares.append(float(right.mean()))
        advantages = self.scale * (right - right.mean())
        self.learner.update([Lesson(s, a) for s, a in zip(streams, advantages, strict=True)])

    def _play(self, version: int) -> tuple[list[Stream], np.ndarray]:
        """Return the streams, and an array [streams, turns] that is 1 where the reply was right."""
        wait(self.engine.publish("p", version, ModuleWeights(self.model)))
        streams, right = [Stream() for _ in range(STREAMS)], np.zeros((STREAMS, TURNS))
        for turn in range(TURNS):
            cues = self.rng.integers(0, 2, STREAMS)
            for stream, cue in zip(streams, cues, strict=True):
                stream.observe([5, CUES[cue]])
            requests: list[Any] = [make_request(s.ids, f"{i}", 1, (version, turn, i)) for i, s in enumerate(streams)]
            for i, reply in enumerate(wait(self.engine.generate(requests))):
                streams[i].append_sampled(reply.ids, reply.logprobs, turn)
                right[i, turn] = reply.ids[0] % 2 == cues[i]
        return streams, right


def learn_task(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Train both arms in alternating updates, and record their shares of right replies."""
    kind, reason = choose_learner()
    if reason:
        sheet.skip("the task by PolicyTrainer (the bare loop learns it instead)", reason)
    arms = {"credit": Arm(device, 1.0), "control": Arm(device, 0.0)}
    seconds: list[float] = []
    while len(seconds) < size.updates and sheet.seconds_left > 3 * max(seconds, default=0.0):
        seconds.append(time_call(partial(_update, arms.values()))[0] / len(arms))
    final_shares = {name: float(np.mean(arm.shares[-LAST:])) for name, arm in arms.items()}
    curves = {name: arm.shares for name, arm in arms.items()}
    sheet.note("task", {"what": WHAT, "learner": kind.name, "curves": curves, "last": final_shares, "seconds": seconds})
    is_complete = len(seconds) >= 30
    text = f"{len(seconds)} updates, {1000 * float(np.median(seconds)):.0f} ms each"
    credit = f"{100 * final_shares['credit']:.0f} % right after {text}"
    sheet.claim(f"nano learns a task ({kind.name})", credit, final_shares["credit"] > LEARNED if is_complete else None)
    control = CHANCE[0] < final_shares["control"] < CHANCE[1] if is_complete else None
    sheet.claim("nano learns nothing without credit", f"{100 * final_shares['control']:.0f} % right", control)


def _update(arms: Iterable[Arm]) -> None:
    for arm in arms:
        arm.update()
