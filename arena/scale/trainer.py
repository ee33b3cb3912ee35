"""Driver's side of a policy's trainer on several ranks: plans updates and keeps state. The ranks hold the weights."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from agents.policy import Policy
from agents.scoring import StreamScores
from agents.stream import Stream
from arena.learn.plan import Plan, Planner
from arena.learn.samples import Sample
from arena.learn.settings import ImitateSpec, UpdateSpec
from arena.parts.schedules import Clock
from arena.scale.layout import FILE_BUCKET, Layout
from arena.scale.packed_plan import pack_plan, pack_scoring
from arena.scale.rank import PolicyDescription, TensorKind, TrainerSpec
from arena.scale.ranks import Ranks
from arena.scale.tensors import Fetch, RankTensors, RankWeights, WeightsGone
from arena.scale.transfer import Link


class ScaledTrainer:
    """`Trainer` of one policy whose weights and optimiser are on the ranks."""

    def __init__(self, ranks: Ranks, policy: Policy, rule: UpdateSpec, bf16: bool) -> None:
        """Load the policy on the ranks and drop its model here. Must not be called in an event loop's thread."""
        assert policy.origin is not None, "only a trained policy has a trainer"
        self.name, self._ranks = policy.name, ranks
        self._spec = TrainerSpec(policy.name, policy.origin, rule, bf16)
        self._state: dict[str, Any] = {"steps": 0, "memory": {}}
        self._changes = 0
        """Number of weight changes so far, including one in progress."""
        policy.model = policy.base = None
        self._description = asyncio.run(self._load())
        self._planner = Planner(policy.name, rule, self._description.costs)

    async def _load(self) -> PolicyDescription:
        """Load the policy on every rank from folders on its node. Returns its description, equal on all ranks."""
        purpose, origin = f"policy '{self.name}', loading", self._spec.origin
        paths = {path: await self._ranks.send_folder(purpose, path) for path in {origin.source, origin.folder}}
        folders = zip(paths[origin.source], paths[origin.folder], strict=True)
        origins = [replace(origin, source=source, folder=folder) for source, folder in folders]
        forms = await self._ranks.ask_each(purpose, "add", [(self._spec._replace(origin=local),) for local in origins])
        description: PolicyDescription = forms[0]
        return description

    def plan(self, samples: Sequence[Sample], rng: np.random.Generator, clock: Clock = Clock()) -> Plan:
        """Plan an update on the samples, split across all ranks."""
        return self._planner.plan_update(samples, rng, clock, self._state["steps"], len(self._ranks))

    def plan_imitation(self, samples: Sequence[Sample], spec: ImitateSpec, rng: np.random.Generator) -> Plan:
        """Plan supervised learning on the samples, split across all ranks."""
        return self._planner.plan_imitation(samples, spec, rng, len(self._ranks))

    async def update(self, plan: Plan, on_step: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Run a plan on all ranks and return the metrics. Calls `on_step` once per step, after the last one."""
        import ray

        self._changes += 1
        parts = await asyncio.to_thread(lambda: [ray.put(pack_plan(plan.for_rank(k))) for k in range(len(self._ranks))])
        arguments = [(self.name, part) for part in parts]
        answers = await self._ranks.ask_each(f"{plan.label}, update", "update", arguments)
        metrics: dict[str, float] = answers[0][0]
        self._state = answers[0][1]
        for _ in plan.steps:
            on_step()
        return metrics

    async def score(self, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[StreamScores]:
        """Return the log-probabilities and entropies of each stream's sampled tokens. The ranks share the work."""
        shares = self._planner.plan_scoring(streams, len(self._ranks))
        arguments = [(self.name, *pack_scoring(streams, temperatures, share)) for share in shares]
        scores_by_stream: dict[int, StreamScores] = {}
        for scores in await self._ranks.ask_each(f"policy '{self.name}', scoring", "score", arguments):
            scores_by_stream |= scores
        empty = StreamScores(np.zeros(0, np.float32), np.zeros(0, np.float32))
        return [scores_by_stream.get(i, empty) for i in range(len(streams))]

    async def save(self) -> RankTensors:
        """Return the optimiser's moments by name. Each is fetched from the ranks when read."""
        layout, *_ = await self._ask("saving", "describe_moments")
        return RankTensors(layout, self._make_fetch("moments"))

    async def load(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Restore `state`, and the optimiser from a checkpoint folder written by any number of ranks."""
        import ray

        path = folder / "optimizer.safetensors"
        layout, begin = Layout.read_file(path)
        self._state, *_ = await self._ask("loading", "resume", dict(state))
        with path.open("rb") as file:
            file.seek(begin)
            for number in layout.buckets(FILE_BUCKET):
                data = np.frombuffer(file.read(layout.length(number, FILE_BUCKET)), np.uint8)
                bucket = await asyncio.to_thread(ray.put, data)
                self._state, *_ = await self._ask("loading", "restore", layout, number, bucket)

    def state(self) -> dict[str, Any]:
        """Return the trainer's state for a checkpoint, as JSON values: `steps` and `memory`."""
        return self._state

    async def weights(self) -> RankWeights:
        """Return a handle to the current weights on the ranks, which is valid until the next update."""
        changes, name = self._changes, self.name

        async def send(layout: Layout, link: Link) -> str:
            self._require_current(changes)
            failures = await self._ask("sending its weights", "send", layout, link)
            return str(failures[0])

        tensors = RankTensors(self._description.weights, self._make_fetch("weights"))
        return RankWeights(
            name, self._spec.origin, self._description, tensors, lambda: changes == self._changes, self._ranks, send
        )

    def _make_fetch(self, kind: TensorKind) -> Fetch:
        """Return a function that fetches buckets of the current weights or moments, until the next update."""
        changes = self._changes

        async def fetch(layout: Layout, number: int) -> np.ndarray:
            self._require_current(changes)
            buckets = await self._ask("gathering", "gather_bucket", kind, layout, number)
            bucket: np.ndarray = buckets[0]
            return bucket

        return fetch

    def _require_current(self, changes: int) -> None:
        if changes != self._changes:
            raise WeightsGone(f"policy '{self.name}' was updated since: these weights no longer exist")

    async def close(self) -> None:
        """Drop the policy from the ranks, unless they are lost. The ranks keep running."""
        if not self._ranks.lost:
            await self._ask("closing", "drop")

    async def _ask(self, purpose: str, method: str, *arguments: Any) -> list[Any]:
        return await self._ranks.ask(f"policy '{self.name}', {purpose}", method, self.name, *arguments)
