"""Policies of a run: load, serve and save weights; load past versions on demand."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file

from agents.adapter import save_merged
from agents.adapter_config import is_adapter
from agents.computing import compute
from agents.engines.base import Engine
from agents.heap import trim_memory
from agents.model_config import read_vocabulary_size
from agents.policy import Bases, NewAdapter, Policy
from agents.precision import Precision
from agents.published import FolderWeights, ModuleWeights, RemoteTensors, RemoteWeights, Weights
from agents.stream import Stream
from agents.weights import resolve, resolve_base
from arena.errors import ConfigError, StoreError
from arena.league.pool import Pool, parse_version
from arena.learn.base import MakeTrainer, Trainer
from arena.learn.samples import Sample
from arena.learn.settings import PolicySpec, UpdateSpec
from arena.learn.trainer import create_local_trainer
from arena.parts.chance import generator
from arena.records import Trajectory
from arena.store.checkpoints import Checkpoint


class Snapshot(NamedTuple):
    """Weights, optimiser moments and state of a trained policy, to be written to a checkpoint."""

    weights: Weights
    moments: Mapping[str, torch.Tensor]
    """Moments of the optimiser by parameter name."""
    state: dict[str, Any]
    """JSON state: version, steps, and the regularisers' memory."""


class Policies(Mapping[str, Policy]):
    """Policies of a run by name, including loaded past versions. Loads, serves and saves their weights."""

    def __init__(
        self,
        specs: Mapping[str, PolicySpec],
        rule: UpdateSpec,
        engine: Engine,
        make_trainer: MakeTrainer = create_local_trainer,
        *,
        seed: int,
        precision: Precision = Precision.FP32,
        scores_reference: bool = False,
        learn_in_play: bool = False,
    ) -> None:
        """Create the policies without loading them, which `load` does.

        `scores_reference` is set if credit needs scores of reference weights. With `learn_in_play`, policies are served
        while they learn, so the engine gets copies of their weights.
        """
        self._learn_in_play = learn_in_play
        self.engine, self.rule, self._make_trainer = engine, rule, make_trainer
        self.precision, self._seed = precision, seed
        self.uses_reference = rule.uses_reference or scores_reference
        """True if a regulariser or credit needs scores of the reference weights."""
        self.trainers: dict[str, Trainer] = {}
        self._current: dict[str, Policy] = {}
        self._past: dict[str, Policy] = {}
        """Loaded past versions by name, the most recently used last."""
        self._references: dict[str, Path] = {}
        self._serving_reference: set[str] = set()
        """Policies whose reference weights are served."""
        self._bases, self._specs = Bases(precision), specs
        self._vocabularies: dict[str, int] = {}
        """Vocabulary size of each policy's model."""

    async def load(
        self, checkpoint: Checkpoint | None, states: Mapping[str, Any], announce: Callable[[str], None]
    ) -> None:
        """Load and serve the policies. Trained ones are restored from `checkpoint` and their saved `states`, if any.

        All others get their initial weights. `announce` is called with a description of each load.
        """
        for name, spec in self._specs.items():
            announce(f"loading {spec.model} as '{name}'")
            await self._load(name, spec, checkpoint, states.get(name) if spec.train else None)
            await self.serve(name)

    def __getitem__(self, name: str) -> Policy:
        return self._current[name] if name in self._current else self._past[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._current, *self._past))

    def __len__(self) -> int:
        return len(self._current) + len(self._past)

    async def publish(self) -> None:
        """Increment the versions of trained policies, and serve all policies with their current weights.

        Frozen policies are served again, too, so that an engine's caches are the same after a resume. If policies learn
        during play, only trained ones are served.
        """
        for name, policy in self.items():
            policy.version += name in self.trainers
        await self.serve(*(self.trainers if self._learn_in_play else self))

    async def serve(self, *names: str) -> None:
        """Serve these policies with their current weights and versions. The engine drops their caches.

        Unknown names are skipped.
        """
        for name in names:
            if name not in self:
                continue  # a past version that was unloaded meanwhile
            weights = await self.weights(name)
            if self._learn_in_play and isinstance(weights, ModuleWeights):
                weights = replace(weights, copied=True)
            with weights.gather():
                await self.engine.publish(name, self[name].version, weights)

    async def weights(self, name: str) -> Weights:
        """Return a policy's current weights, from its trainer if it is trained, else from its folder."""
        return await self.trainers[name].weights() if name in self.trainers else FolderWeights(self[name].source)

    async def set_references(self, references: Mapping[str, Path]) -> None:
        """Set the folder of each trained policy's reference weights, and stop serving earlier ones."""
        self._references = dict(references) if self.uses_reference else {}
        for name in self.trainers:
            await self._drop_reference(name)

    async def reference_scores(
        self, name: str, streams: Sequence[Stream], temperatures: Sequence[float], all_ids: bool = False
    ) -> list[np.ndarray]:
        """Return the log-probabilities of each stream's sampled tokens under a policy's reference weights.

        With `all_ids`, returns those of the whole vocabulary, [tokens, vocabulary]. The weights are loaded at the first
        call.
        """
        if name not in self._serving_reference:
            if self.rule.offload_reference:
                trim_memory()  # loading briefly needs twice the memory
            await self.engine.publish(name_reference(name), 0, FolderWeights(self._references[name]))
            self._serving_reference.add(name)
        return await self.engine.score(name_reference(name), streams, temperatures, all_ids)

    async def with_references(self, name: str, samples: list[Sample]) -> list[Sample]:
        """Add the reference's log-probabilities to the samples if a regulariser or credit needs them."""
        if not self.uses_reference:
            return samples
        streams, temperatures = [s.stream for s in samples], [s.temperature for s in samples]
        all_ids = self.rule.uses_distributions
        scored = await self.reference_scores(name, streams, temperatures, all_ids)
        if all_ids and scored and scored[0].shape[1] != (own := self._vocabularies[name]):
            raise ConfigError(
                f"policies.{name}.reference: its vocabulary has {scored[0].shape[1]:,} ids and the policy's {own:,}: "
                "set learn.regularisers.kl.estimate to k2, which compares sampled tokens alone"
            )
        if self.rule.offload_reference:
            await self._drop_reference(name)
        return [s.with_reference(r) for s, r in zip(samples, scored, strict=True)]

    async def _drop_reference(self, name: str) -> None:
        await self.engine.retire(name_reference(name))
        self._serving_reference.discard(name)

    def require_known_tokens(self, trajectories: Iterable[Trajectory]) -> None:
        """Raise StoreError for a token id outside the vocabulary of its policy's model, as an edited log may have."""
        for trajectory in trajectories:
            size = self._vocabularies.get(trajectory.policy, 1 << 31)
            for token in (end(stream.ids) for stream in trajectory.streams if stream.ids for end in (min, max)):
                if not 0 <= token < size:
                    raise StoreError(
                        f"match {trajectory.match}: {trajectory.seat} has the token {token}, and the model of policy "
                        f"'{trajectory.policy}' has {size}: restore the log from a copy"
                    )

    async def snapshot(self) -> dict[str, Snapshot]:
        """Return a snapshot of each trained policy, by name."""
        return {
            name: Snapshot(
                await trainer.weights(), await trainer.save(), {"version": self[name].version} | trainer.state()
            )
            for name, trainer in self.trainers.items()
        }

    def save(self, folder: Path, snapshots: Mapping[str, Snapshot]) -> dict[str, dict[str, Any]]:
        """Write the snapshots' weights and optimisers to `folder`/NAME, and return their JSON states by name."""
        for name, (weights, moments, state) in snapshots.items():
            self.save_weights(name, folder / name, weights)
            metadata = {"steps": str(state["steps"])}
            file = folder / name / "optimizer.safetensors"
            if isinstance(moments, RemoteTensors):
                moments.write(file, metadata)
            else:
                save_file(dict(moments), file, metadata=metadata)
        return {name: snapshot.state for name, snapshot in snapshots.items()}

    def save_weights(self, name: str, folder: Path, weights: Weights) -> None:
        """Write a trained policy without its optimiser, in Hugging Face layout, or in peft's layout for an adapter."""
        if isinstance(weights, RemoteWeights):
            weights.write(folder)
            if not is_adapter(folder):
                self[name].save_companions(folder)
            return
        with weights.gather():
            self[name].with_weights(weights).save(folder)

    def save_whole(self, name: str, folder: Path, weights: Weights) -> None:
        """Write a trained policy in Hugging Face layout, with an adapter merged into its base."""
        origin = self[name].origin
        if origin is None or not origin.is_adapter:
            self.save_weights(name, folder, weights)
            return
        with TemporaryDirectory(prefix="arena-adapter-") as scratch:
            adapter = Path(scratch) / "adapter"
            self.save_weights(name, adapter, weights)
            save_merged(adapter, folder)

    async def _load(
        self, name: str, spec: PolicySpec, checkpoint: Checkpoint | None, state: Mapping[str, Any] | None
    ) -> None:
        source = resolve(spec.model)
        folder = checkpoint.policy(name) if checkpoint and state else source
        seed = int(generator(self._seed, 0, "adapter", name).integers(2**63))
        new = NewAdapter(spec.adapter, seed, spec.model) if spec.adapter else None
        policy = await compute(
            Policy.load, name, source, folder, spec.train, new, self._bases, self.precision, spec.vision_settings, True
        )  # the trainer loads the weights, here or on a rank
        if spec.train:
            self.trainers[name] = await compute(
                self._make_trainer, policy, self.rule, self.precision.uses_bf16_products
            )
            if state:
                await self.trainers[name].load(folder, state)
                policy.version = state["version"]
        self._current[name] = policy
        self._vocabularies[name] = read_vocabulary_size(resolve_base(source))

    async def load_past(self, name: str, pool: Pool) -> None:
        """Load and serve a past version, such as `shared@12`, unless it is loaded. Mark it as most recently used."""
        parsed = parse_version(name)
        assert parsed is not None, name
        policy, version = parsed
        if name not in self._past:
            self._past[name] = self[policy].freeze_version(name, version, pool.path(policy, version))
            await self.serve(name)
        self._past[name] = self._past.pop(name)

    async def unload_past(self, limit: int, busy: Collection[str]) -> None:
        """Unload the least recently used past versions that are not `busy`, until at most `limit` are loaded."""
        idle = [name for name in self._past if name not in busy]
        for name in idle[: max(0, len(self._past) - limit)]:
            del self._past[name]
            await self.engine.retire(name)


