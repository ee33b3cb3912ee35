"""An engine's process serves what it received, to the bit, and nothing of which it received a part."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, cast

import pytest
import torch

from agents.adapter_config import AdapterSpec
from agents.engines.base import Completion
from agents.engines.in_process import InProcessEngine
from agents.engines.spec import EngineSpec
from agents.engines.vllm import VLLMEngine
from agents.errors import EngineError
from agents.policy import Bases, NewAdapter, Policy, load_module, trainable_parameters
from agents.precision import Precision
from agents.published import ModuleWeights
from agents.weights import resolve
from arena.cli.loop import wait
from arena.scale.host import EngineHost, IncomingWeights
from arena.scale.layout import Layout
from arena.scale.transfer import Link, Rendezvous, TransferFailed, send
from tests.factories.fake_vllm import install
from tests.factories.requests import make_contexts, make_request

LOOPBACK = "127.0.0.1"
REQUESTS = [make_request(ids, n, f"m{n}/seat/0", max_tokens=8) for n, ids in enumerate(make_contexts(300, 4))]


def changed(seed: int, bf16_weights: bool = False) -> Any:
    """Nano with other weights."""
    torch.manual_seed(seed)
    module = load_module(resolve("nano"), bf16=bf16_weights)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    return module


class Sender:
    """Rank 0 of broadcasts to one host."""

    def __init__(self, host: EngineHost) -> None:
        self.host, self.meeting, self.count = host, Rendezvous(LOOPBACK), 0

    async def publish(
        self, version: int, incoming: IncomingWeights, held: dict[str, Any], stop: int | None = None
    ) -> Layout:
        """Send these tensors to the host; the sender dies after `stop` of them, if given."""
        layout, members = await self.host.prepare("p", incoming)
        self.count, size = self.count + 1, 1 + members
        link = Link(f"b{self.count}", LOOPBACK, self.meeting.port, size, 20.0, 20.0, 4096, shared=version % 2 == 0)
        left = [stop]

        def whole(name: str) -> Any:
            if left[0] is not None:
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt
            return nullcontext(held[name])

        def work() -> None:
            with suppress(KeyboardInterrupt):
                send(link, self.meeting, layout, whole)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            await self.host.receive("p", version, link.of(1, LOOPBACK))
        finally:
            await asyncio.to_thread(thread.join)
        return layout


async def replies(host: EngineHost) -> list[Any]:
    return (await host.generate(REQUESTS, []))[0]


async def alone(weights: ModuleWeights, precision: Precision, version: int) -> list[Completion]:
    engine = InProcessEngine(precision)
    await engine.publish("p", version, weights)
    return await engine.generate(REQUESTS)


def hosted(
    work: Callable[[EngineHost, Sender], Any],
    precision: Precision = Precision.FP32,
    kind: str = "in_process",
    gpus: int = 1,
) -> Any:
    """Run work with an open host in one loop."""

    async def through() -> Any:
        host = EngineHost(EngineSpec(kind=kind), precision, 1, gpus)
        await host.open()
        try:
            return await work(host, Sender(host))
        finally:
            await host.close()

    return wait(through())


def full(module: Any) -> tuple[IncomingWeights, dict[str, Any]]:
    return IncomingWeights(resolve("nano"), Layout.of(trainable_parameters(module))), trainable_parameters(module)


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16, Precision.BF16_TRUE])
def test_full_weights_are_served_to_the_bit_version_after_version(precision: Precision) -> None:
    """In bfloat16 the matrices of products travel in it, and replies are those of a module that one process rounds."""

    async def work(host: EngineHost, sender: Sender) -> None:
        for version in (1, 2, 3):
            module = changed(version, precision.has_bf16_weights)
            layout = await sender.publish(version, *full(module))
            own = dict(host._modules["p"].named_parameters())
            for spec in layout.specs:
                assert torch.equal(own[spec.name], dict(module.named_parameters())[spec.name].to(spec.dtype)), spec.name
            assert await replies(host) == await alone(ModuleWeights(module), precision, version)
            if version == 2:
                await host._engine.release("p")
        halved = {spec.dtype for spec in layout.specs if spec.name.endswith("proj.weight")}
        assert halved == {torch.float32 if precision is Precision.FP32 else torch.bfloat16}

    hosted(work, precision)


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16])
def test_an_adapter_travels_alone(precision: Precision) -> None:
    async def work(host: EngineHost, sender: Sender) -> None:
        new = NewAdapter(AdapterSpec(rank=4), 5, "nano")
        policy = Policy.load("p", resolve("nano"), resolve("nano"), True, new, Bases(precision))
        matrices, scale = trainable_parameters(policy.model), new.spec.scale
        for version in (1, 2):
            with torch.no_grad():
                for matrix in matrices.values():
                    matrix += 0.1 * torch.randn_like(matrix)
            incoming = IncomingWeights(resolve("nano"), Layout.of(matrices), scale, "nano")
            layout = await sender.publish(version, incoming, matrices)
            assert layout.total < 300_000 and not host._modules
            expected = await alone(ModuleWeights(policy.model, policy.base), precision, version)
            assert await replies(host) == expected

    hosted(work, precision)


def test_weights_of_two_versions_are_not_served_until_they_are_whole_again() -> None:
    async def work(host: EngineHost, sender: Sender) -> None:
        first, second = changed(1), changed(2)
        await sender.publish(1, *full(first))
        with pytest.raises(TransferFailed):
            await sender.publish(2, *full(second), stop=30)
        own, before, after = (dict(m.named_parameters()) for m in (host._modules["p"], first, second))
        assert not all(torch.equal(own[n], before[n]) for n in own), "nothing had arrived"
        assert not all(torch.equal(own[n], after[n]) for n in own)
        with pytest.raises(EngineError, match="two versions"):
            await replies(host)
        with pytest.raises(EngineError, match="two versions"):
            await host.score("p", [], [], False)
        await sender.publish(2, *full(second))
        assert await replies(host) == await alone(ModuleWeights(second), Precision.FP32, 2)

    hosted(work)


def test_an_adapter_that_does_not_arrive_leaves_the_old_one() -> None:
    async def work(host: EngineHost, sender: Sender) -> None:
        new = NewAdapter(AdapterSpec(rank=64), 5, "nano")
        policy = Policy.load("p", resolve("nano"), resolve("nano"), True, new)
        matrices = trainable_parameters(policy.model)
        incoming = IncomingWeights(resolve("nano"), Layout.of(matrices), new.spec.scale, "nano")
        await sender.publish(1, incoming, matrices)
        before = await replies(host)
        with pytest.raises(TransferFailed):
            await sender.publish(2, incoming, matrices, stop=5)
        assert await replies(host) == before

    hosted(work)


def test_an_engine_makes_room_on_its_card_before_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the engine has freed is returned by torch, too: a rank on the same card is another process."""
    host, done = EngineHost(EngineSpec(), Precision.FP32, 1, 0.5), list[str]()

    async def release(policy: str) -> None:
        done.append(f"released {policy}")

    monkeypatch.setattr(host._engine, "release", release)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("returned"))
    wait(host.release("p"))
    assert done == ["released p", "returned"]


