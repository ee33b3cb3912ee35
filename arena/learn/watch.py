"""Metrics of an update."""

import torch

from arena.learn.batches import TokenBatch
from arena.learn.losses import TokenLoss
from arena.learn.ranks import Tally
from arena.learn.regularisers import k3


class Watch:
    """Accumulates an update's metrics: means over tokens, and counts."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.skipped = 0
        """Steps that were left out."""

    def add(self, name: str, values: torch.Tensor) -> None:
        """Values to take the mean of."""
        self.sums[name] = self.sums.get(name, 0.0) + float(values.detach().sum())
        self.counts[name] = self.counts.get(name, 0) + values.numel()

    def step(self, tokens: TokenBatch, objective: torch.Tensor, token: TokenLoss) -> None:
        """A micro-batch's loss, over the tokens that are in it."""
        own = tokens.learned
        self.add("loss", objective[own])
        self.add("entropy", tokens.entropy[own])
        self.add("clipped", token.clipped[own].float())
        self.add("advantage_size", tokens.advantages[own].abs())
        if token.correction is not None:
            self.add("correction", token.correction[own])
        if tokens.reference is not None:
            self.add("kl", k3(tokens.logprobs, tokens.reference)[own])

    def optimised(self, norm: float, taken: bool) -> None:
        """A step was taken, or left out because its gradient's norm is not finite."""
        self.skipped += not taken
        if taken:
            self.sums["grad_norm"] = self.sums.get("grad_norm", 0.0) + norm
            self.counts["grad_norm"] = self.counts.get("grad_norm", 0) + 1

    def gap(self, gaps: Tally) -> None:
        """Note how far the sampler's log-probabilities are from the trainer's; of the first step only."""
        if "logprob_gap" not in self.sums and gaps.count:  # later steps differ from the sampler because they learned
            self.sums["logprob_gap"], self.counts["logprob_gap"] = gaps.total, gaps.count

    def plus(self, other: "Watch") -> "Watch":
        """Combine the metrics of two ranks' shares of an update."""
        both = Watch()
        both.sums = {name: self.sums.get(name, 0.0) + other.sums.get(name, 0.0) for name in self.sums | other.sums}
        both.counts = {name: self.counts.get(name, 0) + other.counts.get(name, 0) for name in both.sums}
        both.skipped = self.skipped
        return both

    def means(self) -> dict[str, float]:
        """Means of everything that was added; and how many steps were taken and skipped, on how many tokens.

        A token that several steps learned from counts as often.
        """
        means = {name: self.sums[name] / max(1, self.counts[name]) for name in self.sums}
        done = {"steps": self.counts.get("grad_norm", 0), "tokens": self.counts.get("loss", 0)}
        return means | done | {"skipped": self.skipped}
