"""Losses that train a model's image tokens to stand for words."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cross_entropy

from agents.scoring import StreamBatch, compute_hidden_states
from agents.vision import ImageFeatures, collect_images, require_vision, text_body
from arena.grounding.lessons import Lesson, Loss

DISTANCE_WEIGHT = 0.1
"""Weight of the squared distance between an image token and the embedding of its word."""


class GradedLessons(NamedTuple):
    """Loss of some lessons, with the predictions and targets of their labels and answers."""

    loss: torch.Tensor
    labels: tuple[torch.Tensor, torch.Tensor]
    """Predicted and right ids of the labelled image tokens, [L] each, lesson after lesson."""
    answers: tuple[torch.Tensor, torch.Tensor]
    """Predicted and right ids of the answers' tokens, likewise."""


class GroundingModel:
    """Model with vision and one of two losses.

    `tokens` is the cross-entropy of the language model's output at each labelled image token, plus that of the answers.
    `words` does not run the language model. It compares the features of labelled image tokens with the embeddings of
    the batch's words: cross-entropy with minus the squared distances as logits, plus `DISTANCE_WEIGHT` times the
    squared distance to the right word. Only the vision tower and the connector learn.
    """

    def __init__(self, model: Any, loss: Loss, bf16: bool = False) -> None:
        """Wrap a model. Raises ValueError if it has no vision."""
        self.vision = require_vision(model, "lessons have images")
        self.model, self.loss, self._bf16 = model, loss, bf16

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return next(self.model.parameters()).device  # type: ignore[no-any-return]

    def get_trainable_parameters(self) -> dict[str, torch.nn.Parameter]:
        """Return the trained parameters by name."""
        parameters = dict(self.model.named_parameters())
        if self.loss == "tokens":
            return parameters
        text = {id(p) for p in [*text_body(self.model).parameters(), *self.model.get_output_embeddings().parameters()]}
        return {name: parameter for name, parameter in parameters.items() if id(parameter) not in text}

    def __call__(self, lessons: Sequence[Lesson]) -> GradedLessons:
        """Compute the loss and predictions of lessons, with gradients."""
        with self._precision():
            return self._grade_tokens(lessons) if self.loss == "tokens" else self._grade_words(lessons)

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self._bf16)

    def _grade_tokens(self, lessons: Sequence[Lesson]) -> GradedLessons:
        batch, count = make_batch(lessons), sum(len(lesson.labels) for lesson in lessons)
        batch = batch.to(self.device)
        features = batch.images.compute_features(self.model) if batch.images else None
        hidden = compute_hidden_states(text_body(self.model), batch, features)
        logits = self.model.get_output_embeddings()(hidden).float()
        parts = [(logits[:count], batch.targets[:count]), (logits[count:], batch.targets[count:])]
        loss = torch.stack([cross_entropy(logits_part, right) for logits_part, right in parts if len(right)]).sum()
        labels, answers = ((logits_part.detach().argmax(-1), right) for logits_part, right in parts)
        return GradedLessons(loss, labels, answers)

    def _grade_words(self, lessons: Sequence[Lesson]) -> GradedLessons:
        spans = {span.hash: span for lesson in lessons for span in lesson.stream.media}
        starts = dict(zip(spans, accumulate((span.length for span in spans.values()), initial=0), strict=False))
        rows, words = list[int](), list[int]()
        for lesson in lessons:
            row_of_position = {
                span.start + k: starts[span.hash] + k for span in lesson.stream.media for k in range(span.length)
            }
            rows += [row_of_position[position] for position, _ in lesson.labels]
            words += [word for _, word in lesson.labels]
        image_features = ImageFeatures.compute(self.vision, self.model, [*spans.values()], self.device)
        width = self.model.get_input_embeddings().weight.shape[1]
        features = image_features.features[torch.tensor(rows, device=self.device), :width].float()
        known, right = torch.tensor(words, device=self.device).unique(return_inverse=True)  # type: ignore[no-untyped-call]
        embedded = self.model.get_input_embeddings().weight.detach()[known].float()
        distances = (features[:, None] - embedded).square().sum(-1)
        loss = cross_entropy(-distances, right) + DISTANCE_WEIGHT * distances.gather(1, right[:, None]).mean()
        nearest_ids = known[distances.detach().argmin(-1)]
        no_ids = known[:0]
        return GradedLessons(loss, (nearest_ids, known[right]), (no_ids, no_ids))


def make_batch(lessons: Sequence[Lesson]) -> StreamBatch:
    """Make a batch of lessons. Its targets are those of all labels, lesson by lesson, and then of all answers."""
    streams = [lesson.stream for lesson in lessons]
    suffix = torch.zeros((len(streams), max(map(len, streams))), dtype=torch.long)
    for row, stream in enumerate(streams):
        suffix[row, : len(stream)] = torch.tensor(stream.keys)
    targets = [(row, *pair) for row, lesson in enumerate(lessons) for pair in lesson.labels]
    targets += [(row, *pair) for row, lesson in enumerate(lessons) for pair in lesson.answer]
    rows, columns, words = torch.tensor(targets, dtype=torch.long).reshape(-1, 3).unbind(1)
    prefix = torch.zeros(0, dtype=torch.long)
    return StreamBatch(
        index=tuple(range(len(streams))),
        prefix=prefix,
        suffix=suffix.clamp(min=0),
        lengths=torch.tensor([len(stream) for stream in streams]),
        owners=rows,
        rows=rows,
        columns=columns,
        targets=words,
        temperatures=torch.ones(len(words)),
        images=collect_images(streams, prefix, suffix),
    )