@pytest.mark.parametrize("gpus", [1, 2])
def test_processes_of_vllm_are_members_of_a_broadcast(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a stand-in for vLLM. No copy of the weights is in the host, and a broken broadcast serves nothing."""
    install(monkeypatch)
    greedy = [replace(one, temperature=0.0, max_tokens=4) for one in REQUESTS]

    async def check(host: EngineHost, version: int, module: Any) -> None:
        engine = InProcessEngine()
        await engine.publish("p", version, ModuleWeights(module))
        found = (await host.generate(greedy, []))[0]
        assert [(one.ids, one.version) for one in found] == [(o.ids, version) for o in await engine.generate(greedy)]
        (server,) = cast(VLLMEngine, host._engine)._servers.values()
        for worker in server.llm.workers:
            own = dict(worker.model_runner.model.module.named_parameters())
            assert all(torch.equal(own[name], tensor) for name, tensor in trainable_parameters(module).items())
        assert len(server.llm.workers) == gpus and not host._modules

    async def work(host: EngineHost, sender: Sender) -> None:
        modules = {version: changed(version) for version in (1, 2, 3)}
        for version in (1, 2):
            await sender.publish(version, *full(modules[version]))
            await check(host, version, modules[version])
        with pytest.raises(TransferFailed):
            await sender.publish(3, *full(modules[3]), stop=20)
        with pytest.raises(EngineError, match="two versions"):
            await host.generate(greedy, [])
        await sender.publish(3, *full(modules[3]))
        await check(host, 3, modules[3])

    hosted(work, kind="vllm", gpus=gpus)


def test_only_an_engine_that_shares_its_card_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    host, done = EngineHost(EngineSpec(), Precision.FP32, 1, 1.0), list[str]()

    async def release(policy: str) -> None:
        done.append(policy)

    monkeypatch.setattr(host._engine, "release", release)
    wait(host.release("p"))
    assert not done
