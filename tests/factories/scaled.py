"""Updates that must give equal results on one rank and on several: the cases and the comparison.

Advantages and weights of terms are small, and so are gradients. Adam divides each weight's gradient by its own size,
but for an epsilon of 1e-8: where a gradient consists of rounding alone, another order of the same sum may turn its
sign, and with it the weight's step. Rounding of small gradients is below that epsilon.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from agents.adapter_config import AdapterSpec
from agents.policy import Bases, NewAdapter, Policy, load_module, trainable_parameters
from agents.published import ModuleWeights, Weights
from agents.weights import resolve
from arena.config.experiment import LearnSpec
from arena.learn.base import MakeTrainer, Trainer
from arena.learn.samples import Sample
from arena.learn.settings import DemonstrationsSpec
from arena.parts.schedules import Clock
from tests.factories.samples import make_regularisers, make_samples

ITERATIONS = 5
SCALE = 0.01
REFUEL = {"loss": {"refuel": {"eta": 10.0}}, "aggregate": "turn_mean", "lr": 2e-6}  # gaps grow with the steps
DPO = {"loss": {"dpo": {"beta": SCALE}}, "aggregate": "turn_mean"}


@cache
def load_initial_model() -> Any:
    """Return the model that every policy starts as."""
    return load_module(resolve("nano"), frozen=True)


def make_ragged_samples(k: int, count: int = 7) -> list[Sample]:
    """Return samples of different lengths with a reference and with some turns out of the loss."""
    matches = [s.with_reference(s.behaviour + np.float32(0.3)) for s in make_samples(load_initial_model(), k, count)]
    matches = [replace(s, advantages=s.advantages * np.float32(SCALE)) for s in matches]
    return [replace(s, learned=s.learned & (s.places != 1) | (s.places.max() == 0)) for s in matches]


def make_paired_samples(k: int) -> list[Sample]:
    """Return samples whose turns are paired across streams, possibly on different ranks."""
    return [replace(s, pairs=np.where(s.places == 0, i // 2, -1)) for i, s in enumerate(make_ragged_samples(k, 8))]


def make_samples_with_demonstrations(k: int) -> list[Sample]:
    """Return played samples and demonstrations."""
    demonstrations = [
        replace(s, source="demonstration", behaviour=np.zeros_like(s.behaviour))
        for s in make_samples(load_initial_model(), 50 + k, 5)
    ]
    return [*make_ragged_samples(k), *demonstrations]


def make_one_stream(k: int) -> list[Sample]:
    """Return one sample, fewer than ranks."""
    return make_ragged_samples(k, 1)


@dataclass(frozen=True)
class Case:
    """Updates of one kind."""

    rule: Mapping[str, Any] = field(default_factory=dict)
    draw_samples: Callable[[int], list[Sample]] = make_ragged_samples
    """Returns the samples of an iteration."""
    policies: tuple[str, ...] = ("p",)
    adapter: bool = False

    def spec(self, **more: Any) -> LearnSpec:
        """Return settings of the update; gradients are not clipped, which would hide a wrong scale."""
        regularisers = make_regularisers(kl=0.1 * SCALE, entropy=0.05 * SCALE)
        defaults = {
            "regularisers": regularisers,
            "token_budget": 90,
            "gate_tolerance": 9.0,
            "lr": 2e-5,
            "grad_clip": 0.0,
        }
        return LearnSpec.model_validate({**defaults, "minibatches": 2, **self.rule, **more})


DEMONSTRATIONS = DemonstrationsSpec.model_validate({"weight": 0.7 * SCALE, "scripted": ["random"]})
BAND = {"entropy_band": {"low": 0.999, "high": 1.001, "weight": SCALE}}
CASES = {
    "packed ragged": Case(),
    "one step": Case({"minibatches": 1}),
    "several epochs": Case({"epochs": 2, "minibatches": 3}),
    "empty ranks": Case({"minibatches": 1}, make_one_stream),
    "pairs": Case(REFUEL, make_paired_samples),
    "pairs by dpo": Case(DPO, make_paired_samples),
    "demonstrations": Case({"demonstrations": DEMONSTRATIONS}, make_samples_with_demonstrations),
    "what regularisers remember": Case({"regularisers": BAND}),
    "sequence ratio, turn level correction": Case(
        {
            "loss": {"policy_gradient": {"ratio": "sequence", "correction": {"truncated": {"level": "turn"}}}},
            "epochs": 2,
        }
    ),
    **{
        f"aggregate {name}": Case({"aggregate": given})
        for name, given in {
            "turn_mean": "turn_mean",
            "stream_mean": "stream_mean",
            "stream_turn_mean": "stream_turn_mean",
            "constant_length": {"constant_length": {"length": 7}},
        }.items()
    },
    "gradient checkpointing": Case({"gradient_checkpointing": True}),
    "adapter": Case(adapter=True),
    "several policies": Case(policies=("p", "q")),
    "several adapters on one base": Case(policies=("p", "q"), adapter=True),
}


class TrainingResult(NamedTuple):
    """Weights, optimiser moments, metrics and scores after a case."""

    weights: dict[str, np.ndarray]
    moments: dict[str, np.ndarray]
    metrics: list[dict[str, float]]
    states: list[dict[str, Any]]
    scores: np.ndarray
    """Log-probabilities of the last iteration's streams afterwards."""

    def compute_differences(self, other: "TrainingResult") -> "Differences":
        """Return the largest differences to another result."""
        means = {name: value for name, value in self.moments.items() if name.endswith("exp_avg")}
        largest = max(float(np.abs(value).max()) for value in means.values())
        return Differences(max_difference(self.weights, other.weights), max_difference(means, other.moments) / largest)

    def max_change(self, case: "Case") -> float:
        """Return the largest change of a weight."""
        return max_difference(
            self.weights, _copy_all_weights([ModuleWeights(p.model, p.base) for p in load_policies(case)])
        )


