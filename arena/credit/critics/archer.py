"""ArCHer's critic: twin values of states and replies, learned off-policy from a replay buffer of turns."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from agents.computing import compute
from arena.credit.batch import CreditedTrajectory, TurnBatch
from arena.credit.critics.linear import measure_fit, split_by_trajectory
from arena.credit.critics.networks import Networks, compute_q_targets, twin_loss
from arena.credit.critics.words import hash_prompts, hash_replies, hash_states
from arena.learn.adamw import NamedAdamW
from arena.records import Trajectory

if TYPE_CHECKING:
    from arena.credit.critics.base import CriticContext, Measures

_GRAMS = 2
_NETWORKS = "networks.safetensors"
_BUFFER = "buffer.safetensors"


@dataclass
class TurnBuffer:
    """Replay buffer of turns as tensors with R rows, the oldest first; a trajectory's turns are consecutive."""

    states: torch.Tensor
    """[R, features] float16"""
    replies: torch.Tensor
    """[R, features] float16"""
    rewards: torch.Tensor
    """[R] float32"""
    last: torch.Tensor
    """[R] bool: end of a trajectory; otherwise the next row is the next state."""

    @classmethod
    def empty(cls, features: int) -> TurnBuffer:
        """Return an empty buffer for states and replies of `features` numbers."""
        no_rows = torch.zeros((0, features), dtype=torch.float16)
        return cls(no_rows, no_rows, torch.zeros(0), torch.zeros(0, dtype=torch.bool))

    def __len__(self) -> int:
        return len(self.last)

    def add(self, newest: TurnBuffer, size: int) -> None:
        """Append the turns of `newest` and drop the oldest rows beyond `size`, but none of `newest`."""
        dropped = max(0, min(len(self), len(self) + len(newest) - size))
        for name in ("states", "replies", "rewards", "last"):
            setattr(self, name, torch.cat([getattr(self, name)[dropped:], getattr(newest, name)]))


@dataclass(frozen=True, kw_only=True)
class ArcherSettings:
    """Settings of the critic `archer`; `arena.credit.critics.archer` documents them."""

    gamma: float
    lr: float
    steps: int
    replay: int
    warmup: int
    reads: Literal["words", "prompt"]
    features: int = 256
    hidden: int = 128
    polyak: float = 0.1
    batch: int = 256


