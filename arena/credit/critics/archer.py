"""ArCHer's critic: twin values of states and replies, learned off-policy from a replay buffer of turns."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from agents.computing import compute
from agents.engines.base import Request
from arena.credit.batch import CreditedTrajectory, TurnBatch
from arena.credit.critics.linear import split_by_trajectory
from arena.credit.critics.networks import Networks, compute_q_targets, twin_loss
from arena.credit.critics.words import hash_prompts, hash_replies, hash_states, hash_texts
from arena.errors import ConfigError
from arena.learn.divergence import is_finite_step, require_finite
from arena.learn.moments import MOMENTS
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
    contexts: list[Context]
    """Context of each turn, to sample its reply again; empty without `fresh`."""

    @classmethod
    def empty(cls, features: int) -> TurnBuffer:
        """Return an empty buffer for states and replies of `features` numbers."""
        no_rows = torch.zeros((0, features), dtype=torch.float16)
        return cls(no_rows, no_rows, torch.zeros(0), torch.zeros(0, dtype=torch.bool), [])

    def __len__(self) -> int:
        return len(self.last)

    def add(self, newest: TurnBuffer, size: int) -> None:
        """Append the turns of `newest` and drop the oldest rows beyond `size`, but none of `newest`."""
        cut = max(0, min(len(self), len(self) + len(newest) - size))
        for name in ("states", "replies", "rewards", "last"):
            setattr(self, name, torch.cat([getattr(self, name)[cut:], getattr(newest, name)]))
        self.contexts = [*self.contexts[cut:], *newest.contexts] if newest.contexts else []


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
    fresh: int = 0


class Archer:
    """ArCHer's critic, one for all trained policies; its state features include game, role and policy."""

    name = "archer"
    """Name in settings and messages."""

    def __init__(self, context: CriticContext, settings: ArcherSettings) -> None:
        if settings.fresh and context.engine is None:
            raise ValueError("critic archer: fresh replies need an engine: a match log alone is not enough")
        self.context, self.settings = context, settings
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(context.seed)
            self.networks = Networks(settings.features, settings.hidden)
        self.target = copy.deepcopy(self.networks).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.networks.parameters(), lr=settings.lr)
        self.buffer = TurnBuffer.empty(settings.features)
        self.fit_count = 0
        """Number of iterations that the critic has learned from."""
        self._advice = f"lower credit.critic.{self.name}.lr ({settings.lr:g}) or scale rewards down with credit.weights"

    async def predict(self, trajectories: Sequence[Trajectory]) -> Measures:
        """Return per turn the lower of the twin state values (`values`) and reply values (`action_values`).

        One array per trajectory and name; all 0 during the first `warmup` iterations.
        """
        return await compute(self._predict, trajectories)

    def _predict(self, trajectories: Sequence[Trajectory]) -> Measures:
        states, replies = self._compute_features(trajectories)
        v, q = torch.zeros(len(states)), torch.zeros(len(states))
        if self.fit_count >= self.settings.warmup:
            with torch.no_grad():
                v, q = self.networks.v(states).amin(0), self.networks.q(torch.cat([states, replies], 1)).amin(0)
        return {
            "values": split_by_trajectory(trajectories, v.numpy()),
            "action_values": split_by_trajectory(trajectories, q.numpy()),
        }

    async def fit(self, credited: Sequence[CreditedTrajectory], rng: np.random.Generator) -> dict[str, float]:
        """Add these turns to the replay buffer, train on it, and return metrics ({} without turns).

        `q_loss` and `v_loss` are means over the steps taken (NaN if none), `replayed` is the buffer's size, and
        `skipped` counts steps with a non-finite gradient. Raises DivergedError for such a step if `nonfinite` is
        `stop`, and if the weights are not finite afterwards.
        """
        newest = await compute(self._make_buffer, credited)
        if not len(newest):
            return {}
        self.buffer.add(newest, self.settings.replay)
        current = await self._collect_current_replies(len(newest), rng)
        return await compute(self._train, current, rng)

    def _train(self, current: tuple[torch.Tensor, torch.Tensor], rng: np.random.Generator) -> dict[str, float]:
        results = [self._step(*rows, current) for rows in self._draw_rows(len(current[0]), rng)]
        losses = [losses for losses in results if losses]
        require_finite(self.networks.parameters(), f"critic {self.name}", "its weights are not finite", self._advice)
        self.fit_count += 1
        q, v = np.mean(losses, 0).tolist() if losses else (math.nan, math.nan)
        skipped = float(len(results) - len(losses))
        return {"q_loss": q, "v_loss": v, "replayed": float(len(self.buffer)), "skipped": skipped}

    def save(self, folder: Path) -> None:
        """Write networks, target networks, optimiser moments, number of fits and replay buffer to the folder."""
        slots = {n: self.optimizer.state.get(p, {}) for n, p in self.networks.named_parameters()}
        tensors = {f"online.{n}": t for n, t in self.networks.state_dict().items()}
        tensors |= {f"target.{n}": t for n, t in self.target.state_dict().items()}
        tensors |= {f"{n}.{key}": slot[key] for n, slot in slots.items() for key in MOMENTS if key in slot}
        save_file(tensors, folder / _NETWORKS)
        buffer = self.buffer
        ids = torch.tensor([i for context in buffer.contexts for i in context.ids], dtype=torch.int32)
        sizes = torch.tensor([len(context.ids) for context in buffer.contexts], dtype=torch.int32)
        columns = {"states": buffer.states, "replies": buffer.replies, "rewards": buffer.rewards, "last": buffer.last}
        save_file({**columns, "ids": ids, "sizes": sizes}, folder / _BUFFER)
        speakers = [[context.policy, context.role] for context in buffer.contexts]
        (folder / "archer.json").write_text(json.dumps({"fits": self.fit_count, "contexts": speakers}))

    def load(self, folder: Path) -> None:
        """Restore everything that `save` wrote to the folder."""
        tensors, columns = load_file(folder / _NETWORKS), load_file(folder / _BUFFER)
        state = json.loads((folder / "archer.json").read_text())
        self.fit_count = state["fits"]
        for name, networks in (("online.", self.networks), ("target.", self.target)):
            networks.load_state_dict({n.removeprefix(name): t for n, t in tensors.items() if n.startswith(name)})
        for name, parameter in self.networks.named_parameters():
            moments = {key: tensors[f"{name}.{key}"] for key in MOMENTS if f"{name}.{key}" in tensors}
            if moments:
                step = torch.tensor(float(self.fit_count * self.settings.steps))
                self.optimizer.state[parameter] = {"step": step, **moments}
        ids = columns["ids"].split(columns["sizes"].tolist()) if len(columns["sizes"]) else ()
        turn_contexts = [Context(p, r, tuple(i.tolist())) for (p, r), i in zip(state["contexts"], ids, strict=True)]
        self.buffer = TurnBuffer(
            columns["states"], columns["replies"], columns["rewards"], columns["last"], turn_contexts
        )

    def _compute_features(self, trajectories: Sequence[Trajectory]) -> tuple[torch.Tensor, torch.Tensor]:
        size = self.settings.features
        read = hash_prompts if self.settings.reads == "prompt" else hash_states
        states, replies = read(trajectories, size, _GRAMS), hash_replies(trajectories, size, _GRAMS)
        return torch.from_numpy(states).float(), torch.from_numpy(replies).float()

    def _make_buffer(self, credited: Sequence[CreditedTrajectory]) -> TurnBuffer:
        trajectories = [c.trajectory for c in credited if c.trajectory.turns]
        states, replies = self._compute_features(trajectories)
        rewards = np.concatenate([np.zeros(0), *(c.rewards for c in credited)])
        last = torch.from_numpy(TurnBatch(trajectories).last)
        turn_contexts = [context for t in trajectories for context in get_contexts(t)] if self.settings.fresh else []
        reward_column = torch.from_numpy(rewards).float()
        return TurnBuffer(states.half(), replies.half(), reward_column, last, turn_contexts)

    async def _collect_current_replies(
        self, newest: int, rng: np.random.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the features [R, features] of states and of the current policies' replies to them.

        These are the `newest` latest turns and, with `fresh`, random older states of the buffer with newly sampled
        replies.
        """
        states, replies = self.buffer.states[-newest:], self.buffer.replies[-newest:]
        older_count = len(self.buffer) - newest
        if not self.settings.fresh or not older_count:
            return states, replies
        rows = rng.integers(older_count, size=self.settings.fresh)
        texts = await sample_replies([self.buffer.contexts[i] for i in rows], self.context, rng)
        fresh = torch.from_numpy(hash_texts(texts, self.settings.features, _GRAMS)).half()
        return torch.cat([states, self.buffer.states[torch.from_numpy(rows)]]), torch.cat([replies, fresh])

    def _draw_rows(self, current_count: int, rng: np.random.Generator) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield for each step random rows of the buffer, for Q, and of `current_count` current replies, for V.

        Both are `batch` row numbers, with repeats.
        """
        for _ in range(self.settings.steps):
            drawn: tuple[NDArray[np.int64], NDArray[np.int64]] = (
                rng.integers(len(self.buffer), size=self.settings.batch),
                rng.integers(current_count, size=self.settings.batch),
            )
            yield torch.from_numpy(drawn[0]), torch.from_numpy(drawn[1])

    def _step(
        self, rows: torch.Tensor, current_rows: torch.Tensor, current: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[float, float] | None:
        """Take one step of Adam on both losses, then move the targets.

        Q learns from the buffer's `rows`, V from `current_rows` of `current` (states, replies). Returns the losses (Q,
        V) before the step, or None if it was skipped because its gradient is not finite.
        """
        q_loss, v_loss = self._compute_losses(
            self._get_transitions(rows), current[0][current_rows], current[1][current_rows]
        )
        self.optimizer.zero_grad()
        torch.autograd.backward(q_loss + v_loss)
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.networks.parameters() if p.grad is not None])
        if not is_finite_step(float(norm), self.context.nonfinite, f"critic {self.name}", self._advice):
            return None
        self.optimizer.step()
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
        """Return the losses of Q on replayed transitions and of V on `states` with the current `replies`."""
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


