"""Streams with planted preferences, and the training of a reward model on them."""

from pathlib import Path
from typing import Any

import numpy as np

from agents.stream import Stream
from agents.weights import resolve
from arena.parts.chance import generator
from arena.reward_models.examples import Examples, Outcome, make_examples
from arena.reward_models.training import FitSettings, RewardModelTraining
from arena.store.files import CONFIG, write_atomic
from arena.store.run import RunFolder
from tests.factories.labs import RecordingWatcher

LIKED = 300
"""Token whose count makes a stream better."""


def make_stream(ids: list[int]) -> Stream:
    """Return a stream that observes three tokens and samples `ids`."""
    stream = Stream()
    stream.observe([673, 10, 11])
    stream.append_sampled(ids, [-1.0] * len(ids), 0)
    return stream


def make_outcomes(count: int, seed: int = 0, group: int = 2, longest: int = 12) -> list[Outcome]:
    """Return streams valued by their number of `LIKED` tokens; `group` of them share a deal."""
    rng, outcomes = np.random.default_rng(seed), []
    for n in range(count):
        ids = rng.integers(280, 290, int(rng.integers(4, longest + 1))).tolist()
        liked_count = int(rng.integers(0, 4))
        for position in rng.choice(len(ids), min(liked_count, len(ids)), replace=False).tolist():
            ids[position] = LIKED
        deal = n // group
        outcomes.append(Outcome(make_stream([*ids, 670]), float(ids.count(LIKED)), deal, deal))
    return outcomes


def make_planted_examples(count: int = 240, objective: Any = "bradley_terry", **changes: Any) -> Examples:
    """Return examples of planted preferences."""
    return make_examples(make_outcomes(count, **changes), objective, 0.2, 4, 0.0, generator(0, 0, "examples"))


def make_fit_settings(**changes: Any) -> FitSettings:
    """Return settings of a short training."""
    fields: dict[str, Any] = {
        "objective": "bradley_terry", "epochs": 1, "batch": 16, "lr": 1e-3, "warmup_steps": 2, "grad_clip": 1.0,
        "token_budget": 512, "nonfinite": "stop", "iterations": 3, "seed": 7, "keep": 9,
    }  # fmt: skip
    return FitSettings(**fields | changes)


def make_training(
    folder: Path, examples: Examples, watcher: RecordingWatcher | None = None, **changes: Any
) -> RewardModelTraining:
    """Return the training of a nano model in a folder, new or resumed."""
    folder.mkdir(exist_ok=True)
    write_atomic(folder / CONFIG, "reward_model: {}\n")
    model = changes.pop("model", None) or resolve("nano")
    return RewardModelTraining(
        RunFolder.open(folder), model, make_fit_settings(**changes), examples, watcher or RecordingWatcher()
    )
