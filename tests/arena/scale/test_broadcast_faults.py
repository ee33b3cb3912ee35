"""Engines die, stop and pause in the middle of broadcasts: no reply is lost, doubled or of two versions."""

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
from agents.policy import Policy
from agents.published import ModuleWeights
from agents.weights import load_model, resolve
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
HUNG = 300.0
FAST = Case({"lr": 1e-3, "minibatches": 1, "gate_tolerance": 1e9, "regularisers": {}})
"""Updates that change replies visibly."""


def asked(prefix: str) -> list[Request]:
    """Eight replies of eight matches."""
    return [make_request(ids, n, f"{prefix}{n}/seat/0", max_tokens=8) for n, ids in enumerate(make_contexts(300, 8))]


class Ordeal:
    """Two ranks that learn, and two engines that get every version, in buckets so small that it takes a while."""

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
        """Publish the ranks' weights, and note what an engine in this process answers with them."""
        weights = await self.trainer.weights()
        module: Any = load_model(resolve("nano"))
        module.load_state_dict(await asyncio.to_thread(dict, weights.tensors), strict=False)
        local = InProcessEngine()
        await local.publish("p", version, ModuleWeights(module))
        self.expected[version] = await local.generate(asked("alone"))
        await self.engine.publish("p", version, weights)

    async def learn(self, version: int) -> None:
        given = make_ragged_samples(version)
        await self.trainer.update(self.trainer.plan(given, np.random.default_rng(version), Clock(1, 9)))

    async def strike(self, kind: str, publishing: asyncio.Future[None]) -> None:
        """Let a fault befall one engine, or both, at a random moment of the broadcast."""
        while not publishing.done() and not any("p" in place.torn for place in self.engine._slots):
            await asyncio.sleep(0.001)  # what comes before takes long on a busy machine
        await asyncio.sleep(self.rng.uniform(0.0, 0.6))
        places = self.engine._slots if kind == "kill both" else [self.rng.choice(self.engine._slots)]
        for place in places:
            if place.worker is None or place.worker._handle is None:
                continue
            handle, number = place.worker._handle, signal.SIGKILL if kind.startswith("kill") else signal.SIGSTOP
            self.counts[f"torn at {kind}"] += "p" in place.torn
            signal.pidfd_send_signal(handle, number)
            if kind == "pause":
                await asyncio.sleep(self.rng.uniform(0.5, 2.0))
                signal.pidfd_send_signal(handle, signal.SIGCONT)

    async def whole(self) -> None:
        while not all(place.serves("p") for place in self.engine._slots):
            await asyncio.sleep(0.05)

    async def settled(self, requests: list[Request]) -> list[Any]:
        """Replies to the requests by engines of which none dies; a fault may show only when it is asked."""
        while True:
            await self.whole()
            each = (self.engine.generate([one]) for one in requests)
            self.judge(answers := await asyncio.gather(*each, return_exceptions=True))
            if not any(isinstance(answer, EngineDied) for answer in answers):
                return answers

    def judge(self, answers: list[Any]) -> None:
        """Each is the reply that weights of its version give, or its engine died."""
        for n, answer in enumerate(answers):
            if isinstance(answer, EngineDied):
                self.counts["died"] += 1
                continue
            assert isinstance(answer, list), answer
            (found,) = answer
            other = self.expected[found.version][n]
            assert (found.ids, found.finish) == (other.ids, other.finish), f"reply {n} of version {found.version}"
            np.testing.assert_allclose(found.logprobs, other.logprobs, atol=1e-4)
            self.counts["answered"] += 1


@pytest.fixture
def ordeal(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ordeal]:
    for bucket in ("BUCKET", "SHARED_BUCKET"):
        monkeypatch.setattr(broadcasts, bucket, 4096)
    monkeypatch.setattr(rooms, "RESTARTS", 50)
    made = Ordeal(ranks, 7)
    wait(made.open())
    yield made
    wait(made.close())


def test_thirty_faults_in_the_middle_of_a_broadcast_mix_no_versions_and_lose_no_reply(ordeal: Ordeal) -> None:
    async def through() -> None:
        kinds = list(FAULTS)
        ordeal.rng.shuffle(kinds)
        for version, kind in enumerate(kinds, 1):
            await ordeal.learn(version)
            replies = [asyncio.ensure_future(ordeal.engine.generate([one])) for one in asked(f"v{version}-")]
            async with asyncio.timeout(HUNG):
                publishing = asyncio.ensure_future(ordeal.publish(version))
                await asyncio.gather(publishing, ordeal.strike(kind, publishing))
                ordeal.judge(await asyncio.gather(*replies, return_exceptions=True))
                after = await ordeal.settled(asked(f"w{version}-"))
            assert {one.version for answer in after for one in answer} == {version}
            for one in (*asked(f"v{version}-"), *asked(f"w{version}-")):
                ordeal.engine.forget(one.key)

    wait(through())
    same = [ordeal.expected[n][0].logprobs == ordeal.expected[n + 1][0].logprobs for n in range(len(FAULTS))]
    assert not any(same), "versions cannot be told apart"
    print(dict(ordeal.counts))
    assert sum(ordeal.counts[f"torn at {kind}"] for kind in {*FAULTS}) >= len(FAULTS) // 2, ordeal.counts


def test_a_rank_that_dies_in_the_middle_of_a_broadcast_ends_it(cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run starts again then; meanwhile no engine serves half of a version."""
    for bucket in ("BUCKET", "SHARED_BUCKET"):
        monkeypatch.setattr(broadcasts, bucket, 4096)
    started = asyncio.run(Ranks.start([{"num_cpus": 1}] * 2, timeout=20.0, start_timeout=300.0))
    made = Ordeal(started, 3)

    async def through() -> None:
        await made.open()
        await made.learn(1)
        publishing = asyncio.ensure_future(made.engine.publish("p", 1, await made.trainer.weights()))
        while not all(place.torn for place in made.engine._slots):
            await asyncio.sleep(0)
        await asyncio.sleep(0.3)
        os.kill(started.places[0].pid, signal.SIGKILL)
        async with asyncio.timeout(HUNG):
            with pytest.raises(RanksLost, match=r"rank 0 .*died"):
                await publishing
        assert not any(place.serves("p") for place in made.engine._slots)
        await made.engine.close()
        await made.watchdog.close()

    wait(through())
    asyncio.run(started.close())
