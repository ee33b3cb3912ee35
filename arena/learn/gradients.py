"""One rank's share of an update's gradients: the steps of a plan, one micro-batch at a time."""

from collections.abc import Generator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from agents.heap import record_use, trim_memory
from agents.scoring import StreamScores, build_batch, score_passes, split_by_stream
from arena.learn.batches import TokenBatch, make_token_batch
from arena.learn.gate import select_comparable_gaps
from arena.learn.losses import TokenLoss
from arena.learn.plan import Plan, Shares, Step
from arena.learn.ranks import Tally, reduce_over_ranks
from arena.learn.regularisers import find_memories, k3
from arena.learn.samples import Floats, compute_rival_changes
from arena.learn.settings import UpdateSpec

_WEIGHT, _SQUARE = "weight", "weight squared"


class UpdateMetrics:
    """Running means and counts of an update's metrics; `means` returns the result."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.skipped = 0
        """Number of skipped steps."""

    def add(self, name: str, values: torch.Tensor) -> None:
        """Add values to the running mean of the metric `name`."""
        self.sums[name] = self.sums.get(name, 0.0) + float(values.detach().sum())
        self.counts[name] = self.counts.get(name, 0) + values.numel()

    def add_micro_batch(self, tokens: TokenBatch, objective: torch.Tensor, token_loss: TokenLoss) -> None:
        """Add loss, entropy, clipping, |advantage|, correction and KL of a micro-batch's tokens in the loss."""
        own = tokens.learned
        self.add("loss", objective[own])
        self.add("entropy", tokens.entropy[own])
        self.add("clipped", token_loss.clipped[own].float())
        self.add("advantage_size", tokens.advantages[own].abs())
        if token_loss.correction is not None:
            self.add("correction", token_loss.correction[own])
        if tokens.reference is not None:
            self.add("kl", k3(tokens.logprobs, tokens.reference)[own])

    def add_logged(self, tokens: TokenBatch, token_loss: TokenLoss) -> None:
        """Add a micro-batch of another run's log to the effective sample size that `means` returns."""
        weights = tokens.advantages.abs()
        if token_loss.correction is not None:
            weights = weights * (tokens.old - tokens.behaviour).clamp(-20.0, 20.0).exp()
        self.add(_WEIGHT, weights[tokens.learned])
        self.add(_SQUARE, weights[tokens.learned].double().square())

    def count_step(self, norm: float, is_taken: bool) -> None:
        """Count an optimiser step and its gradient norm, or count it as skipped if it was not taken."""
        self.skipped += not is_taken
        if is_taken:
            self.sums["grad_norm"] = self.sums.get("grad_norm", 0.0) + norm
            self.counts["grad_norm"] = self.counts.get("grad_norm", 0) + 1

    def record_gap(self, gaps: Tally) -> None:
        """Record the mean log-probability gap between sampler and trainer. Only the first call with tokens counts."""
        if "logprob_gap" not in self.sums and gaps.count:  # after a step, the weights differ from the sampler's
            self.sums["logprob_gap"], self.counts["logprob_gap"] = gaps.total, gaps.count

    def plus(self, other: "UpdateMetrics") -> "UpdateMetrics":
        """Return the combined metrics of two ranks' shares of an update."""
        both = UpdateMetrics()
        both.sums = {name: self.sums.get(name, 0.0) + other.sums.get(name, 0.0) for name in self.sums | other.sums}
        both.counts = {name: self.counts.get(name, 0) + other.counts.get(name, 0) for name in both.sums}
        both.skipped = self.skipped
        for values in both.sums, both.counts:  # all ranks take the same steps
            values.pop("grad_norm", None)
        if "grad_norm" in self.sums:
            both.sums["grad_norm"], both.counts["grad_norm"] = self.sums["grad_norm"], self.counts["grad_norm"]
        return both

    def means(self) -> dict[str, float]:
        """Return the mean of every metric, and the numbers of `steps` taken, of `skipped` steps and of `tokens`.

        A token counts once in each step that learns from it. If the tokens come from another run's log, `effective` is
        their effective sample size as a share of their number, (mean w)² / mean w². Their weights w are |A|, times the
        importance ratio to the sampler if the loss has a correction.
        """
        means = {name: self.sums[name] / max(1, self.counts[name]) for name in self.sums}
        if _WEIGHT in means:
            mean, square = means.pop(_WEIGHT), means.pop(_SQUARE)
            means["effective"] = mean**2 / square if square else 0.0
        done = {"steps": self.counts.get("grad_norm", 0), "tokens": self.counts.get("loss", 0)}
        return means | done | {"skipped": self.skipped}


