"""Updates that one rank and several have to come out of alike: the cases, and what is compared of them.

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
    """The weights that every policy begins as."""
    return load_module(resolve("nano"), frozen=True)


def make_ragged_samples(k: int, count: int = 7) -> list[Sample]:
    """Streams of several lengths and turns, with some turns out of the loss and a reference."""
    played = [s.with_reference(s.behaviour + np.float32(0.3)) for s in make_samples(load_initial_model(), k, count)]
    played = [replace(s, advantages=s.advantages * np.float32(SCALE)) for s in played]
    return [replace(s, learned=s.learned & (s.places != 1) | (s.places.max() == 0)) for s in played]


def make_paired_samples(k: int) -> list[Sample]:
    """Answers in pairs across the streams: whatever rank the two are on."""
    return [replace(s, pairs=np.where(s.places == 0, i // 2, -1)) for i, s in enumerate(make_ragged_samples(k, 8))]


def make_samples_with_demonstrations(k: int) -> list[Sample]:
    """Demonstrations beside what was played."""
    shown = [
        replace(s, source="demonstration", behaviour=np.zeros_like(s.behaviour))
        for s in make_samples(load_initial_model(), 50 + k, 5)
    ]
    return [*make_ragged_samples(k), *shown]


def make_one_stream(k: int) -> list[Sample]:
    """Fewer streams than ranks."""
    return make_ragged_samples(k, 1)


@dataclass(frozen=True)
class Case:
    """Updates of one kind."""

    rule: Mapping[str, Any] = field(default_factory=dict)
    given: Callable[[int], list[Sample]] = make_ragged_samples
    """By iteration, what is learned from."""
    policies: tuple[str, ...] = ("p",)
    adapter: bool = False

    def spec(self, **more: Any) -> LearnSpec:
        """Settings of the update; no gradient is clipped, which would hide a wrong scale."""
        held = make_regularisers(kl=0.1 * SCALE, entropy=0.05 * SCALE)
        usual = {"regularisers": held, "token_budget": 90, "gate_tolerance": 9.0, "lr": 2e-5, "grad_clip": 0.0}
        return LearnSpec.model_validate({**usual, "minibatches": 2, **self.rule, **more})


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
    """What has become of a case's policies."""

    weights: dict[str, np.ndarray]
    moments: dict[str, np.ndarray]
    metrics: list[dict[str, float]]
    states: list[dict[str, Any]]
    scores: np.ndarray
    """Log-probabilities of the last iteration's streams afterwards."""

    def off(self, other: "TrainingResult") -> "Differences":
        """How far another one is from this."""
        means = {name: value for name, value in self.moments.items() if name.endswith("exp_avg")}
        size = max(float(np.abs(value).max()) for value in means.values())
        return Differences(max_difference(self.weights, other.weights), max_difference(means, other.moments) / size)

    def moved(self, case: "Case") -> float:
        """The largest difference of a weight to what it was at first."""
        return max_difference(
            self.weights, _copy_all_weights([ModuleWeights(p.model, p.base) for p in load_policies(case)])
        )


class Differences(NamedTuple):
    """Worst differences."""

    weight: float
    moment: float
    """Of a first moment, so of gradients, as a share of the largest."""


def max_difference(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
    """The largest difference of arrays by name."""
    return max(float(np.abs(value - other[name]).max()) for name, value in one.items())


def load_policies(case: Case) -> list[Policy]:
    """The case's policies as they begin, adapters on one base."""
    source, bases = resolve("nano"), Bases()
    new = {
        name: NewAdapter(AdapterSpec(rank=4), seed, "nano") if case.adapter else None
        for seed, name in enumerate(case.policies)
    }
    return [Policy.load(name, source, source, True, adapter, bases) for name, adapter in new.items()]


def make_trainers(make: MakeTrainer, case: Case, **rule: Any) -> list[Trainer]:
    """Trainers of a case's policies."""
    return [make(policy, case.spec(**rule), False) for policy in load_policies(case)]


async def run_iterations(
    trainers: list[Trainer], case: Case, first: int = 1, last: int = ITERATIONS
) -> list[dict[str, float]]:
    """The iterations from `first` to `last`, each policy in turn; their metrics."""
    found = []
    for k in range(first, last + 1):
        for number, trainer in enumerate(trainers):
            plan = trainer.plan(case.given(10 * k + number), np.random.default_rng(k), Clock(k, ITERATIONS))
            found.append(await trainer.update(plan))
    return found


async def collect_result(trainers: list[Trainer], case: Case, metrics: list[dict[str, float]]) -> TrainingResult:
    """What is compared."""
    weights = _copy_all_weights([await trainer.weights() for trainer in trainers])
    moments: dict[str, Any] = {}
    scores = []
    for number, trainer in enumerate(trainers):
        moments |= {f"{number}.{name}": value.numpy().copy() for name, value in (await trainer.save()).items()}
        given = case.given(10 * ITERATIONS + number)
        found = await trainer.score([s.stream for s in given], [s.temperature for s in given])
        scores += [one.logprobs for one in found]
    return TrainingResult(weights, moments, metrics, [trainer.state() for trainer in trainers], np.concatenate(scores))


def train_case(make: MakeTrainer, case: Case, **rule: Any) -> TrainingResult:
    """All iterations of a case by trainers of a kind, which are closed again."""
    trainers = make_trainers(make, case, **rule)

    async def through() -> TrainingResult:
        found = await collect_result(trainers, case, await run_iterations(trainers, case))
        for trainer in trainers:
            await trainer.close()
        return found

    return asyncio.run(through())


def _copy_all_weights(held: Sequence[Weights]) -> dict[str, np.ndarray]:
    """Copies of what learns in all of these."""
    found: dict[str, np.ndarray] = {}
    for number, weights in enumerate(held):
        found |= {f"{number}.{name}": value for name, value in copy_arrays(weights).items()}
    return found


def copy_arrays(weights: Weights) -> dict[str, np.ndarray]:
    """Copies of the parameters that learn, of a module here or of weights on ranks."""
    if isinstance(weights, ModuleWeights):
        with weights.gather():
            return {name: value.detach().numpy().copy() for name, value in trainable_parameters(weights.module).items()}
    tensors: Mapping[str, torch.Tensor] = weights.tensors  # type: ignore[union-attr]
    return {name: value.numpy() for name, value in tensors.items()}
