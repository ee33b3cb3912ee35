"""The weights of a run: loaded, served under their names, kept; past versions come when a match needs them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from agents.engines.base import Engine
from agents.policy import Bases, NewAdapter, Policy
from agents.stream import Stream
from agents.weights import resolve
from arena.chance import generator
from arena.config.experiment import Experiment, PolicySpec
from arena.league.pool import Pool, version_of
from arena.learn.batches import Sample
from arena.learn.trainer import PolicyTrainer
from arena.process import give_back
from arena.store.checkpoints import Checkpoint


class Policies(Mapping[str, Policy]):
    """By name: the policies that the experiment's seats and league name, and the past versions loaded just now."""

    def __init__(
        self,
        experiment: Experiment,
        engine: Engine,
        checkpoint: Checkpoint | None,
        kept: Mapping[str, Any],
        doing: Callable[[str], None],
    ) -> None:
        """Loads and serves them as `checkpoint` has them (`kept`: versions and steps), or as they begin."""
        self.engine, self.rule = engine, experiment.learn
        if experiment.engine.kind == "vllm" and experiment.bf16 and self.rule.gate_tolerance is None:
            self.rule = self.rule.model_copy(update={"gate_tolerance": 0.1})
        self.bf16, self._narrow, self._seed = experiment.bf16, experiment.narrow, experiment.seed
        self.holds_on = experiment.learn.holds_on or "reference" in experiment.credit.needs
        """Whether something is compared with a policy's own beginning."""
        self.trainers: dict[str, PolicyTrainer] = {}
        self._own: dict[str, Policy] = {}
        self._past: dict[str, Policy] = {}
        """By name, the latest used last."""
        self._beginnings: dict[str, Path] = {}
        self._referenced: set[str] = set()
        """Whose beginnings are served."""
        self._bases = Bases(experiment.bf16)
        for name in _used(experiment):
            spec = experiment.policies[name]
            doing(f"loading {spec.model} as '{name}'")
            self._own[name] = self._load(name, spec, checkpoint, kept.get(name) if spec.train else None)
            engine.publish(name, self[name].version, self[name].weights)

    def __getitem__(self, name: str) -> Policy:
        return self._own[name] if name in self._own else self._past[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._own, *self._past))

    def __len__(self) -> int:
        return len(self._own) + len(self._past)

    def publish(self) -> None:
        """Serve the weights as they are now, those of trained policies under their next version.

        Frozen ones too, under their own: what an engine keeps must not differ between a run and its resumption.
        """
        for name, policy in self.items():
            policy.version += name in self.trainers
        self.serve()

    def serve(self) -> None:
        """Serve all as they are, under the versions they have; whatever an engine keeps of them is made anew."""
        for name, policy in self.items():
            with self.trainers[name].gathered() if name in self.trainers else nullcontext():
                self.engine.publish(name, policy.version, policy.weights)

    def hold_on_to(self, beginnings: Mapping[str, Path]) -> None:
        """From now on each trained policy's own beginning, its reference, is what its folder among these holds."""
        self._beginnings = dict(beginnings) if self.holds_on else {}
        for name in self.trainers:
            self._drop_reference(name)

    def reference_scores(self, name: str, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[np.ndarray]:
        """What a policy's own beginning says of streams; it is loaded when it is first asked."""
        if name not in self._referenced:
            if self.rule.offload_reference:
                give_back()  # loading takes twice the room for a moment
            self.engine.publish(reference_name(name), 0, self._beginnings[name])
            self._referenced.add(name)
        return self.engine.score(reference_name(name), streams, temperatures)

    def referenced(self, name: str, samples: list[Sample]) -> list[Sample]:
        """A policy's samples with what its own beginning says of them, where something holds on to that."""
        if not self.holds_on:
            return samples
        scored = self.reference_scores(name, [s.stream for s in samples], [s.temperature for s in samples])
        if self.rule.offload_reference:
            self._drop_reference(name)
        return [s.with_reference(r) for s, r in zip(samples, scored, strict=True)]

    def _drop_reference(self, name: str) -> None:
        self.engine.retire(reference_name(name))
        self._referenced.discard(name)

    def save(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Write all that is trained under `folder`; what a checkpoint's state says of it."""
        for name, trainer in self.trainers.items():
            self.save_weights(name, folder / name)
            trainer.save(folder / name)
        return {
            name: {"version": self[name].version, "steps": t.steps, "memory": t.memory}
            for name, t in self.trainers.items()
        }

    def save_weights(self, name: str, folder: Path) -> None:
        """Write a trained policy, without its optimiser: in Hugging Face layout, an adapter in peft's."""
        with self.trainers[name].gathered():
            self[name].save(folder)

    def save_whole(self, name: str, folder: Path) -> None:
        """Write a trained policy in Hugging Face layout, an adapter merged into its base."""
        with self.trainers[name].gathered():
            self[name].save_whole(folder)

    def _load(
        self, name: str, spec: PolicySpec, checkpoint: Checkpoint | None, kept: Mapping[str, Any] | None
    ) -> Policy:
        source = resolve(spec.model)
        folder = checkpoint.policy(name) if checkpoint and kept else source
        seed = int(generator(self._seed, 0, "adapter", name).integers(2**63))
        new = NewAdapter(spec.adapter, seed, spec.model) if spec.adapter else None
        policy = Policy.load(name, source, folder, spec.train, new, self._bases, self._narrow)
        if spec.train:
            self.trainers[name] = PolicyTrainer(name, policy.model, self.rule, self.bf16)
            if kept:
                self.trainers[name].load_optimizer(folder, kept["steps"])
                self.trainers[name].memory = dict(kept["memory"])
                policy.version = kept["version"]
        return policy

    def _bring(self, name: str, pool: Pool) -> None:
        """Load and serve a past version, such as `shared@12`, if it is not there; it is the latest used."""
        parsed = version_of(name)
        assert parsed is not None, name
        policy, version = parsed
        if name not in self._past:
            self._past[name] = self[policy].past(name, version, pool.path(policy, version))
            self.engine.publish(name, version, self._past[name].weights)
        self._past[name] = self._past.pop(name)

    def _make_room(self, room: int, busy: Collection[str]) -> None:
        """Let go of the past versions used longest ago, none of them busy, until `room` are left."""
        idle = [name for name in self._past if name not in busy]
        for name in idle[: max(0, len(self._past) - room)]:
            del self._past[name]
            self.engine.retire(name)


class PastVersions:
    """Past versions in the matches of one event loop, `pool.spec.in_memory` of them at once.

    A match whose past versions find no room waits until others have left; more than that many come to one match alone.
    Who waits for whom depends on the matches only, not on what happens to be loaded.
    """

    def __init__(self, policies: Policies, pool: Pool) -> None:
        self.policies, self.pool = policies, pool
        self._seated = Counter[str]()
        self._left = asyncio.Event()

    @asynccontextmanager
    async def seated(self, policies: Collection[str]) -> AsyncIterator[None]:
        """The past versions among these are served within the context."""
        names = sorted({name for name in policies if version_of(name)})
        room = self.pool.spec.in_memory
        while names and self._seated and len(self._seated.keys() | set(names)) > room:
            self._left.clear()
            await self._left.wait()
        self._seated.update(names)
        absent = [name for name in names if name not in self.policies]
        self.policies._make_room(room - len(absent), self._seated)
        for name in names:
            self.policies._bring(name, self.pool)
        try:
            yield
        finally:
            self._seated.subtract(names)
            self._seated = +self._seated
            self._left.set()


def reference_name(policy: str) -> str:
    """Under which name the weights are served that a policy's KL holds on to."""
    return f"{policy}@reference"


def _used(experiment: Experiment) -> list[str]:
    """Names of the policies that may sit somewhere."""
    named = {seat.policy for table in experiment.all_tables() for seat in table.seats.values()}
    named |= {o.policy for o in experiment.league.opponents if o.policy} if experiment.league else set()
    return sorted(named & set(experiment.policies))
