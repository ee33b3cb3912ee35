"""Two learners with the same interface: Arena's trainer, and a bare loop without DeepSpeed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from agents.scoring import StreamScorer, pack, score_with_entropy
from agents.stream import Stream

OPENING = 1
"""Tokens of the shared opening of random streams, so few that sharing saves nothing."""


@dataclass(frozen=True)
class Lesson:
    """Stream with an advantage for each of its sampled tokens."""

    stream: Stream
    advantages: np.ndarray
    temperature: float = 1.0


class Learner(Protocol):
    """Policy optimiser that learns from lessons."""

    def update(self, lessons: Sequence[Lesson]) -> dict[str, float]:
        """Learn from each lesson once and return the metrics."""


class ArenaLearner:
    """Learner that uses Arena's `PolicyTrainer`."""

    name = "PolicyTrainer"

    def __init__(
        self, model: Any, bf16: bool, lr: float, token_budget: int, minibatches: int = 1, **settings: Any
    ) -> None:
        from arena.config.experiment import LearnSpec
        from arena.learn.trainer import PolicyTrainer

        rule = LearnSpec(lr=lr, token_budget=token_budget, minibatches=minibatches, regularisers={}, **settings)
        self.trainer, self.rng = PolicyTrainer("p", model, rule, bf16), np.random.default_rng(0)

    def update(self, lessons: Sequence[Lesson]) -> dict[str, float]:
        """Learn from each lesson once and return the metrics, which are means over tokens."""
        return self.trainer.carry_out(self.trainer.plan([make_sample(lesson) for lesson in lessons], self.rng))

    def update_within(self, token_budget: int, lessons: Sequence[Lesson]) -> dict[str, float]:
        """Learn from each lesson once, with this token budget for micro-batches from now on."""
        self.trainer.rule = self.trainer.rule.model_copy(update={"token_budget": token_budget})
        return self.update(lessons)


def make_sample(lesson: Lesson) -> Any:
    """Convert a lesson to a sample for the trainer, with every sampled token in the loss."""
    from arena.learn.samples import Sample

    is_sampled = np.asarray(lesson.stream.mask, bool)
    behaviour = np.asarray(lesson.stream.logprobs, np.float32)[is_sampled]
    places = np.unique(np.asarray(lesson.stream.turns)[is_sampled], return_inverse=True)[1].reshape(-1).astype(np.int64)
    learned = np.ones(len(behaviour), bool)
    return Sample(
        stream=lesson.stream,
        advantages=lesson.advantages.astype(np.float32),
        behaviour=behaviour,
        temperature=lesson.temperature,
        places=places,
        learned=learned,
    )


class BareLearner:
    """Textbook policy gradient over the same micro-batches, with gradient clipping and torch's AdamW."""

    name = "bare loop"

    def __init__(self, model: Any, bf16: bool, lr: float, token_budget: int, minibatches: int = 1) -> None:
        self.scorer, self.token_budget, self.minibatches = StreamScorer(model, bf16), token_budget, minibatches
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
        self.device, self.rng = next(model.parameters()).device, np.random.default_rng(0)

    def update(self, lessons: Sequence[Lesson]) -> dict[str, float]:
        """Learn from each lesson once. Returns no metrics."""
        self.scorer.train()
        for part in np.array_split(self.rng.permutation(len(lessons)), self.minibatches):
            self._step([lessons[i] for i in part])
        self.scorer.eval()
        return {}

    def _step(self, lessons: Sequence[Lesson]) -> None:
        total = sum(len(lesson.advantages) for lesson in lessons)
        for batch in pack([s.stream for s in lessons], [s.temperature for s in lessons], self.token_budget):
            advantages = np.concatenate([lessons[i].advantages for i in batch.index]).astype(np.float32)
            logprobs = self.scorer(batch.to(self.device)).logprobs
            ratio = (logprobs - logprobs.detach()).exp()
            torch.autograd.backward(-(torch.from_numpy(advantages).to(self.device) * ratio).sum() / total)
        torch.nn.utils.clip_grad_norm_(self.scorer.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def choose_learner() -> tuple[type[ArenaLearner] | type[BareLearner], str]:
    """Return Arena's learner and "" if it can be imported, else the bare learner and the reason."""
    try:
        import arena.learn.trainer  # noqa: F401
        from arena.learn.distributed import get_deepspeed

        get_deepspeed()
    except Exception as error:  # noqa: BLE001 any failure is reported, and the bare loop replaces it
        return BareLearner, str(error).splitlines()[0]
    return ArenaLearner, ""


def make_lessons(model: Any, bf16: bool, count: int, length: int, seed: int = 0) -> list[Lesson]:
    """Return random streams of two turns and equal length, half of their tokens sampled, with random advantages.

    The sampled tokens have the model's own log-probabilities.
    """
    rng, vocabulary, quarter = np.random.default_rng(seed), model.config.vocab_size, length // 4
    streams = []
    for _ in range(count):
        stream = Stream()
        stream.observe([7] * OPENING)
        for turn in range(2):
            stream.observe(rng.integers(vocabulary, size=quarter - OPENING * (turn == 0)).tolist())
            stream.append_sampled(rng.integers(vocabulary, size=quarter).tolist(), [0.0] * quarter, turn)
        streams.append(stream)
    for stream, scores in zip(
        streams, score_with_entropy(StreamScorer(model, bf16), streams, [1.0] * count), strict=True
    ):
        logprobs = iter(scores.logprobs.tolist())
        stream.logprobs = [next(logprobs) if is_sampled else 0.0 for is_sampled in stream.mask]
    return [Lesson(stream, rng.standard_normal(stream.sampled_count)) for stream in streams]
