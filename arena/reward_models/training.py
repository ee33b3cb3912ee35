"""Training loop of reward models, and their losses and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from arena.credit.rewards.reward_model import WEIGHTS
from arena.fitting.loop import TrainingLoop, split_steps
from arena.learn.divergence import Nonfinite
from arena.learn.plan import compute_warmup
from arena.learn.reward_model import RewardModel, append_score_token, bradley_terry, logistic, squared_error
from arena.learn.scalar_head import Floats, HeadOptimiser
from arena.parts.chance import generator
from arena.play.watchers import Watcher
from arena.reward_models.examples import Example, Examples, Objective
from arena.store.run import RunFolder


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """Settings of a reward model's training loop, as in the pipeline stage `reward_model`."""

    objective: Objective
    epochs: int
    batch: int
    lr: float
    warmup_steps: int
    grad_clip: float
    token_budget: int
    nonfinite: Nonfinite
    iterations: int
    seed: int
    keep: int = 2
    """Number of checkpoints to keep."""

    def steps(self, examples: int) -> int:
        """Return the number of optimiser steps for this number of examples."""
        return self.epochs * -(-examples // self.batch)

    def parts(self, examples: int) -> list[range]:
        """Return each iteration's range of step numbers."""
        return split_steps(self.steps(examples), self.iterations)


class RewardModelTraining(TrainingLoop):
    """Training loop of a reward model in a run folder, which starts from the newest checkpoint."""

    def __init__(
        self, run: RunFolder, model: Path, fit: FitSettings, examples: Examples, watcher: Watcher, bf16: bool = False
    ) -> None:
        """Prepare to train from the weights in the folder `model`. The caller holds the run's lock."""
        identity = {name: value for name, value in vars(fit).items() if name not in ("keep", "nonfinite")}
        identity |= {"digest": examples.digest}
        super().__init__(WEIGHTS, run, identity, fit.parts(len(examples.train)), fit.keep, watcher)
        self.source, self.fit, self.examples, self._bf16 = model, fit, examples, bf16

    def evaluate_held_out(self) -> dict[str, float]:
        """Return the model's metrics on the held-out examples."""
        return self.test(self.examples.held_out)

    def test(self, examples: Sequence[Example]) -> dict[str, float]:
        """Return the model's metrics on examples (see `compute_figures`), without learning."""
        scores = self._model.score([s for example in examples for s in example.streams], self.fit.token_budget)
        return compute_figures(scores, [example.value for example in examples], self.fit.objective)

    def step(self, number: int) -> dict[str, float]:
        """Take step `number` of the run. Returns its batch's metrics from before the step, and the gradient norm."""
        fit, train = self.fit, self.examples.train
        per_epoch = -(-len(train) // fit.batch)
        epoch, position = divmod(number, per_epoch)
        order = generator(fit.seed, epoch, WEIGHTS).permutation(len(train))
        batch = [train[i] for i in order[position * fit.batch : (position + 1) * fit.batch].tolist()]
        scores = []
        for part in _split_examples(batch, fit.token_budget):
            part_scores = self._model(
                [append_score_token(s) for example in part for s in example.streams], fit.token_budget
            )
            values = torch.tensor([example.value for example in part], device=part_scores.device)
            torch.autograd.backward(compute_losses(part_scores, values, fit.objective).sum() / len(batch))
            scores.append(part_scores.detach().cpu().numpy())
        self.optimiser.set_rate(fit.lr * compute_warmup(number, fit.warmup_steps))
        norm = self.optimiser.step(fit.grad_clip)
        metrics = compute_figures(np.concatenate(scores), [example.value for example in batch], fit.objective)
        return {name: metrics[name] for name in ("loss", "accuracy", "margin") if name in metrics} | {"grad_norm": norm}

    def load(self, folder: Path | None) -> HeadOptimiser:
        """Load the model from a checkpoint's folder, or the initial one if None, and return a new optimiser."""
        self._model = RewardModel.load(folder or self.source, self._bf16)
        advice, setting = f"lower its lr ({self.fit.lr:g})", "its setting nonfinite"
        return HeadOptimiser(self._model.module, self.fit.lr, self.fit.nonfinite, "reward model", advice, setting)

    def save(self, folder: Path) -> None:
        """Write the model to a folder."""
        self._model.save(folder)


def compute_losses(scores: torch.Tensor, values: torch.Tensor, objective: Objective) -> torch.Tensor:
    """Return the loss of each example.

    `scores` has one score per stream, which is two successive ones per example for bradley_terry, else one. `values`
    has the examples' margins (bradley_terry) or labels.
    """
    if objective == "bradley_terry":
        return bradley_terry(scores[::2], scores[1::2], values)
    return (logistic if objective == "logistic" else squared_error)(scores, values)


def compute_figures(scores: Floats, values: Sequence[float], objective: Objective) -> dict[str, float]:
    """Return metrics of the scores of examples with these margins or labels: the mean `loss`, and by objective:

    | objective | metrics |
    |---|---|
    | bradley_terry | `accuracy`: share of pairs in the right order, ties count half; `margin`: mean difference |
    | logistic | `accuracy`: share of labels that the score's sign predicts; `margin`: mean score of label 1 minus 0 |
    | squared | `explained`: 1 - mean squared error / variance of the labels |

    The first two also have `calibration`, the expected calibration error of the predicted probabilities over ten bins.
    """
    targets = torch.tensor(list(values), dtype=torch.float32)
    metrics = {"loss": float(compute_losses(torch.from_numpy(scores), targets, objective).mean())}
    labels = np.asarray(values, np.float64)
    if objective == "squared":
        variance = float(labels.var())
        return metrics | ({"explained": 1.0 - 2.0 * metrics["loss"] / variance} if variance > 0 else {})
    if objective == "bradley_terry":
        gap, right = scores[::2] - scores[1::2], np.ones(len(labels))
        metrics["margin"] = float(gap.mean())
    else:
        gap, right = scores, labels
        if 0 < right.sum() < len(right):
            metrics["margin"] = float(gap[right == 1].mean() - gap[right == 0].mean())
    hits = np.where(gap == 0, 0.5, (gap > 0) == (right == 1))
    return metrics | {"accuracy": float(hits.mean()), "calibration": _calibration_error(gap, hits)}


def _calibration_error(gap: Floats, hits: Any) -> float:
    """Return the expected calibration error of the confidences σ(|gap|) for the outcomes `hits`, over ten bins."""
    confidence = 1.0 / (1.0 + np.exp(-np.abs(gap.astype(np.float64))))
    bins = np.minimum((confidence - 0.5) * 20, 9).astype(int)
    return float(sum(abs((confidence - hits)[bins == k].sum()) for k in np.unique(bins)) / len(gap))


def _split_examples(examples: Sequence[Example], token_budget: int) -> Iterator[list[Example]]:
    """Split examples into micro-batches of at most `token_budget` tokens, or one example if that is longer."""
    part, tokens = list[Example](), 0
    for example in examples:
        size = sum(map(len, example.streams))
        if part and tokens + size > token_budget:
            yield part
            part, tokens = [], 0
        part, tokens = [*part, example], tokens + size
    if part:
        yield part
