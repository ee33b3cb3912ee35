"""Engines die, stop and pause during broadcasts: no reply is lost, doubled or mixed from two versions."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from agents.engines.base import Completion, Request
from agents.engines.in_process import InProcessEngine
from agents.engines.spec import EngineSpec
from agents.errors import EngineDied
from agents.model_folder import load_model
from agents.policy import Policy
from agents.published import ModuleWeights
from agents.weights import resolve
from arena.cli.loop import wait
from arena.errors import RanksLost
from arena.parts.schedules import Clock
from tests.factories.requests import make_contexts, make_request
from tests.factories.scaled import Case, make_ragged_samples

pytest.importorskip("ray")

from arena.scale import broadcasts
from arena.scale import engines as rooms
from arena.scale.cluster import Cluster, reserve
from arena.scale.engines import ScaledEngine
from arena.scale.ranks import Ranks
from arena.scale.settings import ResourcesSpec, ScaleSpec, WorkerResources
from arena.scale.trainer import ScaledTrainer
from arena.scale.watchdog import Watchdog

pytestmark = pytest.mark.slow
SMALL = ResourcesSpec(engine=WorkerResources(cpus=0.5), trainer=WorkerResources(cpus=0.1))
SPEC = ScaleSpec(engines=2, resources=SMALL, patience=6.0)
FAULTS = ["kill"] * 12 + ["stop"] * 6 + ["pause"] * 8 + ["kill both"] * 4
HANG_SECONDS = 300.0
FAST = Case({"lr": 1e-3, "minibatches": 1, "gate_tolerance": 1e9, "regularisers": {}})
"""Updates that change replies visibly."""


def make_requests(prefix: str) -> list[Request]:
    """Return eight requests of eight matches."""
    return [make_request(ids, n, f"{prefix}{n}/seat/0", max_tokens=8) for n, ids in enumerate(make_contexts(300, 8))]


class BroadcastFixture:
    """Two ranks that learn and two engines that receive each version, in buckets so small that it takes a while."""

    def __init__(self, ranks: Ranks, seed: int) -> None:
        self.rng, self.notes, self.ranks = random.Random(seed), list[str](), ranks
        policy = Policy.load("p", resolve("nano"), resolve("nano"), True, empty=True)
        self.trainer: Any = ScaledTrainer(ranks, policy, FAST.spec(), False)
        self.watchdog = Watchdog(self.notes.append, SPEC.patience, SPEC.deadline)
        self.expected: dict[int, list[Completion]] = {}
        self.counts = Counter[str]()

    async def open(self) -> None:
        self.engine = ScaledEngine(Cluster(SPEC, await reserve(SPEC), self.watchdog), EngineSpec())
        await self.engine.open()
        await self.publish(0)

    async def close(self) -> None:
        await self.engine.close()
        await self.watchdog.close()
        await self.trainer.close()

    async def publish(self, version: int) -> None:
        """Publish the ranks' weights, and record the replies of a local engine with the same weights."""
        weights = await self.trainer.weights()
        module: Any = load_model(resolve("nano"))
        module.load_state_dict(await asyncio.to_thread(dict, weights.tensors), strict=False)
        local = InProcessEngine()
        await local.publish("p", version, ModuleWeights(module))
        self.expected[version] = await local.generate(make_requests("alone"))
        await self.engine.publish("p", version, weights)

    async def learn(self, version: int) -> None:
        batch = make_ragged_samples(version)
        await self.trainer.update(self.trainer.plan(batch, np.random.default_rng(version), Clock(1, 9)))

    async def inject_fault(self, kind: str, publishing: asyncio.Future[None]) -> None:
        """Inject a fault into one engine or both, at a random moment of the broadcast."""
        while not publishing.done() and not any("p" in slot.incomplete for slot in self.engine._slots):
            await asyncio.sleep(0.001)  # what comes before takes long on a busy machine
        await asyncio.sleep(self.rng.uniform(0.0, 0.6))
        slots = self.engine._slots if kind == "kill both" else [self.rng.choice(self.engine._slots)]
        for slot in slots:
            if slot.worker is None or slot.worker._handle is None:
                continue
            process_handle, signal_number = (
                slot.worker._handle,
                signal.SIGKILL if kind.startswith("kill") else signal.SIGSTOP,
            )
            self.counts[f"torn at {kind}"] += "p" in slot.incomplete
            signal.pidfd_send_signal(process_handle, signal_number)
            if kind == "pause":
                await asyncio.sleep(self.rng.uniform(0.5, 2.0))
                signal.pidfd_send_signal(process_handle, signal.SIGCONT)

    async def wait_until_served(self) -> None:
        while not all(place.serves("p") for place in self.engine._slots):
            await asyncio.sleep(0.05)

    async def generate_until_alive(self, requests: list[Request]) -> list[Any]:
        """Return replies once no engine dies while answering; a fault may show only on a request."""
        while True:
            await self.wait_until_served()
            calls = (self.engine.generate([one]) for one in requests)
            self.check_replies(answers := await asyncio.gather(*calls, return_exceptions=True))
            if not any(isinstance(answer, EngineDied) for answer in answers):
                return answers

    def check_replies(self, answers: list[Any]) -> None:
        """Check that each reply is that of its version's weights, or that its engine died."""
        for n, answer in enumerate(answers):
            if isinstance(answer, EngineDied):
                self.counts["died"] += 1
                continue
            assert isinstance(answer, list), answer
            (reply,) = answer
            expected = self.expected[reply.version][n]
            assert (reply.ids, reply.finish) == (expected.ids, expected.finish), f"reply {n} of version {reply.version}"
            np.testing.assert_allclose(reply.logprobs, expected.logprobs, atol=1e-4)
            self.counts["answered"] += 1


