"""Plans of updates: passes, weights and learning rates of every step, fixed before anything is computed.

A plan assigns samples to optimiser steps, passes and ranks, and gives each token its weight in the sum over the whole
step and all ranks. Ranks therefore need not communicate about it: each has the same number of passes, and the sum over
ranks is what a single rank would compute.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from agents.packing import Costs, Pass, Row, plan_passes
from agents.stream import Stream
from arena.learn.samples import Floats, Sample, group_paired, group_with_baselines, select_complete_pairs
from arena.learn.settings import ImitateSpec, UpdateSpec
from arena.parts.schedules import Clock

Item = TypeVar("Item")

IDLE = Pass((), 0)
"""A pass of two tokens with weight 0, for a rank without work while others compute."""

Shares = tuple[tuple[Pass, ...], ...]
"""Each rank's passes in order, over samples by number. All ranks have the same number of passes."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Plan of one optimiser step: its passes by rank, and the tokens' weights in the loss."""

    label: str
    """Label for messages: policy, iteration, epoch and minibatch."""
    played: Shares
    """Each rank's passes over the samples of the loss."""
    weights: Mapping[int, Floats]
    """Weight of each sampled token in the loss, by sample."""
    demonstrations: Shares
    """Each rank's passes over demonstrations to imitate."""
    demonstration_weight: float
    """Weight of each learned demonstration token."""
    pairs: tuple[int, ...] = ()
    """Numbers of the samples that a loss compares: both replies of each pair, or the baselines; () for other losses."""
    rivals: Shares = ()
    """Passes to score the samples `pairs` before the step; () if no weights have changed since they were scored."""
    is_gated: bool = False
    """True if the gate checks the step's own log-probabilities before the optimiser step."""

    def for_rank(self, rank: int) -> "Step":
        """Return the step with only one rank's passes and the weights of their samples."""
        played, rivals = _select_rank(self.played, rank), _select_rank(self.rivals, rank)
        weights = {i: self.weights[i] for i in _list_sample_numbers(played)}
        demonstrations = _select_rank(self.demonstrations, rank)
        return replace(self, played=played, weights=weights, demonstrations=demonstrations, rivals=rivals)

    @property
    def sample_numbers(self) -> set[int]:
        """Numbers of the samples that the step reads."""
        return {
            *_list_sample_numbers(self.played),
            *_list_sample_numbers(self.demonstrations),
            *_list_sample_numbers(self.rivals),
            *self.pairs,
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan of a policy's update or imitation: samples, optimiser steps and learning rates."""

    label: str
    """Label for messages: policy and iteration."""
    advice: str
    """Advice to the user if the weights diverge."""
    step_advice: str
    """Advice to the user if a step's gradient diverges."""
    samples: Mapping[int, Sample]
    """Samples by number: all of them, or those that one rank needs."""
    clock: Clock
    old: Shares | None
    """Passes to score and gate before the first step; None with a single step, whose forward pass gives the scores."""
    steps: tuple[Step, ...]
    """The steps, without empty ones."""
    rates: tuple[float, ...]
    """Learning rate of each step."""
    is_update: bool
    """True for an update: its steps add to the policy's number of steps, and a skipped one leaves its rate to the next.

    False for imitation, after which the optimiser is reset.
    """
    is_continued: bool = False
    """True if another part of the same imitation follows, so that the optimiser keeps its state."""

    def split(self, size: int, start: int = 0) -> Iterator["Plan"]:
        """Split an imitation's plan into plans of `size` steps, from step `start` on, with the same overall effect."""
        for first in range(start, len(self.steps), size):
            end = first + size
            steps, rates = self.steps[first:end], self.rates[first:end]
            yield replace(self, steps=steps, rates=rates, is_continued=end < len(self.steps))

    def for_rank(self, rank: int) -> "Plan":
        """Return one rank's part of the plan: its own passes, with the samples and weights that they need.

        All ranks also get the samples that the loss compares, and the shortest sample, which every rank scores last.
        """
        old = None if self.old is None else _select_rank(self.old, rank)
        steps = tuple(step.for_rank(rank) for step in self.steps)
        numbers = set(_list_sample_numbers(old or ())).union(*(step.sample_numbers for step in steps))
        if self.samples:
            numbers.add(min(self.samples, key=lambda i: len(self.samples[i].stream)))
        return replace(self, samples={i: self.samples[i] for i in sorted(numbers)}, old=old, steps=steps)


def _select_rank(shares: Shares, rank: int) -> Shares:
    """Return the shares with only one rank's passes."""
    return tuple(share if number == rank else () for number, share in enumerate(shares))


def _list_sample_numbers(shares: Shares) -> Iterator[int]:
    """Yield the sample numbers of all passes."""
    return (i for share in shares for forward_pass in share for i in forward_pass.index)


@dataclass(frozen=True)
class Planner:
    """Plans the updates of the policy `name` by its settings `rule`: passes, weights and rates of each step."""

    name: str
    rule: UpdateSpec
    costs: Costs
    """Cost model of a forward pass."""

    def plan_update(
        self, samples: Sequence[Sample], rng: np.random.Generator, clock: Clock, steps_before: int, ranks: int = 1
    ) -> Plan:
        """Plan an update: `rule.epochs` times `rule.minibatches` steps on samples in random order, without empty ones.

        `steps_before` is the number of the policy's earlier steps, for the warm-up. Every step adds
        `rule.demonstrations.weight` times the mean of -log p over its part of the demonstrations to the loss of played
        samples. Gate, ratio and regularisers exclude demonstrations, because no policy sampled them.
        """
        rule, steps = self.rule, list[Step]()
        weight = rule.demonstrations.weight(clock) if rule.demonstrations else 0.0
        played_samples = [s for s in samples if s.source != "demonstration"]
        units = [[i] for i in range(len(played_samples))]
        loss_needs = rule.loss.needs
        if "pairs" in loss_needs:
            played_samples = select_complete_pairs(played_samples)
            units = group_paired(played_samples)
        elif "baselines" in loss_needs:
            units = group_with_baselines(played_samples)
        all_samples = (*played_samples, *(s for s in samples if s.source == "demonstration" and weight))
        demonstrations = range(len(played_samples), len(all_samples))
        label = f"policy '{self.name}', iteration {clock.iteration}"
        for position, part, part_demonstrations in _draw_minibatches(
            units, demonstrations, rule.epochs, rule.minibatches, rng
        ):
            if step := self._plan_step(all_samples, part, part_demonstrations, weight, f"{label}, {position}", ranks):
                steps.append(
                    self._add_pairs(step, all_samples, part, ranks) if loss_needs & {"pairs", "baselines"} else step
                )
        return Plan(
            label=label,
            advice=f"lower learn.lr ({rule.lr:g})",
            step_advice=f"lower learn.lr ({rule.lr:g}) or learn.grad_clip",
            samples=dict(enumerate(all_samples)),
            clock=clock,
            old=self._distribute(self._make_passes(all_samples, range(len(played_samples))), ranks)
            if rule.steps > 1
            else None,
            steps=tuple(steps),
            rates=tuple(rule.lr * compute_warmup(steps_before + k, rule.warmup_steps) for k in range(len(steps))),
            is_update=True,
        )

    def plan_imitation(
        self, samples: Sequence[Sample], spec: ImitateSpec, rng: np.random.Generator, ranks: int = 1
    ) -> Plan:
        """Plan supervised learning on the samples, with the epochs, minibatches and learning rate of `spec`."""
        label, advice = f"policy '{self.name}', imitation", f"lower policies.{self.name}.imitate.lr ({spec.lr:g})"
        steps = [
            step
            for at, _, demonstrations in _draw_minibatches([], range(len(samples)), spec.epochs, spec.minibatches, rng)
            if (step := self._plan_step(samples, [], demonstrations, 1.0, f"{label}, {at}", ranks))
        ]
        total = spec.epochs * spec.minibatches
        decay_factors = [1.0 - k / total if spec.decay else 1.0 for k in range(len(steps))]
        rates = tuple(spec.lr * share * compute_warmup(k, _IMITATION_WARMUP) for k, share in enumerate(decay_factors))
        return Plan(
            label=label,
            advice=advice,
            step_advice=advice,
            samples=dict(enumerate(samples)),
            clock=Clock(),
            old=None,
            steps=tuple(steps),
            rates=rates,
            is_update=False,
        )

    def _plan_step(
        self,
        samples: Sequence[Sample],
        part: Sequence[int],
        demonstrations: Sequence[int],
        weight: float,
        label: str,
        ranks: int,
    ) -> Step | None:
        """Plan a step on the samples `part` and on `demonstrations`; None if there is nothing to learn."""
        share = 1.0 - weight if self.rule.demonstrations and self.rule.demonstrations.mixed else 1.0
        weights = {i: share * w for i, w in self._compute_weights(samples, part).items()}
        learned = any(w.any() for w in weights.values())
        if not learned and not demonstrations:
            return None
        part = [i for i in part if samples[i].learned.any()]
        passes = plan_passes([s.stream for s in samples], self.rule.token_budget, part, self.costs)
        count = sum(int(samples[i].learned.sum()) for i in demonstrations)
        return Step(
            label=label,
            played=self._distribute(passes if learned else [], ranks),
            weights={i: w.astype(np.float32) for i, w in weights.items()},
            demonstrations=self._distribute(self._make_passes(samples, demonstrations), ranks),
            demonstration_weight=weight / max(1, count),
            is_gated=self.rule.steps == 1,
        )

    def _add_pairs(self, step: Step, samples: Sequence[Sample], part: Sequence[int], ranks: int) -> Step:
        """Return the step with the pairs or baselines of its loss, and the passes to score them.

        A single step whose loss needs no reference gets no such passes, because no weights have changed yet.
        """
        if "baselines" in self.rule.loss.needs:
            part = [i for i in part if not samples[i].learned.any()]
        is_scored = self.rule.steps > 1 or "reference" in self.rule.loss.needs
        rivals = self._distribute(self._make_passes(samples, part), ranks) if is_scored else ()
        return replace(step, pairs=tuple(part), rivals=rivals)

    def _compute_weights(self, samples: Sequence[Sample], part: Sequence[int]) -> dict[int, np.ndarray]:
        """Return the weight of each token in the step's loss, by sample number, in float64."""
        part_samples = [samples[i] for i in part]
        sizes = [len(s.advantages) for s in part_samples]
        if not sum(sizes):
            return {}
        streams = np.repeat(np.arange(len(part_samples)), sizes)
        turns = np.unique(
            np.stack([streams, np.concatenate([s.turns for s in part_samples])]), axis=1, return_inverse=True
        )
        learned = np.concatenate([s.learned for s in part_samples])
        weights = self.rule.aggregate(turns[1].reshape(-1), streams, learned)
        return dict(zip(part, np.split(weights, np.cumsum(sizes)[:-1]), strict=True))

    def _make_passes(self, samples: Sequence[Sample], part: Sequence[int]) -> list[Pass]:
        """Return the passes over the samples with numbers `part`; samples of equal length keep the order of `part`."""
        streams = [samples[i].stream for i in part]
        passes = plan_passes(streams, self.rule.token_budget, costs=self.costs)
        return [_renumber(forward_pass, part) for forward_pass in passes]

    def plan_scoring(self, streams: Sequence[Stream], ranks: int) -> Shares:
        """Plan each rank's forward passes to score these streams without learning."""
        return self._distribute(plan_passes(streams, self.rule.token_budget, costs=self.costs), ranks)

    def _distribute(self, work: Iterable[Pass], ranks: int) -> Shares:
        """Distribute passes over ranks. Under ZeRO-3 they have no shared prefixes."""
        if ranks > 1 and self.rule.zero_stage == 3:  # all ranks call the model together, and a prefix is an extra call
            work = [_expand_prefix(forward_pass) for forward_pass in work]
        return distribute_passes(list(work), ranks)


def _renumber(forward_pass: Pass, numbers: Sequence[int]) -> Pass:
    """Return the pass with stream i renumbered to `numbers[i]`."""
    rows = (Row(tuple(numbers[i] for i in row.streams), row.size) for row in forward_pass.rows)
    return Pass(tuple(rows), forward_pass.prefix)


def _expand_prefix(forward_pass: Pass) -> Pass:
    """Return the pass without a shared prefix, so that every row computes it."""
    return Pass(tuple(Row(row.streams, row.size + forward_pass.prefix) for row in forward_pass.rows), 0)


def distribute_passes(work: list[Pass], ranks: int) -> Shares:
    """Return each rank's passes, so that all ranks have the same number of passes and similar work.

    A single rank gets all of them in order. For more ranks, the longest passes with several rows are split in two until
    the number of passes is a multiple of `ranks` or none can be split; then idle passes are added. Changes `work`.
    """
    while len(work) % ranks and (splittable := [k for k, each in enumerate(work) if len(each.rows) > 1]):
        index = max(splittable, key=lambda k: work[k].tokens)
        rows, prefix = work[index].rows, work[index].prefix
        half = (len(rows) + 1) // 2
        work[index : index + 1] = [Pass(rows[:half], prefix), Pass(rows[half:], prefix)]
    work += [IDLE] * (-len(work) % ranks)
    shares: list[list[int]] = [[] for _ in range(ranks)]
    for index in sorted(range(len(work)), key=lambda k: -work[k].tokens):
        incomplete = [share for share in shares if len(share) < len(work) // ranks]
        min(incomplete, key=lambda share: sum(work[k].tokens for k in share)).append(index)
    return tuple(tuple(work[index] for index in sorted(share)) for share in shares)


_IMITATION_WARMUP = 10


def compute_warmup(steps: int, warmup: int) -> float:
    """Return the learning rate's factor after `steps` steps; it rises linearly to 1 over `warmup` steps."""
    return min(1.0, (steps + 1) / (warmup + 1))


def _draw_minibatches(
    units: Sequence[list[int]], demonstrations: Sequence[int], epochs: int, count: int, rng: np.random.Generator
) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yield each step's label, sample numbers (of random units) and random demonstrations; either may be empty."""
    for epoch in range(1, epochs + 1):
        parts = _split_randomly(units, count, rng)
        for number, (part, part_demonstrations) in enumerate(
            zip(parts, _split_randomly(demonstrations, count, rng), strict=True), 1
        ):
            yield f"epoch {epoch}, minibatch {number}", [i for unit in part for i in unit], part_demonstrations


def _split_randomly(items: Sequence[Item], count: int, rng: np.random.Generator) -> list[list[Item]]:
    """Split all items in random order into `count` parts of nearly equal size."""
    return [[items[i] for i in part] for part in np.array_split(rng.permutation(len(items)), count)]
