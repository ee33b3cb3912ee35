"""Entry point of the pipeline stage `reward_model`: reads the examples and trains in a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.computing import compute
from agents.model_folder import count_parameters
from agents.policy import find_positions, load_tokenizer_and_frame
from agents.strict_yaml import dump
from agents.weights import resolve, resolve_base
from arena.parts.chance import generator
from arena.play.watchers import Watcher
from arena.reward_models.examples import Examples, make_examples
from arena.reward_models.logged import read_outcomes
from arena.reward_models.rows import read_row_examples
from arena.reward_models.training import FitSettings, RewardModelTraining
from arena.store.files import CONFIG, write_atomic
from arena.store.run import RunFolder

SMALL = 10**7
"""Number of parameters below which the default learning rate is that for nano policies."""


async def train(folder: Path, settings: Mapping[str, Any], watcher: Watcher) -> None:
    """Read the examples and train in `folder` to the end, from its newest checkpoint if there is one.

    `settings` are those of the pipeline stage `reward_model`, and `seed`, `bf16` and `keep`. The caller holds the
    folder's lock. Raises ConfigError or StoreError for unusable data or settings, and DivergedError for non-finite
    numbers.
    """
    if not (folder / CONFIG).exists():
        write_atomic(folder / CONFIG, dump({"reward_model": dict(settings)}, CONFIG))
    watcher.phase(0, "reading examples")
    model = await compute(resolve, settings["model"])
    examples = await compute(_read_examples, settings, model, watcher)
    counts = f"{len(examples.train):,} examples to learn from, {len(examples.held_out):,} held out"
    watcher.note(f"reward model: {counts}")
    lr = settings["lr"] or (5e-4 if count_parameters(resolve_base(model)) < SMALL else 1e-5)
    names = ("epochs", "batch", "warmup_steps", "grad_clip", "token_budget", "nonfinite", "iterations", "seed", "keep")
    fit = FitSettings(objective=settings["loss"], lr=lr, **{name: settings[name] for name in names})
    await RewardModelTraining(RunFolder.open(folder), model, fit, examples, watcher, settings["bf16"]).run()


def _read_examples(settings: Mapping[str, Any], model: Path, watcher: Watcher) -> Examples:
    rng, loss, held_out = generator(settings["seed"], 0, "examples"), settings["loss"], settings["held_out"]
    if settings["data"] is not None:
        frame, longest = load_tokenizer_and_frame(model)[1], find_positions(model)
        return read_row_examples(Path(settings["data"]), frame, longest, loss, held_out, rng, watcher.note)
    log, policy, outcome = Path(settings["log"]), settings["policy"], settings["outcome"]
    outcomes = read_outcomes(log, policy, outcome, settings["within"], settings["most"], model)
    return make_examples(outcomes, loss, held_out, settings["partners"], settings["margin"], rng)
