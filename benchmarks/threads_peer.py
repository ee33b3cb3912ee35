"""Decoding and a training step under one waiting policy of OpenMP, as a neighbour. Started by threads.py.

Each question measures once: tokens a second of decoding at two batch sizes, seconds of an optimiser step.
"""

import asyncio
from typing import Any

from neighbour import Line, Stopwatch

# isort: split
import arena  # noqa: F401  before torch is loaded: it says how OpenMP waits where nobody has said so

# isort: split
import os

import numpy as np
import torch
from workload import experiment_for, open_lab, trainer_of

from agents.engines.base import Completion, Request
from agents.stream import Stream
from agents.weights import DEFAULT
from arena.cli.loop import wait
from arena.lab import Lab
from arena.learn.samples import Sample

POLICY = "shared"
CONTEXT = 64
LEARNED = 8
"""Streams in a training step."""


def decode(lab: Lab, rows: int, tokens: int) -> tuple[list[Request], list[Completion], dict[str, float]]:
    """A reply of that length to each of as many random contexts, caches empty."""
    ids = np.random.default_rng(rows).integers(len(lab.policies[POLICY].tokenizer), size=(rows, CONTEXT))
    requests = [
        Request(POLICY, tuple(row), f"threads/{i}", tokens, 1.0, 1.0, 0, frozenset(), (i,))
        for i, row in enumerate(ids.tolist())
    ]
    wait(lab.publish())
    watch = Stopwatch()
    completions = asyncio.run(lab.engine.generate(requests))
    return requests, completions, watch.read()


def samples_of(requests: list[Request], completions: list[Completion]) -> list[Sample]:
    """Return samples of what was just written, with advantages of either sign."""
    found = []
    for i, (request, completion) in enumerate(zip(requests, completions, strict=True)):
        stream = Stream()
        stream.observe(request.ids)
        stream.wrote(completion.ids, completion.logprobs, 0)
        count = len(completion.ids)
        advantages = np.full(count, (-1.0) ** i, np.float32)
        behaviour = np.asarray(completion.logprobs, np.float32)
        found.append(
            Sample(stream, advantages, behaviour, 1.0, np.zeros(count, np.int64), np.ones(count, bool), source="played")
        )
    return found


def once(lab: Lab, tokens: int) -> dict[str, Any]:
    """All three figures. The learning rate is 0: all the work of a step, the same weights every time."""
    found: dict[str, Any] = {}
    for rows in (32, LEARNED):
        requests, completions, spent = decode(lab, rows, tokens)
        found[f"decode, batch {rows}, tokens/s"] = rows * tokens / spent["seconds"]
    samples = samples_of(requests, completions)
    watch = Stopwatch()
    trainer = trainer_of(lab, POLICY)
    trainer.carry_out(trainer.plan(samples, np.random.default_rng(0)))
    return found | {"training step, s": watch.read()["seconds"]}


def main() -> None:
    """Load, then measure whenever asked."""
    line = Line()
    if (asked := line.hear()) is None:
        return
    with open_lab(experiment_for(DEFAULT, quick=True)) as lab:
        trainer = trainer_of(lab, POLICY)
        trainer.rule = trainer.rule.model_copy(update={"lr": 0.0})
        once(lab, 2)  # unmeasured: kernels are chosen and memory is taken
        policy = {name: os.environ.get(name) for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
        line.say(threads=torch.get_num_threads(), environment=policy)
        while line.hear() is not None:
            line.say(**once(lab, asked["tokens"]))


if __name__ == "__main__":
    main()
