"""Several engines sample what one would, and one that dies takes only its own replies with it."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.adapter_config import AdapterSpec
from agents.engines.base import Completion, Request
from agents.engines.in_process import InProcessEngine
from agents.engines.spec import EngineSpec
from agents.errors import EngineDied, EngineError, EnginesLost
from agents.model_config import NO_LIMIT
from agents.policy import Bases, NewAdapter, Policy
from agents.published import FolderWeights, ModuleWeights
from agents.stream import Stream
from agents.weights import load_model, resolve
from arena.cli.loop import wait
from arena.config.experiment import LearnSpec
from tests.factories.requests import make_contexts, make_request
from tests.factories.scaled import make_ragged_samples
from tests.factories.short_contexts import assert_context_full, play_talk, save_short_nano

pytest.importorskip("ray")

from arena.scale import engines as rooms
from arena.scale.cluster import Cluster, reserve
from arena.scale.engines import ScaledEngine
from arena.scale.ranks import Ranks
from arena.scale.settings import ResourcesSpec, ScaleSpec, WorkerResources
from arena.scale.trainer import ScaledTrainer
from arena.scale.watchdog import Watchdog

pytestmark = pytest.mark.slow  # a cluster for itself: `make test-scale`
SMALL = ResourcesSpec(engine=WorkerResources(cpus=0.5), trainer=WorkerResources(cpus=0.1))
SPEC = ScaleSpec(engines=2, resources=SMALL, patience=20.0)


class Served:
    """Two engines with nano as `p` from two ranks, and what was noted of them."""

    def __init__(self, ranks: Ranks) -> None:
        self.notes, self.ranks = list[str](), ranks
        self.module: Any = load_model(resolve("nano"))
        self.trainer = self.on_ranks("p")

    def on_ranks(self, name: str, adapter: NewAdapter | None = None, stage: Any = 0) -> ScaledTrainer:
        """A policy that begins as nano, on the ranks."""
        policy = Policy.load(name, resolve("nano"), resolve("nano"), True, adapter, empty=True)
        return ScaledTrainer(
            self.ranks, policy, LearnSpec(zero_stage=stage, gate_tolerance=1e9, regularisers={}), False
        )

    async def open(self) -> None:
        self.watchdog = Watchdog(self.notes.append, SPEC.patience, SPEC.deadline)
        self.engine = ScaledEngine(Cluster(SPEC, await reserve(SPEC), self.watchdog), EngineSpec())
        await self.engine.open()
        await self.engine.publish("p", 3, await self.trainer.weights())

    async def close(self) -> None:
        await self.engine.close()
        await self.watchdog.close()

    async def whole(self) -> None:
        """Wait until both engines are there."""
        while not all(place.ready for place in self.engine._slots):
            await asyncio.sleep(0.05)

    async def signalled(self, index: int, number: int) -> None:
        """Send a signal to an engine's process."""
        worker = self.engine._slots[index].worker
        assert worker is not None and worker._handle is not None
        signal.pidfd_send_signal(worker._handle, number)


@pytest.fixture(scope="module")
def served(ranks: Ranks) -> Iterator[Served]:
    made = Served(ranks)
    wait(made.open())
    yield made
    wait(made.close())


def matches(policy: str = "p") -> list[Request]:
    """Twelve replies of six matches, at temperature 1."""
    return [
        make_request(ids, seed, f"m{seed // 2}/seat{seed % 2}/0", policy=policy, max_tokens=12)
        for seed, ids in enumerate(make_contexts(400, 12))
    ]


def alike(got: list[Completion], expected: list[Completion]) -> None:
    assert [(one.ids, one.finish, one.version) for one in got] == [(o.ids, o.finish, o.version) for o in expected]
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)


async def alone(weights: Any, requests: list[Request], version: int = 3) -> list[Completion]:
    """What an engine in this process answers."""
    engine = InProcessEngine()
    await engine.publish(requests[0].policy, version, weights)
    return await engine.generate(requests)


def test_two_engines_sample_and_score_what_one_does(served: Served) -> None:
    """Whole weights, an adapter that learns, and a folder; a match stays with its engine."""
    new = NewAdapter(AdapterSpec(rank=4), 5, "nano")
    own = Policy.load("q", resolve("nano"), resolve("nano"), True, new, Bases())
    adapter = served.on_ranks("q", new)

    async def compare() -> None:
        engine = served.engine
        alike(await engine.generate(matches()), await alone(ModuleWeights(served.module), matches()))
        assert [place.matches for place in engine._slots] == [3, 3]
        assert all(place.figures()["seconds"] > 0 for place in engine._slots)
        for one in matches():
            engine.forget(one.key)
        assert [place.matches for place in engine._slots] == [0, 0]

        streams = [Stream([1, *ids], [False] + [True] * len(ids), [0.0] * (len(ids) + 1), [0] * (len(ids) + 1))
                   for ids in make_contexts(400, 7)]  # fmt: skip
        local = InProcessEngine()
        await local.publish("p", 3, ModuleWeights(served.module))
        temperatures = [0.5 + 0.2 * i for i in range(7)]
        for scored, other in zip(
            await engine.score("p", streams, temperatures), await local.score("p", streams, temperatures), strict=True
        ):
            np.testing.assert_allclose(scored, other, atol=1e-4)

        folder = FolderWeights(resolve("nano-3"))
        for there, here in ((await adapter.weights(), ModuleWeights(own.model, own.base)), (folder, folder)):
            await engine.publish("q", 7, there)
            alike(await engine.generate(matches("q")), await alone(here, matches("q"), 7))
        await engine.retire("q")
        with pytest.raises(KeyError, match="'q'"):
            await engine.generate(matches("q"))

    wait(compare())


