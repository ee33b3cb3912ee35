"""The work that is measured: an ordinary lab in a throw-away folder, and what its matches ask of the engine."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from timing import seconds_of

from agents.engines.base import Completion, Request
from agents.engines.in_process import InProcessEngine
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose, to_yaml
from arena.config.sources import recipe_layer, set_layer
from arena.credit.samples import make_samples
from arena.doctor import environment
from arena.lab import Lab
from arena.learn.samples import Sample
from arena.learn.trainer import PolicyTrainer
from arena.preflight import fitted
from arena.records import MatchRecord
from arena.store.run import RunFolder


def recipe_of(model: str) -> str:
    """The recipe that is made for this model."""
    return "negotiation-nano" if model.startswith("nano") else "negotiation"


def settings(model: str, quick: bool) -> list[str]:
    """Return what is laid over the recipe. Nano's warm start is cut short: its length is not what is measured."""
    found = [f"policies.shared.model={model}"]
    if model.startswith("nano"):
        found += ["policies.shared.imitate.matches=96", "policies.shared.imitate.minibatches=8"]
    return [*found, "play.matches=8"] if quick else found


def experiment_for(model: str, quick: bool, seed: int = 0) -> Experiment:
    """Two iterations of the model's recipe, checkpoint at the end of the second."""
    layers = [*settings(model, quick), "iterations=2", "checkpoint.every=2", f"seed={seed}"]
    return compose([recipe_layer(recipe_of(model)), *map(set_layer, layers)])


class Nobody:
    """A watcher that hears everything and does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Whatever a lab has to tell."""
        return lambda *news: None


@contextmanager
def open_lab(experiment: Experiment) -> Iterator[Lab]:
    """A lab with weights loaded, in a temporary run folder; `precision: auto` is tried, threads are torch's."""
    if experiment.threads == "auto":
        experiment = experiment.model_copy(update={"threads": torch.get_num_threads()})
    experiment = fitted(experiment)
    with TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run", to_yaml(experiment), environment())
        with run.lock():
            lab = wait(Lab.open(run, experiment, Nobody()))
            yield lab
            run.log.close()


def requests_for(contexts: Sequence[tuple[int, ...]], tokens: int, name: str, policy: str) -> list[Request]:
    """A reply of that length to each."""
    return [
        Request(
            policy=policy,
            ids=ids,
            key=f"{name}/{i}",
            max_tokens=tokens,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            stop_ids=frozenset(),
            seed=(i,),
        )
        for i, ids in enumerate(contexts)
    ]


@dataclass(frozen=True)
class DecodeBatch:
    """One call of the engine: what was asked, what it sampled."""

    requests: tuple[Request, ...]
    completions: tuple[Completion, ...]

    @property
    def contexts(self) -> list[tuple[int, ...]]:
        """Ids of every row's whole context."""
        return [request.ids for request in self.requests]

    @property
    def longest(self) -> int:
        """Most tokens that any row sampled."""
        return max(len(completion.ids) for completion in self.completions)


@dataclass(frozen=True)
class Played:
    """One iteration's matches as they were played."""

    seconds: float
    records: list[MatchRecord]
    batches: list[DecodeBatch]

    @property
    def tokens(self) -> int:
        """Sampled by all seats together."""
        return sum(len(completion.ids) for batch in self.batches for completion in batch.completions)


def engine_of(lab: Lab) -> InProcessEngine:
    """The lab's engine, which has to be in this process."""
    assert isinstance(lab.engine, InProcessEngine)
    return lab.engine


def trainer_of(lab: Lab, policy: str = "shared") -> PolicyTrainer:
    """A policy's trainer, which has to be in this process."""
    trainer = lab.trainers[policy]
    assert isinstance(trainer, PolicyTrainer)
    return trainer


def play(lab: Lab, k: int) -> Played:
    """The matches of iteration k: real orchestrator, real log, caches as cold as after an update."""
    wait(lab.publish())
    batches: list[DecodeBatch] = []
    engine = engine_of(lab)
    decode = engine._decode

    def noted(requests: Sequence[Request]) -> list[Completion]:
        completions = decode(requests)
        batches.append(DecodeBatch(tuple(requests), tuple(completions)))
        return completions

    engine._decode = noted  # type: ignore[method-assign]
    try:
        seconds, records = seconds_of(lambda: wait(lab.play(k)).records)
    finally:
        engine._decode = decode  # type: ignore[method-assign]
    return Played(seconds, records, batches)


def samples_from(lab: Lab, k: int, played: Played) -> list[Sample]:
    """Return what the trainer would learn from these matches, the KL to the reference left out."""
    return make_samples(wait(lab.credit(k, played.records)).credited, lab.parts.temperatures)


def device_of(lab: Lab) -> torch.device:
    """Return the device of the lab's first policy."""
    policy = next(iter(lab.policies.values()))
    return next(policy.model.parameters()).device  # type: ignore[no-any-return]
