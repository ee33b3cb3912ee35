"""Training loop of stages that learn without play: iterations of steps, with metrics and checkpoints.

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
from arena.play.watchers import ProgressWatcher, Watcher
from arena.store.checkpoints import Checkpoint
from arena.store.run import RunFolder
from arena.store.state import STATE, blame_checkpoint, read_state

if TYPE_CHECKING:
    from arena.learn.adamw import NamedAdamW

_OPTIMIZER, _SETTINGS = "optimizer.safetensors", "settings.json"


class TrainingLoop(ABC):
    """Training of one set of weights in a run folder, iteration by iteration, from its newest checkpoint.

    A subclass loads and saves the weights, takes a step, and evaluates held-out data. Its random draws depend on the
    step's number alone.
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
        """Prepare to train the weights `name`. The caller holds the run's lock.

        `identity` are the settings, as JSON values, that must be equal when the run is resumed. `parts` are the step
        numbers of each iteration. `keep` is the number of checkpoints to keep.
        """
        self.name, self.run_folder, self.parts, self.keep, self.watcher = name, run, parts, keep, watcher
        self._identity = identity

    @abstractmethod
    def load(self, folder: Path | None) -> NamedAdamW:
        """Load the weights from a checkpoint's folder, or the initial ones for None, and return a new optimiser."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the weights to a folder, which may not exist yet."""

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
        """Load the weights and the optimiser. Raises StoreError if the checkpoint has other settings or other data."""
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
        started, learned = perf_counter(), list[dict[str, float]]()
        for count, number in enumerate(steps, 1):
            learned.append(await compute(self.step, number))
            if isinstance(self.watcher, ProgressWatcher):
                self.watcher.progress(count, len(steps))
        try:
            self.optimiser.require_finite()
        except DivergedError as error:
            raise DivergedError(f"iteration {k}, {error}") from None
        names = dict.fromkeys(name for one in learned for name in one)
        figures = {name: float(np.mean([one[name] for one in learned if name in one])) for name in names}
        self.watcher.phase(k, "held-out examples")
        tested = await compute(self.evaluate_held_out)
        figures |= {f"held_out_{name}": value for name, value in tested.items()}
        figures |= {"skipped": float(self.optimiser.skipped), "steps": float(self.optimiser.steps)}
        self.optimiser.skipped = 0
        row: dict[str, Any] = {"iteration": k, "learn": {self.name: figures}}
        self.watcher.phase(k, "commit")
        row["seconds"] = {"play": 0.0, "learn": perf_counter() - started, "commit": 0.0}
        self.run_folder.metrics.append(row)
        await compute(self.run_folder.checkpoint, k, lambda folder: self._save(folder, k))
        self.run_folder.prune(self.keep)
        self.watcher.iteration(row)

    def _check_settings(self, folder: Path) -> None:
        """Raise StoreError if the checkpoint was written with other settings or other data."""
        before = json.loads((folder / _SETTINGS).read_text())
        if changed := sorted(name for name in self._identity if before.get(name) != self._identity[name]):
            label = "the examples" if changed == ["digest"] else f"its setting {changed[0]}"
            raise StoreError(f"{self.run_folder.path}: {label} changed since it began: start a new run, or restore it")

    def _save(self, folder: Path, k: int) -> None:
        own = folder / "policies" / self.name
        self.save(own)
        self.optimiser.save(own / _OPTIMIZER)
        (folder / _SETTINGS).write_text(json.dumps(self._identity, indent=1) + "\n")
        state = {"version": k, "steps": self.optimiser.steps, "memory": {}}
        (folder / STATE).write_text(json.dumps({"iteration": k, "policies": {self.name: state}}, indent=1) + "\n")


def split_steps(steps: int, iterations: int) -> list[range]:
    """Split the steps evenly into iterations, at most one per step. Returns each iteration's range of step numbers."""
    cuts = np.linspace(0, steps, min(iterations, steps) + 1).round().astype(int).tolist()
    return [range(a, b) for a, b in itertools.pairwise(cuts)]
