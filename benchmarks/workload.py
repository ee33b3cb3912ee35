"""Ordinary labs in temporary folders for the benchmarks, and their iterations with all engine requests."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from timing import time_call

from agents.engines.base import Completion, Request
from agents.engines.in_process import InProcessEngine
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose, to_yaml
from arena.config.sources import recipe_layer, set_layer
from arena.doctor import describe_environment
from arena.lab import Lab
from arena.learn.trainer import PolicyTrainer
from arena.play.watchers import Watcher
from arena.preflight import fit_to_machine
from arena.records import MatchRecord
from arena.store.run import RunFolder


def choose_recipe(model: str) -> str:
    """Return the name of the negotiation recipe for this model."""
    return "negotiation-nano" if model.startswith("nano") else "negotiation"


def make_overrides(model: str, quick: bool) -> list[str]:
    """Return overrides of the model's recipe. They shorten nano's warm start, which is not measured."""
    overrides = [f"policies.shared.model={model}"]
    if model.startswith("nano"):
        overrides += ["policies.shared.imitate.matches=96", "policies.shared.imitate.minibatches=8"]
    return [*overrides, "play.matches=8"] if quick else overrides


def make_experiment(model: str, quick: bool, seed: int = 0) -> Experiment:
    """Return an experiment of two iterations of the model's recipe, with a checkpoint after the second."""
    layers = [*make_overrides(model, quick), "iterations=2", "checkpoint.every=2", f"seed={seed}"]
    return compose([recipe_layer(choose_recipe(model)), *map(set_layer, layers)])


@contextmanager
def open_lab(experiment: Experiment) -> Iterator[Lab]:
    """Open a lab with loaded weights in a temporary run folder.

    `precision: auto` is resolved, and `threads: auto` becomes torch's number of threads.
    """
    if experiment.threads == "auto":
        experiment = experiment.model_copy(update={"threads": torch.get_num_threads()})
    experiment = fit_to_machine(experiment)
    with TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run", to_yaml(experiment), describe_environment())
        with run.lock():
            lab = wait(Lab.open(run, experiment, Watcher()))
            yield lab
            run.log.close()


@dataclass(frozen=True)
class DecodeBatch:
    """Requests and completions of one call of the engine."""

    requests: tuple[Request, ...]
    completions: tuple[Completion, ...]

    @property
    def contexts(self) -> list[tuple[int, ...]]:
        """Token ids of each row's complete context."""
        return [request.ids for request in self.requests]

    @property
    def longest(self) -> int:
        """Number of tokens of the longest reply."""
        return max(len(completion.ids) for completion in self.completions)


@dataclass(frozen=True)
class PlayedIteration:
    """Matches of one iteration, with their time and their engine calls."""

    seconds: float
    records: list[MatchRecord]
    batches: list[DecodeBatch]

    @property
    def tokens(self) -> int:
        """Number of tokens sampled for all seats."""
        return sum(len(completion.ids) for batch in self.batches for completion in batch.completions)


def get_engine(lab: Lab) -> InProcessEngine:
    """Return the lab's engine, which must be in this process."""
    assert isinstance(lab.engine, InProcessEngine)
    return lab.engine


def get_trainer(lab: Lab, policy: str = "shared") -> PolicyTrainer:
    """Return a policy's trainer, which must be in this process."""
    trainer = lab.trainers[policy]
    assert isinstance(trainer, PolicyTrainer)
    return trainer


def play_iteration(lab: Lab, k: int) -> PlayedIteration:
    """Play the matches of iteration k with the real orchestrator and log. Caches are empty, as after an update."""
    wait(lab.publish())
    batches: list[DecodeBatch] = []
    engine = get_engine(lab)
    decode = engine._decode

    def record_batch(requests: Sequence[Request]) -> list[Completion]:
        completions = decode(requests)
        batches.append(DecodeBatch(tuple(requests), tuple(completions)))
        return completions

    engine._decode = record_batch  # type: ignore[method-assign]
    try:
        seconds, records = time_call(lambda: wait(lab.play(k)).records)
    finally:
        engine._decode = decode  # type: ignore[method-assign]
    return PlayedIteration(seconds, records, batches)
