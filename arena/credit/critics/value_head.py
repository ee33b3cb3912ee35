"""The token-level critic `value_head`: a copy of each trained policy that predicts returns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from agents.computing import compute
from agents.model_folder import silence_transformers
from agents.policy import load_module
from agents.scoring import StreamBatch, pack
from agents.stream import Stream
from arena.credit.batch import CreditedTrajectory, TurnBatch
from arena.credit.estimators.gae import compute_token_returns
from arena.learn.scalar_head import Floats, HeadOptimiser, ScalarHead, create_zero_head
from arena.records import Trajectory

if TYPE_CHECKING:
    from agents.published import Weights
    from arena.credit.critics.base import CriticContext, Measures
    from arena.learn.divergence import Nonfinite

_HEAD = "value_head.safetensors"


class ValueModel(ScalarHead):
    """A policy's body with a scalar head that values the state before each sampled token."""

    def __init__(self, model: Any, bf16: bool = False) -> None:
        super().__init__(model, create_zero_head(model, bias=True), bf16)


def value_loss(
    values: torch.Tensor, returns: torch.Tensor, old: torch.Tensor | None = None, clip: float | None = None
) -> torch.Tensor:
    """Return each token's squared-error loss, [N]: ½ (V - R)²; with `old` and `clip`, PPO's clipped form.

    It is ½ max((V - R)², (old + clip(V - old, ±clip) - R)²), where `old` are the values before the update.
    """
    plain = (values - returns).square()
    if old is None or clip is None:
        return 0.5 * plain
    return 0.5 * torch.maximum(plain, (old + (values - old).clamp(-clip, clip) - returns).square())


class _Learner:
    """The value model of one policy with its optimiser."""

    def __init__(self, model: ValueModel, lr: float, token_budget: int, nonfinite: Nonfinite, name: str) -> None:
        self.model, self.token_budget = model, token_budget
        advice = f"lower credit.critic.value_head.lr ({lr:g}) or scale rewards down with credit.weights"
        self.optimiser = HeadOptimiser(model, lr, nonfinite, f"critic value_head of policy '{name}'", advice)

    def predict(self, streams: Sequence[Stream]) -> list[Floats]:
        """Return the values of each stream's sampled tokens, in stream order, without gradient."""
        return self.model.predict(streams, self.token_budget)

    def step(
        self,
        streams: Sequence[Stream],
        returns: Sequence[Floats],
        old: Sequence[Floats] | None,
        part: Sequence[int],
        clip: float | None,
        grad_clip: float,
    ) -> tuple[float, int]:
        """Take one step on `streams[i]`, i in `part`; return (sum of squared errors before it, number of tokens).

        `old` and `clip` are as for `value_loss`; `grad_clip` bounds the gradient's norm. Without tokens there is no
        step.
        """
        count, errors = sum(len(returns[i]) for i in part), 0.0
        for batch in pack(streams, [1.0] * len(streams), self.token_budget, part, self.model.costs):
            values = self.model(batch.to(self.model.device))
            target = self._concatenate(returns, batch)
            loss = value_loss(values, target, None if old is None else self._concatenate(old, batch), clip)
            errors += float((values.detach() - target).square().sum())
            torch.autograd.backward(loss.sum() / count)
        if count:
            self.optimiser.step(grad_clip)
        return errors, count

    def _concatenate(self, arrays: Sequence[Floats], batch: StreamBatch) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([arrays[i] for i in batch.index])).to(self.model.device)

    def save(self, folder: Path) -> None:
        """Write the body in Hugging Face layout, and the value head and optimiser moments to a file beside it."""
        with silence_transformers():
            self.model.model.save_pretrained(folder)
        self.optimiser.save(folder / _HEAD)

    def load(self, folder: Path) -> None:
        """Restore the value head, optimiser moments and number of steps; the body was loaded with the model."""
        self.optimiser.load(folder / _HEAD)


