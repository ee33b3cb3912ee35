"""Driver's side of a trainer of one policy on several ranks: plans and state. The weights are on the ranks."""

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
from arena.scale.parcels import pack, pack_scoring
from arena.scale.rank import Form, Kind, Learner
from arena.scale.ranks import Ranks
from arena.scale.tensors import Fetch, RankTensors, RankWeights, WeightsGone
from arena.scale.transfer import Link


class ScaledTrainer:
    """Trainer of one policy, with weights and optimiser on all ranks and the interface of `Trainer`."""

    def __init__(self, ranks: Ranks, policy: Policy, rule: UpdateSpec, bf16: bool) -> None:
        """Load the policy on the ranks; this process keeps no model. Must not run in the event loop's thread."""
        assert policy.origin is not None, "only a trained policy has a trainer"
        self.name, self._ranks = policy.name, ranks
        self._learner = Learner(policy.name, policy.origin, rule, bf16)
        self._state: dict[str, Any] = {"steps": 0, "memory": {}}
        self._changes = 0
        """Number of weight changes so far, including one in progress."""
        policy.model = policy.base = None
        self._form = asyncio.run(self._load())
        self._planner = Planner(policy.name, rule, self._form.costs)

    async def _load(self) -> Form:
        """Load the policy on every rank from folders on its node. Returns the form that all ranks have."""
        purpose, origin = f"policy '{self.name}', loading", self._learner.origin
        paths = {path: await self._ranks.send_folder(purpose, path) for path in {origin.source, origin.folder}}
        each = zip(paths[origin.source], paths[origin.folder], strict=True)
        origins = [replace(origin, source=source, folder=folder) for source, folder in each]
        forms = await self._ranks.ask_each(purpose, "add", [(self._learner._replace(origin=one),) for one in origins])
        form: Form = forms[0]
        return form

    def plan(self, samples: Sequence[Sample], rng: np.random.Generator, clock: Clock = Clock()) -> Plan:
        """Return the plan of an update on the samples, split across all ranks."""
        return self._planner.plan_update(samples, rng, clock, self._state["steps"], len(self._ranks))

    def plan_imitation(self, samples: Sequence[Sample], spec: ImitateSpec, rng: np.random.Generator) -> Plan:
        """Return the plan of supervised learning on the samples, split across all ranks."""
        return self._planner.plan_imitation(samples, spec, rng, len(self._ranks))

    async def update(self, plan: Plan, stepped: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Run a plan on all ranks and return their common metrics. Calls `stepped` once per step, at the end."""
        import ray

        self._changes += 1
        parts = await asyncio.to_thread(lambda: [ray.put(pack(plan.for_rank(k))) for k in range(len(self._ranks))])
        given = [(self.name, part) for part in parts]
        answers = await self._ranks.ask_each(f"{plan.label}, update", "update", given)
        metrics: dict[str, float] = answers[0][0]
        self._state = answers[0][1]
        for _ in plan.steps:
            stepped()
        return metrics

    async def score(self, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[StreamScores]:
        """Return each stream's log-probabilities and entropies of sampled tokens. Ranks share the work."""
        shares = self._planner.plan_scoring(streams, len(self._ranks))
        given = [(self.name, *pack_scoring(streams, temperatures, share)) for share in shares]
        found: dict[int, StreamScores] = {}
        for scores in await self._ranks.ask_each(f"policy '{self.name}', scoring", "score", given):
            found |= scores
        nothing = StreamScores(np.zeros(0, np.float32), np.zeros(0, np.float32))
        return [found.get(i, nothing) for i in range(len(streams))]

    async def save(self) -> RankTensors:
        """Return the optimiser's moments by parameter name. Reading one fetches it from the ranks."""
        layout, *_ = await self._ask("saving", "moments")
        return RankTensors(layout, self._make_fetch("moments"))

    async def load(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Restore `state`, and the optimiser from a checkpoint folder that any number of ranks may have written."""
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
        """Return the trainer's state (`steps`, `memory`) for a checkpoint, as JSON values."""
        return self._state

    async def weights(self) -> RankWeights:
        """Return a handle to the current weights, which stay on the ranks. It is valid until the next update."""
        changes, name = self._changes, self.name

        async def send(layout: Layout, link: Link) -> str:
            self._require_current(changes)
            failures = await self._ask("sending its weights", "send", layout, link)
            return str(failures[0])

        return RankWeights(
            name, self._learner.origin, self._form, RankTensors(self._form.weights, self._make_fetch("weights")),
            lambda: changes == self._changes, self._ranks, send,
        )  # fmt: skip

    def _make_fetch(self, kind: Kind) -> Fetch:
        """Return a function that fetches buckets of the current weights or moments. It fails after the next update."""
        changes = self._changes

        async def fetch(layout: Layout, number: int) -> np.ndarray:
            self._require_current(changes)
            buckets = await self._ask("gathering", "bucket", kind, layout, number)
            found: np.ndarray = buckets[0]
            return found

        return fetch

    def _require_current(self, changes: int) -> None:
        if changes != self._changes:
            raise WeightsGone(f"policy '{self.name}' was updated since: these weights no longer exist")

    async def close(self) -> None:
        """Drop the policy from the ranks, unless they are lost. The ranks keep running."""
        if not self._ranks.lost:
            await self._ask("closing", "drop")

    async def _ask(self, purpose: str, method: str, *given: Any) -> list[Any]:
        return await self._ranks.ask(f"policy '{self.name}', {purpose}", method, self.name, *given)
