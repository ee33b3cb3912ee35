"""Warm start of a run: policies imitate scripted ones before they learn from reward."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter

from agents.computing import compute
from arena.errors import StoreError
from arena.learn.plan import Plan
from arena.learn.settings import ImitateSpec
from arena.parts.chance import generator
from arena.play.demonstrations import Demonstrations
from arena.play.watchers import Watcher
from arena.policies import Policies
from arena.store import warm_start
from arena.store.warm_start import ImitationProgress

CHECKPOINT_SECONDS = 300.0
"""Minimum seconds between two checkpoints of an imitation."""
CHECKPOINT_PLACES = 100
"""Number of equally spaced steps of an imitation at which a checkpoint may be saved."""


class Imitation:
    """Warm start of a run's policies, one after the other, with checkpoints to resume from."""

    def __init__(
        self,
        specs: Mapping[str, ImitateSpec],
        demonstrations: Demonstrations,
        policies: Policies,
        watcher: Watcher,
        *,
        run: Path,
        seed: int,
        settings_hash: str,
    ) -> None:
        """Store the arguments. `specs` are the imitation settings by policy name.

        `settings_hash` is the hash of the run's settings, which identifies its checkpoints.
        """
        self.specs, self.demonstrations, self.policies, self.watcher = specs, demonstrations, policies, watcher
        self._run, self._seed, self._settings_hash = run, seed, settings_hash

    async def run(self, progress: ImitationProgress | None) -> None:
        """Train each policy on matches of its scripted players.

        `progress` resumes an interrupted imitation. Raises StoreError if it belongs to another imitation.
        """
        if progress and progress.policy not in self.specs:
            raise self._foreign_error(progress)
        due = itertools.dropwhile(lambda item: bool(progress and item[0] != progress.policy), self.specs.items())
        for name, spec in due:
            self.watcher.phase(0, f"imitate ({name}): matches of {', '.join(spec.scripted)}")
            on_end = self._count_progress(spec.matches)
            samples = await self.demonstrations.play_scripted(
                name, 0, spec.scripted, spec.matches, spec.against, on_end
            )
            self.watcher.phase(0, f"imitate ({name}): learning")
            rng = generator(self._seed, 0, "imitate", name)
            plan = self.policies.trainers[name].plan_imitation(samples, spec, rng)
            await self._learn(name, plan, progress if progress and progress.policy == name else None)
            await self.policies.serve(name)

    async def _learn(self, name: str, plan: Plan, progress: ImitationProgress | None) -> None:
        """Run the plan's optimiser steps, save checkpoints in between, and skip the steps done in `progress`.

        Raises StoreError if `progress` does not fit the plan.
        """
        total, saved_at, done, skipped = len(plan.steps), perf_counter(), 0, 0
        if progress:
            done = progress.steps
            if not done < total == progress.total:
                raise self._foreign_error(progress)
            self.watcher.note(f"policy '{name}' resumes its imitation after step {done} of {total}")
        on_step = self._count_progress(total, done)
        for part in plan.split(max(1, total // CHECKPOINT_PLACES), done):
            skipped += int((await self.policies.trainers[name].update(part, on_step))["skipped"])
            done += len(part.steps)
            if part.is_continued and perf_counter() - saved_at >= CHECKPOINT_SECONDS:
                await self._checkpoint(name, done, total)
                saved_at = perf_counter()
        if skipped:
            self.watcher.note(
                f"policy '{name}', imitation: {skipped} steps skipped, because their gradient is not finite"
            )

    def _foreign_error(self, progress: ImitationProgress) -> StoreError:
        folder, steps = self._run / warm_start.FOLDER, f"{progress.total} steps by policy '{progress.policy}'"
        return StoreError(f"{folder} belongs to another imitation ({steps}): remove it to restart the imitation")

    async def _checkpoint(self, name: str, done: int, total: int) -> None:
        policies = await self.policies.snapshot()
        metadata = {"experiment": self._settings_hash, "policy": name, "steps": done, "total": total}
        metadata |= {"policies": {each: one.state for each, one in policies.items()}}

        def fill(folder: Path) -> None:
            self.policies.save(folder / "policies", policies)

        await compute(warm_start.save, self._run, metadata, fill)

    def _count_progress(self, total: int, done: int = 0) -> Callable[[], None]:
        """Return a callback that reports one more of `total` items as done."""
        count = itertools.count(done + 1)
        return lambda: self.watcher.progress(next(count), total)
