"""Preferences that are planted in streams, and the training of a reward model on them."""

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
"""Token of which the better stream has more."""


def make_stream(ids: list[int]) -> Stream:
    """A stream that reads three tokens and says `ids`."""
    stream = Stream()
    stream.observe([673, 10, 11])
    stream.append_sampled(ids, [-1.0] * len(ids), 0)
    return stream


def make_outcomes(count: int, seed: int = 0, group: int = 2, longest: int = 12) -> list[Outcome]:
    """Streams of which those with more tokens `LIKED` are worth more; `group` of them share a deal."""
    rng, found = np.random.default_rng(seed), []
    for n in range(count):
        ids = rng.integers(280, 290, int(rng.integers(4, longest + 1))).tolist()
        liked = int(rng.integers(0, 4))
        for place in rng.choice(len(ids), min(liked, len(ids)), replace=False).tolist():
            ids[place] = LIKED
        deal = n // group
        found.append(Outcome(make_stream([*ids, 670]), float(ids.count(LIKED)), deal, deal))
    return found


def make_planted_examples(count: int = 240, objective: Any = "bradley_terry", **changes: Any) -> Examples:
    """Examples of planted preferences."""
    return make_examples(make_outcomes(count, **changes), objective, 0.2, 4, 0.0, generator(0, 0, "examples"))


def make_fit_settings(**changes: Any) -> FitSettings:
    """Settings of a short training."""
    plain: dict[str, Any] = {
        "objective": "bradley_terry", "epochs": 1, "batch": 16, "lr": 1e-3, "warmup_steps": 2, "grad_clip": 1.0,
        "token_budget": 512, "nonfinite": "stop", "iterations": 3, "seed": 7, "keep": 9,
    }  # fmt: skip
    return FitSettings(**plain | changes)


def make_training(
    folder: Path, given: Examples, watcher: RecordingWatcher | None = None, **changes: Any
) -> RewardModelTraining:
    """The training of a nano model in a folder, new or begun."""
    folder.mkdir(exist_ok=True)
    write_atomic(folder / CONFIG, "reward_model: {}\n")
    model = changes.pop("model", None) or resolve("nano")
    return RewardModelTraining(
        RunFolder.open(folder), model, make_fit_settings(**changes), given, watcher or RecordingWatcher()
    )