@pytest.fixture
def broadcast(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> Iterator[BroadcastFixture]:
    for bucket in ("BUCKET", "SHARED_BUCKET"):
        monkeypatch.setattr(broadcasts, bucket, 4096)
    monkeypatch.setattr(rooms, "RESTARTS", 50)
    fixture = BroadcastFixture(ranks, 7)
    wait(fixture.open())
    yield fixture
    wait(fixture.close())


def test_thirty_faults_during_broadcasts_mix_no_versions_and_lose_no_reply(broadcast: BroadcastFixture) -> None:
    async def run() -> None:
        kinds = list(FAULTS)
        broadcast.rng.shuffle(kinds)
        for version, kind in enumerate(kinds, 1):
            await broadcast.learn(version)
            replies = [
                asyncio.ensure_future(broadcast.engine.generate([current])) for current in make_requests(f"v{version}-")
            ]
            async with asyncio.timeout(HANG_SECONDS):
                publishing = asyncio.ensure_future(broadcast.publish(version))
                await asyncio.gather(publishing, broadcast.inject_fault(kind, publishing))
                broadcast.check_replies(await asyncio.gather(*replies, return_exceptions=True))
                after = await broadcast.generate_until_alive(make_requests(f"w{version}-"))
            assert {current.version for answer in after for current in answer} == {version}
            for current in (*make_requests(f"v{version}-"), *make_requests(f"w{version}-")):
                broadcast.engine.forget(current.key)

    wait(run())
    same = [broadcast.expected[n][0].logprobs == broadcast.expected[n + 1][0].logprobs for n in range(len(FAULTS))]
    assert not any(same), "versions are indistinguishable"
    print(dict(broadcast.counts))
    assert sum(broadcast.counts[f"torn at {kind}"] for kind in {*FAULTS}) >= len(FAULTS) // 2, broadcast.counts


def test_dead_rank_during_a_broadcast_ends_it(cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run then restarts; meanwhile no engine serves a partial version."""
    for bucket in ("BUCKET", "SHARED_BUCKET"):
        monkeypatch.setattr(broadcasts, bucket, 4096)
    started = asyncio.run(Ranks.start([{"num_cpus": 1}] * 2, timeout=20.0, start_timeout=300.0))
    fixture = BroadcastFixture(started, 3)

    async def run() -> None:
        await fixture.open()
        await fixture.learn(1)
        publishing = asyncio.ensure_future(fixture.engine.publish("p", 1, await fixture.trainer.weights()))
        while not all(place.incomplete for place in fixture.engine._slots):
            await asyncio.sleep(0)
        await asyncio.sleep(0.3)
        os.kill(started.locations[0].pid, signal.SIGKILL)
        async with asyncio.timeout(HANG_SECONDS):
            with pytest.raises(RanksLost, match=r"rank 0 .*died"):
                await publishing
        assert not any(place.serves("p") for place in fixture.engine._slots)
        await fixture.engine.close()
        await fixture.watchdog.close()

    wait(run())
    asyncio.run(started.close())
