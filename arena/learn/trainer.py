"""The trainer of this process: one policy's weights and optimiser, updated by plans."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from agents.computing import compute
from agents.costs import estimate_costs
from agents.packing import Costs
from agents.policy import AdapterOnBase, Policy, trainable_parameters
from agents.published import ModuleWeights
from agents.scoring import StreamScorer, StreamScores, score_with_entropy
from agents.stream import Stream
from arena.learn import gate
from arena.learn.base import Trainer
from arena.learn.divergence import is_finite_step, require_finite
from arena.learn.gradients import Gradients, UpdateMetrics, update_memory
from arena.learn.optimiser import Optimiser, gather_parameters
from arena.learn.plan import Plan, Planner, Step
from arena.learn.ranks import Tally, get_rank, max_over_ranks, reduce_over_ranks
from arena.learn.samples import Sample
from arena.learn.settings import ImitateSpec, UpdateSpec
from arena.parts.schedules import Clock


class PolicyTrainer:
    """Trainer of one policy in this process, with DeepSpeed.

    It trains the same parameters that the in-process engine serves. Async methods compute in the computing thread;
    `carry_out` and `compute_scores` are their synchronous forms for that thread.
    """

    def __init__(
        self, name: str, model: torch.nn.Module, rule: UpdateSpec, bf16: bool = False, base: AdapterOnBase | None = None
    ) -> None:
        """Prepare to train `model`. `base` is its base model if it is an adapter."""
        self.name, self.rule, self._base = name, rule, base
        self.tolerance = gate.get_tolerance(rule, bf16)
        """The gate's tolerance for the mean difference."""
        self.model: Any = model
        self.steps = 0
        """Optimiser steps that this policy has taken, without imitation."""
        self.imitated = 0
        """Optimiser steps of an unfinished imitation."""
        self.memory: dict[str, Any] = {}
        """State of regularisers between updates, as JSON."""
        self.scorer = StreamScorer(model, bf16, rule.gradient_checkpointing)

    @cached_property
    def costs(self) -> Costs:
        """Cost model of the model's forward pass, for packing streams."""
        return estimate_costs(self.model, self.scorer.bf16)

    @cached_property
    def optimiser(self) -> Optimiser:
        """Optimiser, created at first use because play does not need it. Under ZeRO-3 it partitions the weights."""
        assert self.costs
        return Optimiser(self.scorer, self.rule)

    def plan(self, samples: Sequence[Sample], rng: np.random.Generator, clock: Clock = Clock()) -> Plan:
        """Plan an update from samples and the number of steps so far. Computes nothing on the device."""
        return Planner(self.name, self.rule, self.costs).plan_update(samples, rng, clock, self.steps)

    def plan_imitation(self, samples: Sequence[Sample], spec: ImitateSpec, rng: np.random.Generator) -> Plan:
        """Plan supervised learning on the samples by the settings `spec`."""
        return Planner(self.name, self.rule, self.costs).plan_imitation(samples, spec, rng)

    async def update(self, plan: Plan, on_step: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Carry out a plan; return metrics as means over tokens. Calls `on_step` in the event loop after each step.

        Raises GateError, before any weight changes, if the samples' behaviour log-probabilities are not those of the
        current weights. Other work for the computing thread, such as sampling, runs between micro-batches.
        """
        work = self._run_plan(plan)
        while True:
            progress = await compute(_advance, work)
            if isinstance(progress, dict):
                return progress
            if progress:
                on_step()

    async def score(self, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[StreamScores]:
        """Return log-probabilities and entropies of the sampled tokens under the current weights, without gradient."""
        return await compute(self.compute_scores, streams, temperatures)

    async def save(self) -> dict[str, torch.Tensor]:
        """Return the tensors of `Moments.named_tensors` by name: moments and master copies on the CPU."""
        return await compute(lambda: dict(self.optimiser.moments.named_tensors()))

    async def load(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Restore the optimiser's and the regularisers' state, but no weights, which come with the model."""
        moments = await compute(load_file, folder / "optimizer.safetensors")
        self.resume(state)
        await compute(self.load_moments, moments)

    def state(self) -> dict[str, Any]:
        """Return the JSON state for a checkpoint: `steps`, the regularisers' `memory`, and steps `imitated` if any."""
        return {"steps": self.steps, "memory": self.memory} | ({"imitated": self.imitated} if self.imitated else {})

    async def weights(self) -> ModuleWeights:
        """Return the trained module itself, whose parameters the engine serves; under ZeRO-3 it serves a copy."""
        return ModuleWeights(self.model, self._base, self.gather, copied=self.rule.zero_stage == 3)

    async def close(self) -> None:
        """Do nothing, because the memory is freed with the process."""

    def carry_out(self, plan: Plan, on_step: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Run `update` in the computing thread, without pauses: call `on_step` after every step, return the metrics."""
        work = self._run_plan(plan)
        while not isinstance(progress := _advance(work), dict):
            if progress:
                on_step()
        return progress

    def _run_plan(self, plan: Plan) -> Generator[bool, None, dict[str, float]]:
        """Carry out a plan; yields True after each step and False after each micro-batch, and returns the metrics."""
        engine, metrics, steps_taken, rank = self.optimiser.engine, UpdateMetrics(), 0, get_rank()
        gradients = Gradients(
            engine=engine,
            rule=self.rule,
            plan=plan,
            memory=self.memory,
            metrics=metrics,
            rank=rank.number,
            scale=rank.count,
        )
        self._gate(gradients.score_old())
        engine.train()
        for number, step in enumerate(plan.steps):
            gaps = yield from gradients.add(step)
            if step.is_gated:
                self._gate(gaps)
            metrics.record_gap(gaps)
            steps_taken += self._take_step(step, plan, plan.rates[steps_taken if plan.is_update else number], metrics)
            yield True
        engine.eval()
        self._require_finite(plan)
        self.memory = update_memory(self.memory, plan, reduce_over_ranks(gradients.seen, _join))
        if plan.is_update:
            self.steps += steps_taken
        elif plan.is_continued:
            self.imitated += steps_taken
        else:
            self.imitated = 0
            self.optimiser.moments.reset()
        return reduce_over_ranks(metrics, UpdateMetrics.plus).means()

    def compute_scores(self, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[StreamScores]:
        """Return the same as `score`; call it in the computing thread."""
        return score_with_entropy(self.optimiser.engine, streams, temperatures, self.rule.token_budget, self.costs)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Restore the values of `state`. Restore the moments afterwards, at once or in parts, with `load_moments`."""
        self.steps, self.imitated, self.memory = state["steps"], state.get("imitated", 0), dict(state["memory"])

    def load_moments(self, moments: Mapping[str, torch.Tensor]) -> None:
        """Restore the optimiser's tensors, named as by `Moments.named_tensors`. Call `resume` first."""
        self.optimiser.moments.load(moments, self.steps + self.imitated)

    def gather(self) -> AbstractContextManager[Any]:
        """Return a context in which all parameters are complete, also under ZeRO-3."""
        return gather_parameters(self.model.parameters(), self.rule.zero_stage)

    def _gate(self, gaps: Tally) -> None:
        gate.require_agreement(self.name, gaps, self.tolerance)

    def _take_step(self, step: Step, plan: Plan, lr: float, metrics: UpdateMetrics) -> bool:
        """Take one optimiser step; return False if it was skipped. Raises DivergedError if it must stop the run."""
        norm = max_over_ranks(self.optimiser.step(lr))
        is_taken = is_finite_step(norm, self.rule.nonfinite, step.label, plan.step_advice)
        metrics.count_step(norm, is_taken)
        return is_taken

    def _require_finite(self, plan: Plan) -> None:
        """Raise DivergedError unless the weights and their log-probabilities of the shortest stream are finite."""
        with self.gather():
            require_finite(
                trainable_parameters(self.model).values(), plan.label, "the weights are not finite", plan.advice
            )
        if not plan.samples:
            return
        shortest = min(plan.samples.values(), key=lambda s: len(s.stream.ids))
        scores = score_with_entropy(self.optimiser.engine, [shortest.stream], [shortest.temperature])
        logprobs = [torch.from_numpy(one.logprobs) for one in scores]
        finding = "log-probabilities under the new weights are not finite"
        require_finite(logprobs, plan.label, finding, plan.advice)


def _advance(work: Generator[bool, None, dict[str, float]]) -> bool | dict[str, float]:
    """Run the generator to its next pause; return the value that it yields, or the metrics when it ends."""
    try:
        return next(work)
    except StopIteration as end:
        metrics: dict[str, float] = end.value
        return metrics


def _join(one: Mapping[str, list[Any]], other: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: [*one[name], *other[name]] for name in one}


def create_local_trainer(policy: Policy, rule: UpdateSpec, bf16: bool) -> Trainer:
    """Create a trainer in this process that updates the policy's model by `rule`; `bf16` computes in bfloat16.

    Loads the model if necessary.
    """
    policy.load_model()
    return PolicyTrainer(policy.name, policy.model, rule, bf16, policy.base)
