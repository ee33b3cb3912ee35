"""Training loop of the pipeline stage `ground`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from agents.adapter_config import is_adapter
from agents.computing import compute
from agents.policy import Policy, find_positions
from agents.strict_yaml import dump
from agents.weights import resolve
from arena.errors import ConfigError
from arena.fitting.loop import TrainingLoop, split_steps
from arena.grounding.lessons import Lesson, Lessons, apportion_batch
from arena.grounding.model import GradedLessons, GroundingModel
from arena.learn.adamw import NamedAdamW
from arena.learn.plan import compute_warmup
from arena.parts.chance import generator
from arena.play.settings import GameSpec
from arena.play.watchers import Watcher
from arena.store.files import CONFIG, write_atomic
from arena.store.run import RunFolder

BETAS = (0.9, 0.95)
MAX_BATCH = 64
"""Maximum number of held-out lessons per forward pass."""


async def train(folder: Path, settings: Mapping[str, Any], watcher: Watcher) -> None:
    """Train a policy in `folder` to the end, from its newest checkpoint if there is one.

    `settings` are those of the pipeline stage `ground`, and `model`, `seed`, `bf16` and `keep`. The caller holds the
    folder's lock. Raises ConfigError or StoreError for unusable settings, and DivergedError for non-finite numbers.
    """
    if not (folder / CONFIG).exists():
        write_atomic(folder / CONFIG, dump({"ground": dict(settings)}, CONFIG))
    model = await compute(resolve, settings["model"])
    if is_adapter(model):
        raise ConfigError(f"policy '{settings['policy']}' is an adapter, but grounding trains full weights")
    await GroundingLoop(RunFolder.open(folder), model, settings, watcher).run()


class GroundingLoop(TrainingLoop):
    """Training loop of a policy on a game's grounding lessons."""

    def __init__(self, run: RunFolder, model: Path, settings: Mapping[str, Any], watcher: Watcher) -> None:
        """Prepare to train from the weights in the folder `model`, with the settings of `train`."""
        identity = {name: value for name, value in settings.items() if name not in ("keep", "nonfinite", "model")}
        parts = split_steps(settings["steps"], settings["iterations"])
        super().__init__(settings["policy"], run, identity, parts, settings["keep"], watcher)
        self.settings, self.source = settings, model
        self._counts = apportion_batch(settings["kinds"], settings["batch"])
        self._lessons: dict[tuple[str, int], Lesson] = {}

    def load(self, folder: Path | None) -> NamedAdamW:
        """Load the policy, draw the held-out lessons and return a new optimiser."""
        settings = self.settings
        self.policy = Policy.load(settings["policy"], self.source, folder or self.source, train=True)
        self.grounder = GroundingModel(self.policy.model, settings["loss"], settings["bf16"])
        game, positions = GameSpec.model_validate(settings["game"]), find_positions(self.source)
        self.lessons = Lessons(
            game,
            [*settings["kinds"]],
            self.policy.frame,
            self.grounder.vision.grid,
            settings["loss"],
            settings["system"],
            positions,
        )
        self._held_out_lessons = {
            kind: [self.lessons.draw(kind, settings["seed"], n, is_held_out=True) for n in range(settings["held_out"])]
            for kind in settings["kinds"]
        }
        learning = self.grounder.get_trainable_parameters()
        for parameter in self.policy.model.parameters():
            parameter.requires_grad_(False)
        for parameter in learning.values():
            parameter.requires_grad_(True)
        advice = f"lower its lr ({settings['lr']:g})"
        return NamedAdamW(
            learning, settings["lr"], settings["nonfinite"], "grounding", advice, "its setting nonfinite", betas=BETAS
        )

    def save(self, folder: Path) -> None:
        """Write the policy to a folder."""
        self.policy.save(folder)

    def step(self, number: int) -> dict[str, float]:
        """Take optimiser step `number` of the run on a batch of random lessons.

        Returns the batch's loss and accuracies from before the step, and the gradient norm.
        """
        settings = self.settings
        rng = generator(settings["seed"], number, "step")
        lessons = [
            self._draw_lesson(kind, int(lesson_number))
            for kind, count in self._counts.items()
            for lesson_number in rng.integers(settings["lessons"], size=count)
        ]
        results = self.grounder(lessons)
        torch.autograd.backward(results.loss)
        rate = compute_warmup(number, settings["warmup_steps"]) * max(
            settings["decay"], 1.0 - number / settings["steps"]
        )
        self.optimiser.set_rate(settings["lr"] * rate)
        norm = self.optimiser.step(settings["grad_clip"])
        return _compute_figures([results]) | {"grad_norm": norm}

    def evaluate_held_out(self) -> dict[str, float]:
        """Return the loss of the held-out lessons, and the accuracies over all of them and by kind."""
        results: dict[str, list[GradedLessons]] = {}
        with torch.no_grad():
            for kind, lessons in self._held_out_lessons.items():
                results[kind] = [
                    self.grounder(lessons[start : start + MAX_BATCH]) for start in range(0, len(lessons), MAX_BATCH)
                ]
        by_kind = {
            f"{name}_{kind}": value
            for kind, parts in results.items()
            for name, value in _compute_figures(parts).items()
            if name != "loss"
        }
        return _compute_figures([part for parts in results.values() for part in parts]) | by_kind

    def _draw_lesson(self, kind: str, number: int) -> Lesson:
        if (kind, number) not in self._lessons:
            self._lessons[kind, number] = self.lessons.draw(kind, self.settings["seed"], number)
        return self._lessons[kind, number]


class _Marks(NamedTuple):
    """Predicted and right token ids, in the same order."""

    chosen: np.ndarray
    right: np.ndarray


def _compute_figures(results: Sequence[GradedLessons]) -> dict[str, float]:
    """Return the mean `loss`, the accuracy of labels (`accuracy`) and the accuracy of answers (`answered`).

    The accuracy of labels is the mean of the accuracies per right label, so that a frequent label such as "none" does
    not dominate.
    """
    metrics = {"loss": float(np.mean([float(part.loss.detach()) for part in results]))}
    labels, answers = _join_marks([part.labels for part in results]), _join_marks([part.answers for part in results])
    if len(labels.right):
        words, label_index = np.unique(labels.right, return_inverse=True)
        hits = np.bincount(label_index, labels.chosen == labels.right, len(words))
        metrics["accuracy"] = float((hits / np.bincount(label_index)).mean())
    if len(answers.right):
        metrics["answered"] = float((answers.chosen == answers.right).mean())
    return metrics


def _join_marks(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> _Marks:
    chosen, right = (torch.cat([pair[side] for pair in pairs]).cpu().numpy() for side in (0, 1))
    return _Marks(chosen, right)