class ValueHead:
    """Token-level critic with a value model per trained policy, created as a copy of the policy when first needed."""

    def __init__(
        self, *, context: CriticContext, lr: float, epochs: int, minibatches: int, clip: float | None, grad_clip: float
    ) -> None:
        if context.policies is None:
            raise ValueError("critic value_head needs the weights of a run: a match log alone is not enough")
        self.policies, self.discounts, self.nonfinite = context.policies, context.discounts, context.nonfinite
        self.lr, self.epochs, self.minibatches = lr, epochs, minibatches
        self.clip, self.grad_clip = clip, grad_clip
        self._learners: dict[str, _Learner] = {}

    async def predict(self, trajectories: Sequence[Trajectory]) -> Measures:
        """Return the values of the states before sampled tokens (`token_values`) and before turns (`values`).

        One array per trajectory and name; a turn's value is its first token's. Creates missing value models.
        """
        await self._create_missing({t.policy for t in trajectories})
        return await compute(self._predict, trajectories)

    def _predict(self, trajectories: Sequence[Trajectory]) -> Measures:
        tokens: list[Floats] = [np.zeros(0, np.float32)] * len(trajectories)
        for policy in sorted({t.policy for t in trajectories}):
            members = [i for i, t in enumerate(trajectories) if t.policy == policy]
            values = iter(self._learners[policy].predict([s for i in members for s in trajectories[i].streams]))
            for i in members:
                tokens[i] = np.concatenate([np.zeros(0, np.float32), *(next(values) for _ in trajectories[i].streams)])
        return {
            "token_values": tokens,
            "values": [_extract_turn_values(t, v) for t, v in zip(trajectories, tokens, strict=True)],
        }

    async def fit(self, credited: Sequence[CreditedTrajectory], rng: np.random.Generator) -> dict[str, float]:
        """Train each policy's value model on its own trajectories, and return metrics.

        Takes `epochs` times `minibatches` steps. Metrics are `POLICY.error` (mean squared error before the steps),
        `POLICY.skipped` (number of skipped steps) and, if returns vary, `POLICY.explained` (1 - error / variance of the
        returns). Raises DivergedError for a step with a non-finite gradient if `nonfinite` is `stop`, and if the
        weights are not finite afterwards.
        """
        await self._create_missing({c.trajectory.policy for c in credited})
        return await compute(self._fit, credited, rng)

    def _fit(self, credited: Sequence[CreditedTrajectory], rng: np.random.Generator) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for policy in sorted({c.trajectory.policy for c in credited}):
            policy_credited = [c for c in credited if c.trajectory.policy == policy]
            stats = self._fit_policy(self._learners[policy], policy_credited, rng)
            metrics |= {f"{policy}.{name}": value for name, value in stats.items()}
        return metrics

    def save(self, folder: Path) -> None:
        """Write each policy's value model and tokenizer to a subfolder with the policy's name."""
        for policy, learner in self._learners.items():
            learner.save(folder / policy)
            self.policies[policy].tokenizer.save_pretrained(folder / policy)

    def load(self, folder: Path) -> None:
        """Restore the value models that `save` wrote."""
        for path in sorted(folder.iterdir()):
            self._learners[path.name] = self._load_learner(path.name, path)
            self._learners[path.name].load(path)

    def _fit_policy(
        self, learner: _Learner, credited: Sequence[CreditedTrajectory], rng: np.random.Generator
    ) -> dict[str, float]:
        batch = TurnBatch([c.trajectory for c in credited])
        streams = [s for c in credited for s in c.trajectory.streams]
        targets = compute_token_returns(batch, np.concatenate([c.rewards for c in credited]), self.discounts).astype(
            np.float32
        )
        returns = np.split(targets, np.cumsum([s.sampled_count for s in streams]))[:-1]
        old = learner.predict(streams) if self.clip is not None else None
        errors, counts, learner.optimiser.skipped = [], [], 0
        for _ in range(self.epochs):
            for part in np.array_split(rng.permutation(len(streams)), self.minibatches):
                error, count = learner.step(streams, returns, old, part.tolist(), self.clip, self.grad_clip)
                errors.append(error)
                counts.append(count)
        learner.optimiser.require_finite()
        error, variance = sum(errors) / max(1, sum(counts)), float(targets.var()) if len(targets) else 0.0
        metrics = {"error": error, "skipped": float(learner.optimiser.skipped)}
        return metrics | ({"explained": 1.0 - error / variance} if variance > 0 else {})

    async def _create_missing(self, policies: Collection[str]) -> None:
        """Create missing value models from their policies' current weights."""
        for policy in sorted(set(policies) - self._learners.keys()):
            weights = await self.policies.weights(policy)
            self._learners[policy] = await compute(self._copy_policy, policy, weights)

    def _copy_policy(self, policy: str, weights: Weights) -> _Learner:
        with TemporaryDirectory(prefix="arena-critic-") as folder:
            self.policies.save_whole(policy, Path(folder), weights)
            return self._load_learner(policy, Path(folder))

    def _load_learner(self, policy: str, folder: Path) -> _Learner:
        model = ValueModel(load_module(folder), self.policies.precision.uses_bf16_products)
        return _Learner(model, self.lr, self.policies.rule.token_budget, self.nonfinite, policy)


def _extract_turn_values(trajectory: Trajectory, tokens: Floats) -> Floats:
    """Return each turn's value, [K]: that of its first token, 0 for a turn without tokens."""
    turns, first = np.unique(TurnBatch([trajectory]).token_turns, return_index=True)
    values = np.zeros(len(trajectory.turns), np.float32)
    values[turns] = tokens[first]
    return values