class Context(NamedTuple):
    """Prompt of a policy at one turn, for sampling its reply again: policy, role, and the token ids so far."""

    policy: str
    role: str
    ids: tuple[int, ...]


def get_contexts(trajectory: Trajectory) -> list[Context]:
    """Return each turn's input in order: its stream's token ids before the turn's first sampled token.

    Raises ConfigError for images, which checkpoints of the buffer do not support.
    """
    prefixes = trajectory.contexts()
    if any(prefix.media for prefix in prefixes.values()):
        raise ConfigError("credit.critic: archer cannot sample replies to images again: set fresh to 0")
    return [Context(trajectory.policy, trajectory.role, tuple(prefixes[turn.index].ids)) for turn in trajectory.turns]


async def sample_replies(contexts: Sequence[Context], run: CriticContext, rng: np.random.Generator) -> list[str]:
    """Sample a new reply to each context from the currently served policies; return the texts in order.

    Uses each role's sampling settings and seeds drawn from `rng`. `run.engine` and `run.policies` must be set.
    """
    engine, policies = run.engine, run.policies
    assert engine is not None and policies is not None
    frames = [policies[context.policy].frame for context in contexts]
    seeds = rng.integers(2**32, size=2).tolist()
    requests = []
    for i, (context, frame) in enumerate(zip(contexts, frames, strict=True)):
        sampling = run.roles[context.role].sampling
        room = min(policies[context.policy].positions, engine.max_context) - len(context.ids)
        requests.append(
            Request(
                policy=context.policy,
                ids=context.ids,
                key=f"anew/{i}",
                max_tokens=min(sampling.max_tokens, room),  # before a summary, less room may be left than for a reply
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                stop_ids=frame.stop_ids,
                seed=(*seeds, i),
            )
        )
    replies = await engine.generate(requests)
    for request in requests:
        engine.forget(request.key)
    return [frame.decode(reply.ids) for frame, reply in zip(frames, replies, strict=True)]
