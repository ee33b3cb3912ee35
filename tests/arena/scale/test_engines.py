"""Several engines sample the same as one, and one that dies loses only its own replies."""

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
from agents.model_folder import load_model
from agents.policy import Bases, NewAdapter, Policy
from agents.published import FolderWeights, ModuleWeights
from agents.stream import Stream
from agents.weights import resolve
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


class TwoEngines:
    """Two engines that serve nano as `p` from two ranks, and the notes about them."""

    def __init__(self, ranks: Ranks) -> None:
        self.notes, self.ranks = list[str](), ranks
        self.module: Any = load_model(resolve("nano"))
        self.trainer = self.make_trainer("p")

    def make_trainer(self, name: str, adapter: NewAdapter | None = None, stage: Any = 0) -> ScaledTrainer:
        """Return a trainer on the ranks for a policy that starts as nano."""
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

    async def wait_until_ready(self) -> None:
        """Wait until both engines are ready."""
        while not all(place.is_ready for place in self.engine._slots):
            await asyncio.sleep(0.05)

    async def send_signal(self, index: int, number: int) -> None:
        """Send a signal to an engine's process."""
        worker = self.engine._slots[index].worker
        assert worker is not None and worker._handle is not None
        signal.pidfd_send_signal(worker._handle, number)


@pytest.fixture(scope="module")
def two_engines(ranks: Ranks) -> Iterator[TwoEngines]:
    engines = TwoEngines(ranks)
    wait(engines.open())
    yield engines
    wait(engines.close())


def make_requests(policy: str = "p") -> list[Request]:
    """Return twelve requests of six matches, at temperature 1."""
    return [
        make_request(ids, seed, f"m{seed // 2}/seat{seed % 2}/0", policy=policy, max_tokens=12)
        for seed, ids in enumerate(make_contexts(400, 12))
    ]


def assert_equal_completions(actual: list[Completion], expected: list[Completion]) -> None:
    assert [
        (actual_completion.ids, actual_completion.finish, actual_completion.version) for actual_completion in actual
    ] == [(o.ids, o.finish, o.version) for o in expected]
    for actual_completion, expected_completion in zip(actual, expected, strict=True):
        np.testing.assert_allclose(actual_completion.logprobs, expected_completion.logprobs, atol=1e-4)


async def generate_locally(weights: Any, requests: list[Request], version: int = 3) -> list[Completion]:
    """Return the replies of an engine in this process."""
    engine = InProcessEngine()
    await engine.publish(requests[0].policy, version, weights)
    return await engine.generate(requests)


def test_two_engines_sample_and_score_like_one(two_engines: TwoEngines) -> None:
    """With full weights, a trained adapter and a folder; a match stays with its engine."""
    new = NewAdapter(AdapterSpec(rank=4), 5, "nano")
    own = Policy.load("q", resolve("nano"), resolve("nano"), True, new, Bases())
    adapter = two_engines.make_trainer("q", new)

    async def compare() -> None:
        engine = two_engines.engine
        assert_equal_completions(
            await engine.generate(make_requests()),
            await generate_locally(ModuleWeights(two_engines.module), make_requests()),
        )
        assert [place.matches for place in engine._slots] == [3, 3]
        assert all(place.figures()["seconds"] > 0 for place in engine._slots)
        for one in make_requests():
            engine.forget(one.key)
        assert [place.matches for place in engine._slots] == [0, 0]

        streams = [Stream([1, *ids], [False] + [True] * len(ids), [0.0] * (len(ids) + 1), [0] * (len(ids) + 1))
                   for ids in make_contexts(400, 7)]  # fmt: skip
        local = InProcessEngine()
        await local.publish("p", 3, ModuleWeights(two_engines.module))
        temperatures = [0.5 + 0.2 * i for i in range(7)]
        for scored, expected in zip(
            await engine.score("p", streams, temperatures), await local.score("p", streams, temperatures), strict=True
        ):
            np.testing.assert_allclose(scored, expected, atol=1e-4)

        folder = FolderWeights(resolve("nano-3"))
        for published_weights, local_weights in (
            (await adapter.weights(), ModuleWeights(own.model, own.base)),
            (folder, folder),
        ):
            await engine.publish("q", 7, published_weights)
            assert_equal_completions(
                await engine.generate(make_requests("q")), await generate_locally(local_weights, make_requests("q"), 7)
            )
        await engine.retire("q")
        with pytest.raises(KeyError, match="'q'"):
            await engine.generate(make_requests("q"))

    wait(compare())


def test_match_ends_when_the_context_is_full(two_engines: TwoEngines, tmp_path: Path) -> None:
    """The model's positions limit the context, whether the player or only the engine knows them."""

    async def play() -> None:
        for known in (None, NO_LIMIT):
            record = await play_talk(two_engines.engine, save_short_nano(tmp_path / f"{known}"), known)
            assert_context_full(record) if known is None else None
            assert (record.status, record.report["ended"]) == ("finished", "context"), record.reason
        await two_engines.engine.retire("short")

    wait(play())