class Gradients:
    """Accumulator of the gradients of a plan's steps on one rank: call `score_old` once, then `add` for each step.

    Also updates `metrics`, and collects the statistics of stateful regularisers in `seen`.
    """

    def __init__(
        self,
        *,
        engine: Any,
        rule: UpdateSpec,
        plan: Plan,
        memory: Mapping[str, Any],
        metrics: UpdateMetrics,
        rank: int = 0,
        scale: int = 1,
    ) -> None:
        """Prepare to carry out `plan`. `engine` scores a `StreamBatch` and backpropagates losses.

        `memory` is the regularisers' state. `scale` multiplies every loss, because losses are sums over ranks and
        DeepSpeed averages over them.
        """
        self.engine, self.rule, self.plan, self.metrics, self.rank = engine, rule, plan, metrics, rank
        self.scale = scale
        self._past = MappingProxyType(dict(memory))
        self._memories = find_memories(rule.regularisers)
        self.seen: dict[str, list[Any]] = {name: [] for name in self._memories}
        """Statistics for stateful regularisers, by name, one entry per micro-batch."""
        self._streams = {i: s.stream for i, s in plan.samples.items()}
        self._temperatures = {i: s.temperature for i, s in plan.samples.items()}
        self.old: dict[int, Floats] | None = None
        """Log-probabilities at the start of the update, by sample."""

    def score_old(self) -> Tally:
        """Score the tokens under the weights before the first step, if the plan needs it, and store this in `old`.

        Returns, for the gate, the absolute differences to the sampler's log-probabilities over all ranks. Empty if
        nothing was scored.
        """
        if self.plan.old is None:
            return Tally()
        scores = self._score(self.plan.old)
        self.old = {i: score.logprobs for i, score in scores.items()}
        samples = self.plan.samples
        numbers = sorted(i for forward_pass in self.plan.old[self.rank] for i in forward_pass.index)
        gaps = select_comparable_gaps((samples[i], self.old[i] - samples[i].behaviour) for i in numbers)
        return reduce_over_ranks(Tally.of(gaps), Tally.plus)

    def add(self, step: Step) -> Generator[bool, None, Tally]:
        """Add a step's gradient, and yield False after every micro-batch of played samples.

        Returns the absolute differences between the sampler's and the current log-probabilities, over all ranks.
        """
        gaps = (yield from self._add_played(step)) if step.played[self.rank] else []
        self._add_demonstrations(step)
        return reduce_over_ranks(Tally.of(gaps), Tally.plus)

    def _add_played(self, step: Step) -> Generator[bool, None, list[np.ndarray]]:
        """Add the gradient of played samples, and return the log-probability gaps that the gate compares."""
        gaps, samples, rivals = [], self.plan.samples, self._compute_rival_log_ratios(step)
        for forward_pass in step.played[self.rank]:
            batch = build_batch(self._streams, self._temperatures, forward_pass).to(self.engine.device)
            teachers = [teacher for i in forward_pass.index if (teacher := samples[i].teacher) is not None]
            if teachers and len(teachers) == len(forward_pass.index):
                batch = replace(batch, teacher=torch.from_numpy(np.concatenate(teachers)).to(self.engine.device))
            scores = self.engine(batch)
            if not forward_pass.index:
                self._backpropagate(scores.logprobs.sum() * 0.0)
                continue
            tokens = make_token_batch(batch, scores, samples, self.old, self.plan.clock, self._past, rivals)
            gaps_by_stream = split_by_stream(batch, tokens.logprobs - tokens.behaviour)
            gaps += select_comparable_gaps((samples[i], gap) for i, gap in gaps_by_stream)
            weights = np.concatenate([step.weights[i] for i in forward_pass.index])
            token_loss = self.rule.loss(tokens)
            objective = token_loss.loss
            for name, regulariser in self.rule.regularisers.items():
                if "reference" not in regulariser.needs or tokens.reference is not None:
                    term = regulariser(tokens, token_loss)
                    objective = objective + term
                    self.metrics.add(f"{name}_term", term[tokens.learned])
            for name, memory in self._memories.items():
                self.seen[name].append(memory.collect(tokens))
            self._backpropagate((objective * torch.from_numpy(weights).to(self.engine.device)).sum())
            if self.rule.gradient_checkpointing:
                trim_memory()
            self.metrics.add_micro_batch(tokens, objective, token_loss)
            if samples[forward_pass.index[0]].source == "logged":
                self.metrics.add_logged(tokens, token_loss)
            yield False
        return gaps

    def _add_demonstrations(self, step: Step) -> None:
        """Add the gradient of the demonstrations' weighted mean of -log p."""
        for forward_pass in step.demonstrations[self.rank]:
            scores = self.engine(build_batch(self._streams, self._temperatures, forward_pass).to(self.engine.device))
            if not forward_pass.index:
                self._backpropagate(scores.logprobs.sum() * 0.0)
                continue
            learned = np.concatenate([self.plan.samples[i].learned for i in forward_pass.index])
            loss = -scores.logprobs[torch.from_numpy(learned).to(self.engine.device)]
            self._backpropagate(loss.sum() * step.demonstration_weight)
            self.metrics.add("shown_loss", loss)

    def _backpropagate(self, loss: torch.Tensor) -> None:
        """Backpropagate this rank's share of the loss, times `scale`."""
        record_use()  # memory use peaks between the forward and the backward pass
        self.engine.backward(loss * self.scale)

    def _compute_rival_log_ratios(self, step: Step) -> dict[int, Floats] | None:
        """Return the log-ratio of each token's paired reply before the step, by sample; None if the loss needs none.

        For a loss with baselines, it is the step's estimate of the KL: the baselines' mean log-ratio, at least 0.
        """
        needs, samples = self.rule.loss.needs, self.plan.samples
        if not needs & {"pairs", "baselines"}:
            return None
        paired = [samples[i] for i in step.pairs]
        changes = [np.zeros(len(s.advantages), np.float32) for s in paired]
        if step.rivals:
            scores = self._score(step.rivals)
            changes = [scores[i].logprobs - self._get_base_logprobs(i) for i in step.pairs]
        if "pairs" in needs:
            return dict(zip(step.pairs, compute_rival_changes(paired, changes), strict=True))
        estimate = max(0.0, float(np.mean([change.sum() for change in changes]))) if changes else 0.0
        return {i: np.full(len(s.advantages), estimate, np.float32) for i, s in samples.items()}

    def _get_base_logprobs(self, number: int) -> Floats:
        """Return a sample's reference or old log-probabilities, whichever the loss on pairs compares with."""
        reference = self.plan.samples[number].reference
        if "reference" in self.rule.loss.needs:
            assert reference is not None
            return reference
        assert self.old is not None
        return self.old[number]

    def _score(self, shares: Shares) -> dict[int, StreamScores]:
        """Score the samples of all ranks under the current weights, by number. Each rank computes its own share."""
        own_scores = score_passes(self.engine, self._streams, self._temperatures, shares[self.rank])
        return reduce_over_ranks(own_scores, lambda one, other: one | other)


def update_memory(memory: Mapping[str, Any], plan: Plan, seen: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return the regularisers' state after an update, given their statistics of each micro-batch (`seen`)."""
    after = dict(memory)
    for name, memory_rule in find_memories(seen).items():
        for statistics in seen[name]:
            after[name] = memory_rule.merge(after.get(name), plan.clock, statistics)
    return after
