"""Training loop of pipeline stages that learn without play, with metrics and a checkpoint after each iteration.

A resumed loop gives bit-identical results.
"""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.computing import compute
from arena.errors import DivergedError, StoreError
from arena.play.watchers import Watcher
from arena.store.checkpoints import Checkpoint
from arena.store.run import RunFolder
from arena.store.state import STATE, blame_checkpoint, read_state

if TYPE_CHECKING:
    from arena.learn.adamw import NamedAdamW

_OPTIMIZER, _SETTINGS = "optimizer.safetensors", "settings.json"


class TrainingLoop(ABC):
    """Training loop of one set of weights in a run folder, which starts from the newest checkpoint.

    Subclasses define how to load and save the weights, take an optimiser step, and evaluate held-out data. For resumed
    runs to repeat, the random draws of a step must depend on nothing but its number and the settings.
    """

    optimiser: NamedAdamW

    def __init__(
        self,
        name: str,
        run: RunFolder,
        identity: Mapping[str, Any],
        parts: Sequence[range],
        keep: int,
        watcher: Watcher,
    ) -> None:
        """Prepare to train the weights called `name`. The caller holds the run's lock.

        `identity` has the settings, as JSON values, that must not change when the run is resumed. `parts` has the step
        numbers of each iteration. `keep` is the number of checkpoints to keep.
        """
        self.name, self.run_folder, self.parts, self.keep, self.watcher = name, run, parts, keep, watcher
        self._identity = identity

    @abstractmethod
    def load(self, folder: Path | None) -> NamedAdamW:
        """Load the weights from a checkpoint's folder, or the initial ones if None, and return a new optimiser."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the weights to a folder, which is created if needed."""

    @abstractmethod
    def step(self, number: int) -> dict[str, float]:
        """Take step `number` of the run and return its metrics."""

    @abstractmethod
    def evaluate_held_out(self) -> dict[str, float]:
        """Return the metrics of the current weights on the held-out data, such as loss and accuracy."""

    async def run(self) -> None:
        """Run the remaining iterations. Raises DivergedError or StoreError."""
        checkpoint = self.run_folder.find_resume_point(self.watcher.note)
        done = checkpoint.iteration if checkpoint else 0
        self.run_folder.discard_after(done if checkpoint else -1)
        with blame_checkpoint(checkpoint):
            await compute(self.start, checkpoint)
        for k, steps in enumerate(self.parts, 1):
            if k > done:
                await self._iterate(k, steps)

    def start(self, checkpoint: Checkpoint | None) -> None:
        """Load the weights and the optimiser. Raises StoreError if the checkpoint is of other settings or data."""
        if checkpoint is None:
            self.optimiser = self.load(None)
            return
        read_state(checkpoint)
        self._check_settings(checkpoint.folder)
        folder = checkpoint.policy(self.name)
        self.optimiser = self.load(folder)
        self.optimiser.load(folder / _OPTIMIZER)

    async def _iterate(self, k: int, steps: range) -> None:
        """Take the iteration's steps, evaluate the held-out data, and commit metrics and a checkpoint."""
        self.watcher.phase(k, "learn")
        started, step_metrics = perf_counter(), list[dict[str, float]]()
        for count, number in enumerate(steps, 1):
            step_metrics.append(await compute(self.step, number))
            self.watcher.progress(count, len(steps))
        try:
            self.optimiser.require_finite()
        except DivergedError as error:
            raise DivergedError(f"iteration {k}, {error}") from None
        names = dict.fromkeys(name for metrics in step_metrics for name in metrics)
        averages = {
            name: float(np.mean([metrics[name] for metrics in step_metrics if name in metrics])) for name in names
        }
        self.watcher.phase(k, "held-out examples")
        held_out_metrics = await compute(self.evaluate_held_out)
        averages |= {f"held_out_{name}": value for name, value in held_out_metrics.items()}
        averages |= {"skipped": float(self.optimiser.skipped), "steps": float(self.optimiser.steps)}
        self.optimiser.skipped = 0
        row: dict[str, Any] = {"iteration": k, "learn": {self.name: averages}}
        self.watcher.phase(k, "commit")
        row["seconds"] = {"play": 0.0, "learn": perf_counter() - started, "commit": 0.0}
        self.run_folder.metrics.append(row)
        await compute(self.run_folder.checkpoint, k, lambda folder: self._save(folder, k))
        self.run_folder.prune(self.keep)
        self.watcher.iteration(row)

    def _check_settings(self, folder: Path) -> None:
        """Raise StoreError if the checkpoint was written with other settings or data."""
        saved = json.loads((folder / _SETTINGS).read_text())
        if changed := sorted(name for name in self._identity if saved.get(name) != self._identity[name]):
            label = "the examples" if changed == ["digest"] else f"its setting {changed[0]}"
            raise StoreError(f"{self.run_folder.path}: {label} changed since it started: restore it or start a new run")

    def _save(self, folder: Path, k: int) -> None:
        weights_folder = folder / "policies" / self.name
        self.save(weights_folder)
        self.optimiser.save(weights_folder / _OPTIMIZER)
        (folder / _SETTINGS).write_text(json.dumps(self._identity, indent=1) + "\n")
        state = {"version": k, "steps": self.optimiser.steps, "memory": {}}
        (folder / STATE).write_text(json.dumps({"iteration": k, "policies": {self.name: state}}, indent=1) + "\n")


def split_steps(steps: int, iterations: int) -> list[range]:
    """Split steps evenly into iterations of at least one step. Returns each iteration's range of step numbers."""
    cuts = np.linspace(0, steps, min(iterations, steps) + 1).round().astype(int).tolist()
    return [range(a, b) for a, b in itertools.pairwise(cuts)]