def test_a_match_ends_where_the_context_is_full(served: Served, tmp_path: Path) -> None:
    """By the model's positions, whether the player or only the engine knows them."""

    async def play() -> None:
        for known in (None, NO_LIMIT):
            record = await play_talk(served.engine, save_short_nano(tmp_path / f"{known}"), known)
            assert_context_full(record) if known is None else None
            assert (record.status, record.report["ended"]) == ("finished", "context"), record.reason
        await served.engine.retire("short")

    wait(play())


def test_one_that_dies_takes_its_own_replies_and_comes_back_with_the_present_weights(served: Served) -> None:
    """The other goes on meanwhile; weights published while one is away reach it."""

    async def die() -> None:
        engine, expected = served.engine, await alone(ModuleWeights(served.module), matches(), 4)
        await served.whole()
        served.notes.clear()
        waiting = [asyncio.ensure_future(engine.generate([one])) for one in matches()]
        while not any(place.busy for place in engine._slots):
            await asyncio.sleep(0)
        await served.signalled(0, signal.SIGKILL)
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        died = [answer for answer in answers if isinstance(answer, BaseException)]
        assert len(died) == 6 and all(type(answer) is EngineDied for answer in died), answers
        assert "engine 0 died in 6 replies" in served.notes[0] and "started again (1 of 5 times)" in served.notes[0]
        await engine.publish("p", 4, await served.trainer.weights())
        alike(await engine.generate(matches()), expected)
        await served.whole()
        assert {place.served["p"].version for place in engine._slots} == {4}
        for one in matches():
            engine.forget(one.key)
        alike(await engine.generate(matches()), expected)
        assert [place.matches for place in engine._slots] == [3, 3]

    wait(die())


def test_one_that_starts_while_the_ranks_learn_on_waits_for_the_next_version(served: Served) -> None:
    """Meanwhile it serves what it can have, and the other serves the version that the ranks no longer hold."""
    trainer = served.on_ranks("s")

    async def die() -> None:
        engine, folder = served.engine, FolderWeights(resolve("nano-3"))
        await served.whole()
        await engine.publish("s", 1, await trainer.weights())
        await engine.publish("f", 0, folder)
        await trainer.update(trainer.plan(make_ragged_samples(1), np.random.default_rng(0)))
        await served.signalled(0, signal.SIGKILL)
        while all(place.ready for place in engine._slots):
            await asyncio.sleep(0.01)
        await served.whole()
        behind, other = engine._slots
        assert not behind.serves("s") and other.serves("s") and behind.serves("f") and behind.serves("p")
        assert {one.version for one in await engine.generate(matches("s"))} == {1}
        await engine.release("s")
        for one in matches():
            engine.forget(one.key)

        await served.signalled(1, signal.SIGKILL)
        while all(place.ready for place in engine._slots):
            await asyncio.sleep(0.01)
        waiting = asyncio.ensure_future(engine.generate(matches("s")))
        alike(await engine.generate(matches("f")), await alone(folder, matches("f"), 0))
        await served.whole()
        assert not waiting.done()
        await engine.publish("s", 2, await trainer.weights())
        assert {one.version for one in await waiting} == {2}
        for one in matches():
            engine.forget(one.key)
        for policy in ("s", "f"):
            await engine.retire(policy)

    wait(die())


def test_one_that_is_stopped_is_named_ended_and_replaced(served: Served) -> None:
    async def stop() -> None:
        await served.whole()
        served.notes.clear()
        served.watchdog.patience = 3.0
        await asyncio.sleep(6)  # the ping that waits just now has the longer patience
        await served.signalled(1, signal.SIGSTOP)
        answers = await asyncio.gather(*(served.engine.generate([r]) for r in matches()), return_exceptions=True)
        assert 0 < sum(isinstance(answer, EngineDied) for answer in answers) <= 6
        assert "engine 1 gives no sign of life for 3 s, in" in served.notes[0] and "replies" in served.notes[0]
        served.watchdog.patience = 20.0
        await served.whole()
        assert len(await served.engine.generate(matches())) == 12

    wait(stop())


def test_scores_are_computed_by_the_other_when_one_dies(served: Served) -> None:
    async def die() -> None:
        await served.whole()
        streams = [Stream([1, 2, 3], [False, True, True], [0.0] * 3, [0] * 3) for _ in range(8)]
        await served.signalled(0, signal.SIGKILL)
        assert len(await served.engine.score("p", streams, [1.0] * 8)) == 8
        await served.whole()

    wait(die())


def test_when_none_comes_back_the_run_is_told(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is told at once, and so is whoever asks later. Last here: nothing is left afterwards."""

    async def lose() -> None:
        await served.whole()
        monkeypatch.setattr(rooms, "RESTARTS", 0)
        for index in range(2):
            await served.signalled(index, signal.SIGKILL)
        answers = await asyncio.gather(*(served.engine.generate([r]) for r in matches()), return_exceptions=True)
        assert all(isinstance(answer, EngineError) for answer in answers)
        with pytest.raises(EnginesLost, match="none of 2 engines is left"):
            await served.engine.generate(matches())
        with pytest.raises(EnginesLost):
            await served.engine.score("p", [Stream([1, 2], [False, True], [0.0] * 2, [0] * 2)], [1.0])

    wait(lose())