class Archer:
    """ArCHer's critic, one for all trained policies; its state features include game, role and policy."""

    name = "archer"
    """Name in settings and messages."""

    def __init__(self, context: CriticContext, settings: ArcherSettings) -> None:
        self.settings = settings
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(context.seed)
            self.networks = Networks(settings.features, settings.hidden)
        self.target = copy.deepcopy(self.networks).requires_grad_(False)
        online = {f"online.{name}": parameter for name, parameter in self.networks.named_parameters()}
        target = {f"target.{name}": parameter for name, parameter in self.target.named_parameters()}
        advice = f"lower credit.critic.{self.name}.lr ({settings.lr:g}) or scale rewards down with credit.weights"
        self.optimiser = NamedAdamW(
            online, settings.lr, context.nonfinite, f"critic {self.name}", advice, saved=online | target
        )
        self.buffer = TurnBuffer.empty(settings.features)
        self.fit_count = 0
        """Number of iterations that the critic has learned from."""

    async def predict(self, trajectories: Sequence[Trajectory]) -> Measures:
        """Return per turn the lower of the twin state values (`values`) and reply values (`action_values`).

        One array per trajectory and name; all 0 during the first `warmup` iterations.
        """
        return await compute(self._predict, trajectories)

    def _predict(self, trajectories: Sequence[Trajectory]) -> Measures:
        v, q = self._compute_values(*self._compute_features(trajectories))
        return {
            "values": split_by_trajectory(trajectories, v.numpy()),
            "action_values": split_by_trajectory(trajectories, q.numpy()),
        }

    def _compute_values(self, states: torch.Tensor, replies: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the lower of the twin state values and of the reply values, [T] each; 0 while warming up."""
        if self.fit_count < self.settings.warmup:
            return torch.zeros(len(states)), torch.zeros(len(states))
        with torch.no_grad():
            return self.networks.v(states).amin(0), self.networks.q(torch.cat([states, replies], 1)).amin(0)

    async def fit(self, credited: Sequence[CreditedTrajectory], rng: np.random.Generator) -> dict[str, float]:
        """Add these turns to the replay buffer, train on it, and return metrics ({} without turns).

        `q_loss` and `v_loss` are means over the steps taken (NaN if none), `replayed` is the buffer's size, and
        `skipped` counts steps with a non-finite gradient. After the warm-up, `explained` and `action_explained` are the
        shares of the variance of these turns' returns that V and Q predicted before the fit. A share below 0 means that
        the critic does not generalise to new turns. Raises DivergedError for a non-finite gradient if `nonfinite` is
        `stop`, and if the weights are not finite afterwards.
        """
        return await compute(self._fit, credited, rng)

    def _fit(self, credited: Sequence[CreditedTrajectory], rng: np.random.Generator) -> dict[str, float]:
        newest = self._make_buffer(credited)
        if not len(newest):
            return {}
        fresh = self._measure_predictions(newest, credited) if self.fit_count >= self.settings.warmup else {}
        self.buffer.add(newest, self.settings.replay)
        results = [self._step(newest, rng) for _ in range(self.settings.steps)]
        losses = [losses for losses in results if losses]
        self.optimiser.require_finite()
        self.fit_count += 1
        q, v = np.mean(losses, 0).tolist() if losses else (math.nan, math.nan)
        skipped = float(len(results) - len(losses))
        return {"q_loss": q, "v_loss": v, "replayed": float(len(self.buffer)), "skipped": skipped} | fresh

    def _measure_predictions(self, newest: TurnBuffer, credited: Sequence[CreditedTrajectory]) -> dict[str, float]:
        """Return `explained` and `action_explained` of turns that the critic has not learned from."""
        batch = TurnBatch([c.trajectory for c in credited])
        returns = batch.returns(np.concatenate([c.rewards for c in credited]), self.settings.gamma)
        v, q = self._compute_values(newest.states.float(), newest.replies.float())
        fits = {"explained": measure_fit(v.numpy(), returns), "action_explained": measure_fit(q.numpy(), returns)}
        return {name: fit["explained"] for name, fit in fits.items() if "explained" in fit}

    def save(self, folder: Path) -> None:
        """Write networks, target networks, optimiser state, number of fits and replay buffer to the folder."""
        self.optimiser.save(folder / _NETWORKS)
        save_file(vars(self.buffer), folder / _BUFFER)
        (folder / "archer.json").write_text(json.dumps({"fits": self.fit_count}))

    def load(self, folder: Path) -> None:
        """Restore the state that `save` wrote to the folder."""
        self.optimiser.load(folder / _NETWORKS)
        self.buffer = TurnBuffer(**load_file(folder / _BUFFER))
        self.fit_count = json.loads((folder / "archer.json").read_text())["fits"]

    def _compute_features(self, trajectories: Sequence[Trajectory]) -> tuple[torch.Tensor, torch.Tensor]:
        size = self.settings.features
        hash_inputs = hash_prompts if self.settings.reads == "prompt" else hash_states
        states, replies = hash_inputs(trajectories, size, _GRAMS), hash_replies(trajectories, size, _GRAMS)
        return torch.from_numpy(states).float(), torch.from_numpy(replies).float()

    def _make_buffer(self, credited: Sequence[CreditedTrajectory]) -> TurnBuffer:
        trajectories = [c.trajectory for c in credited if c.trajectory.turns]
        states, replies = self._compute_features(trajectories)
        rewards = np.concatenate([np.zeros(0), *(c.rewards for c in credited)])
        last = torch.from_numpy(TurnBatch(trajectories).last)
        return TurnBuffer(states.half(), replies.half(), torch.from_numpy(rewards).float(), last)

    def _step(self, newest: TurnBuffer, rng: np.random.Generator) -> tuple[float, float] | None:
        """Take one step of Adam on both losses, then move the targets.

        Q learns from random turns of the buffer, V from random newest turns, whose replies are the current policies'.
        Returns the losses (Q, V) before the step, or None if it was skipped because its gradient is not finite.
        """
        rows, newest_rows = (
            torch.from_numpy(rng.integers(len(turns), size=self.settings.batch)) for turns in (self.buffer, newest)
        )
        q_loss, v_loss = self._compute_losses(
            self._get_transitions(rows), newest.states[newest_rows], newest.replies[newest_rows]
        )
        torch.autograd.backward(q_loss + v_loss)
        if not math.isfinite(self.optimiser.step(grad_clip=math.inf)):
            return None
        with torch.no_grad():
            for target, online in zip(self.target.parameters(), self.networks.parameters(), strict=True):
                target.lerp_(online, self.settings.polyak)
        return q_loss.item(), v_loss.item()

    def _get_transitions(self, rows: torch.Tensor) -> Transitions:
        """Return these rows of the buffer as transitions."""
        buffer = self.buffer
        next_states = buffer.states[(rows + 1).clamp(max=len(buffer) - 1)].float()
        pairs = torch.cat([buffer.states[rows], buffer.replies[rows]], 1).float()
        return Transitions(buffer.states[rows].float(), pairs, buffer.rewards[rows], buffer.last[rows], next_states)

    def _compute_losses(
        self, transitions: Transitions, states: torch.Tensor, replies: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the losses of Q on replayed transitions and of V on `states` with their `replies`, float16."""
        with torch.no_grad():
            q_target = compute_q_targets(
                transitions.rewards, transitions.last, self.target.v(transitions.next_states), self.settings.gamma
            )
            v_target = self.target.q(torch.cat([states, replies], 1).float())
        return twin_loss(self.networks.q(transitions.pairs), q_target), twin_loss(
            self.networks.v(states.float()), v_target
        )


class Transitions(NamedTuple):
    """A batch of B transitions between a policy's turns, as features."""

    states: torch.Tensor
    """[B, features]"""
    pairs: torch.Tensor
    """[B, 2 features] states and replies."""
    rewards: torch.Tensor
    """[B]"""
    last: torch.Tensor
    """[B] bool, True at the end of a trajectory."""
    next_states: torch.Tensor
    """[B, features] next states; anything at the end of a trajectory."""