class Differences(NamedTuple):
    """Largest differences of weights and moments."""

    weight: float
    moment: float
    """Of first moments (so of gradients), relative to the largest."""


def max_difference(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> float:
    """Return the largest difference of arrays by name."""
    return max(float(np.abs(value - second[name]).max()) for name, value in first.items())


def load_policies(case: Case) -> list[Policy]:
    """Return the case's initial policies; adapters share one base."""
    source, bases = resolve("nano"), Bases()
    new = {
        name: NewAdapter(AdapterSpec(rank=4), seed, "nano") if case.adapter else None
        for seed, name in enumerate(case.policies)
    }
    return [Policy.load(name, source, source, True, adapter, bases) for name, adapter in new.items()]


def make_trainers(make: MakeTrainer, case: Case, **rule: Any) -> list[Trainer]:
    """Return trainers of a case's policies."""
    return [make(policy, case.spec(**rule), False) for policy in load_policies(case)]


async def run_iterations(
    trainers: list[Trainer], case: Case, first: int = 1, last: int = ITERATIONS
) -> list[dict[str, float]]:
    """Train iterations `first` to `last`, each policy in turn, and return their metrics."""
    metrics = []
    for k in range(first, last + 1):
        for number, trainer in enumerate(trainers):
            plan = trainer.plan(case.draw_samples(10 * k + number), np.random.default_rng(k), Clock(k, ITERATIONS))
            metrics.append(await trainer.update(plan))
    return metrics


async def collect_result(trainers: list[Trainer], case: Case, metrics: list[dict[str, float]]) -> TrainingResult:
    """Collect the values to compare."""
    weights = _copy_all_weights([await trainer.weights() for trainer in trainers])
    moments: dict[str, Any] = {}
    scores = []
    for number, trainer in enumerate(trainers):
        moments |= {f"{number}.{name}": value.numpy().copy() for name, value in (await trainer.save()).items()}
        samples = case.draw_samples(10 * ITERATIONS + number)
        scored = await trainer.score([s.stream for s in samples], [s.temperature for s in samples])
        scores += [one.logprobs for one in scored]
    return TrainingResult(weights, moments, metrics, [trainer.state() for trainer in trainers], np.concatenate(scores))


def train_case(make: MakeTrainer, case: Case, **rule: Any) -> TrainingResult:
    """Train all iterations of a case, and close the trainers."""
    trainers = make_trainers(make, case, **rule)

    async def through() -> TrainingResult:
        result = await collect_result(trainers, case, await run_iterations(trainers, case))
        for trainer in trainers:
            await trainer.close()
        return result

    return asyncio.run(through())


def _copy_all_weights(all_weights: Sequence[Weights]) -> dict[str, np.ndarray]:
    """Return copies of the trainable parameters of all weights."""
    copies: dict[str, np.ndarray] = {}
    for number, weights in enumerate(all_weights):
        copies |= {f"{number}.{name}": value for name, value in copy_arrays(weights).items()}
    return copies


def copy_arrays(weights: Weights) -> dict[str, np.ndarray]:
    """Return copies of the trainable parameters of a local module or of weights on ranks."""
    if isinstance(weights, ModuleWeights):
        with weights.gather():
            return {name: value.detach().numpy().copy() for name, value in trainable_parameters(weights.module).items()}
    tensors: Mapping[str, torch.Tensor] = weights.tensors  # type: ignore[union-attr]
    return {name: value.numpy() for name, value in tensors.items()}