class PastVersions:
    """Limiter of loaded past versions: the matches in progress use at most `pool.spec.in_memory` of them.

    `reserve` loads the versions that a match needs, and waits until they fit. A match that needs more than the limit
    runs alone.
    """

    def __init__(self, policies: Policies, pool: Pool) -> None:
        self.policies, self.pool = policies, pool
        self._in_use = Counter[str]()
        self._freed = asyncio.Event()
        self._loading = asyncio.Lock()

    @asynccontextmanager
    async def reserve(self, policies: Collection[str]) -> AsyncIterator[None]:
        """Wait until the past versions among these policies fit, and keep them loaded and served within the context."""
        names = sorted({name for name in policies if parse_version(name)})
        if names:
            await self._acquire(names)
        try:
            yield
        finally:
            self._release(names)

    def _release(self, names: Sequence[str]) -> None:
        self._in_use.subtract(names)
        self._in_use = +self._in_use
        self._freed.set()

    async def _acquire(self, names: Sequence[str]) -> None:
        limit = self.pool.spec.in_memory
        while True:
            while self._in_use and len(self._in_use.keys() | set(names)) > limit:
                self._freed.clear()
                await self._freed.wait()
            async with self._loading:  # one match at a time, so that two do not rely on the same idle version
                if self._in_use and len(self._in_use.keys() | set(names)) > limit:
                    continue  # another match took the slot meanwhile
                self._in_use.update(names)
                try:
                    await self._load(names)
                except BaseException:
                    self._release(names)
                    raise
                return

    async def _load(self, names: Sequence[str]) -> None:
        absent = [name for name in names if name not in self.policies]
        await self.policies.unload_past(self.pool.spec.in_memory - len(absent), self._in_use)
        for name in names:
            await self.policies.load_past(name, self.pool)


def name_reference(policy: str) -> str:
    """Return the name under which a policy's reference weights are served, such as `shared@reference`."""
    return f"{policy}@reference"