def test_dead_engine_loses_its_replies_and_restarts_with_current_weights(two_engines: TwoEngines) -> None:
    """The other continues meanwhile; weights published while one is down reach it later."""

    async def die() -> None:
        engine, expected = (
            two_engines.engine,
            await generate_locally(ModuleWeights(two_engines.module), make_requests(), 4),
        )
        await two_engines.wait_until_ready()
        two_engines.notes.clear()
        waiting = [asyncio.ensure_future(engine.generate([one])) for one in make_requests()]
        while not any(place.busy for place in engine._slots):
            await asyncio.sleep(0)
        await two_engines.send_signal(0, signal.SIGKILL)
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        died = [answer for answer in answers if isinstance(answer, BaseException)]
        assert len(died) == 6 and all(type(answer) is EngineDied for answer in died), answers
        assert (
            "engine 0 died in 6 replies" in two_engines.notes[0]
            and "restarting it (1 of 5 restarts)" in two_engines.notes[0]
        )
        await engine.publish("p", 4, await two_engines.trainer.weights())
        assert_equal_completions(await engine.generate(make_requests()), expected)
        await two_engines.wait_until_ready()
        assert {place.served["p"].version for place in engine._slots} == {4}
        for one in make_requests():
            engine.forget(one.key)
        assert_equal_completions(await engine.generate(make_requests()), expected)
        assert [place.matches for place in engine._slots] == [3, 3]

    wait(die())


def test_engine_restarted_during_learning_waits_for_the_next_version(two_engines: TwoEngines) -> None:
    """Meanwhile it serves what is available, and the other serves the version that the ranks no longer hold."""
    trainer = two_engines.make_trainer("s")

    async def die() -> None:
        engine, folder = two_engines.engine, FolderWeights(resolve("nano-3"))
        await two_engines.wait_until_ready()
        await engine.publish("s", 1, await trainer.weights())
        await engine.publish("f", 0, folder)
        await trainer.update(trainer.plan(make_ragged_samples(1), np.random.default_rng(0)))
        await two_engines.send_signal(0, signal.SIGKILL)
        while all(place.is_ready for place in engine._slots):
            await asyncio.sleep(0.01)
        await two_engines.wait_until_ready()
        restarted, running = engine._slots
        assert not restarted.serves("s") and running.serves("s") and restarted.serves("f") and restarted.serves("p")
        assert {one.version for one in await engine.generate(make_requests("s"))} == {1}
        await engine.release("s")
        for one in make_requests():
            engine.forget(one.key)

        await two_engines.send_signal(1, signal.SIGKILL)
        while all(place.is_ready for place in engine._slots):
            await asyncio.sleep(0.01)
        waiting = asyncio.ensure_future(engine.generate(make_requests("s")))
        assert_equal_completions(
            await engine.generate(make_requests("f")), await generate_locally(folder, make_requests("f"), 0)
        )
        await two_engines.wait_until_ready()
        assert not waiting.done()
        await engine.publish("s", 2, await trainer.weights())
        assert {one.version for one in await waiting} == {2}
        for one in make_requests():
            engine.forget(one.key)
        for policy in ("s", "f"):
            await engine.retire(policy)

    wait(die())


def test_stopped_engine_is_reported_and_replaced(two_engines: TwoEngines) -> None:
    async def stop() -> None:
        await two_engines.wait_until_ready()
        two_engines.notes.clear()
        two_engines.watchdog.patience = 3.0
        await asyncio.sleep(6)  # the ping that waits just now has the longer patience
        await two_engines.send_signal(1, signal.SIGSTOP)
        answers = await asyncio.gather(
            *(two_engines.engine.generate([r]) for r in make_requests()), return_exceptions=True
        )
        assert 0 < sum(isinstance(answer, EngineDied) for answer in answers) <= 6
        assert (
            "engine 1 did not answer a ping for 3 s, in" in two_engines.notes[0] and "replies" in two_engines.notes[0]
        )
        two_engines.watchdog.patience = 20.0
        await two_engines.wait_until_ready()
        assert len(await two_engines.engine.generate(make_requests())) == 12

    wait(stop())


def test_other_engine_scores_when_one_dies(two_engines: TwoEngines) -> None:
    async def die() -> None:
        await two_engines.wait_until_ready()
        streams = [Stream([1, 2, 3], [False, True, True], [0.0] * 3, [0] * 3) for _ in range(8)]
        await two_engines.send_signal(0, signal.SIGKILL)
        assert len(await two_engines.engine.score("p", streams, [1.0] * 8)) == 8
        await two_engines.wait_until_ready()

    wait(die())


def test_losing_all_engines_is_reported(two_engines: TwoEngines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting and later requests fail at once. Must be the last test here: no engine is left afterwards."""

    async def lose() -> None:
        await two_engines.wait_until_ready()
        monkeypatch.setattr(rooms, "RESTARTS", 0)
        for index in range(2):
            await two_engines.send_signal(index, signal.SIGKILL)
        answers = await asyncio.gather(
            *(two_engines.engine.generate([r]) for r in make_requests()), return_exceptions=True
        )
        assert all(isinstance(answer, EngineError) for answer in answers)
        with pytest.raises(EnginesLost, match="none of 2 engines is left"):
            await two_engines.engine.generate(make_requests())
        with pytest.raises(EnginesLost):
            await two_engines.engine.score("p", [Stream([1, 2], [False, True], [0.0] * 2, [0] * 2)], [1.0])

    wait(lose())
