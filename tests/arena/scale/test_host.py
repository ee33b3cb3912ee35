"""An engine process serves exactly the weights that it received, and never a partial version."""

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


def make_changed_model(seed: int, bf16_weights: bool = False) -> Any:
    """Return nano with other weights."""
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
        """Send these tensors to the host; the sender dies after `stop` of them."""
        layout, members = await self.host.prepare("p", incoming)
        self.count, size = self.count + 1, 1 + members
        link = Link(f"b{self.count}", LOOPBACK, self.meeting.port, size, 20.0, 20.0, 4096, shared=version % 2 == 0)
        remaining = [stop]

        def get_tensor(name: str) -> Any:
            if remaining[0] is not None:
                remaining[0] -= 1
                if remaining[0] < 0:
                    raise KeyboardInterrupt
            return nullcontext(held[name])

        def send_tensors() -> None:
            with suppress(KeyboardInterrupt):
                send(link, self.meeting, layout, get_tensor)

        thread = threading.Thread(target=send_tensors)
        thread.start()
        try:
            await self.host.receive("p", version, link.for_member(1, LOOPBACK))
        finally:
            await asyncio.to_thread(thread.join)
        return layout


async def generate_replies(host: EngineHost) -> list[Any]:
    return (await host.generate(REQUESTS, []))[0]


async def generate_locally(weights: ModuleWeights, precision: Precision, version: int) -> list[Completion]:
    engine = InProcessEngine(precision)
    await engine.publish("p", version, weights)
    return await engine.generate(REQUESTS)


def run_with_host(
    work: Callable[[EngineHost, Sender], Any],
    precision: Precision = Precision.FP32,
    kind: str = "in_process",
    gpus: int = 1,
) -> Any:
    """Run work with an open host in one loop."""

    async def run() -> Any:
        host = EngineHost(EngineSpec(kind=kind), precision, 1, gpus)
        await host.open()
        try:
            return await work(host, Sender(host))
        finally:
            await host.close()

    return wait(run())


def describe_weights(module: Any) -> tuple[IncomingWeights, dict[str, Any]]:
    return IncomingWeights(resolve("nano"), Layout.of(trainable_parameters(module))), trainable_parameters(module)


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16, Precision.BF16_TRUE])
def test_full_weights_are_served_bit_equal_for_each_version(precision: Precision) -> None:
    """In bfloat16 the matrices of products are sent rounded, and replies equal those of a locally rounded module."""

    async def work(host: EngineHost, sender: Sender) -> None:
        for version in (1, 2, 3):
            module = make_changed_model(version, precision.has_bf16_weights)
            layout = await sender.publish(version, *describe_weights(module))
            served = dict(host._modules["p"].named_parameters())
            for spec in layout.specs:
                assert torch.equal(served[spec.name], dict(module.named_parameters())[spec.name].to(spec.dtype)), (
                    spec.name
                )
            assert await generate_replies(host) == await generate_locally(ModuleWeights(module), precision, version)
            if version == 2:
                await host._engine.release("p")
        matrix_dtypes = {spec.dtype for spec in layout.specs if spec.name.endswith("proj.weight")}
        assert matrix_dtypes == {torch.float32 if precision is Precision.FP32 else torch.bfloat16}

    run_with_host(work, precision)


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16])
def test_adapter_is_sent_without_its_base(precision: Precision) -> None:
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
            expected = await generate_locally(ModuleWeights(policy.model, policy.base), precision, version)
            assert await generate_replies(host) == expected

    run_with_host(work, precision)


def test_mixed_versions_are_not_served_until_complete() -> None:
    async def work(host: EngineHost, sender: Sender) -> None:
        first, second = make_changed_model(1), make_changed_model(2)
        await sender.publish(1, *describe_weights(first))
        with pytest.raises(TransferFailed):
            await sender.publish(2, *describe_weights(second), stop=30)
        served, first_weights, second_weights = (
            dict(m.named_parameters()) for m in (host._modules["p"], first, second)
        )
        assert not all(torch.equal(served[n], first_weights[n]) for n in served), "no tensor had arrived"
        assert not all(torch.equal(served[n], second_weights[n]) for n in served)
        with pytest.raises(EngineError, match="two versions"):
            await generate_replies(host)
        with pytest.raises(EngineError, match="two versions"):
            await host.score("p", [], [], False)
        await sender.publish(2, *describe_weights(second))
        assert await generate_replies(host) == await generate_locally(ModuleWeights(second), Precision.FP32, 2)

    run_with_host(work)


def test_failed_adapter_transfer_keeps_the_old_one() -> None:
    async def work(host: EngineHost, sender: Sender) -> None:
        new = NewAdapter(AdapterSpec(rank=64), 5, "nano")
        policy = Policy.load("p", resolve("nano"), resolve("nano"), True, new)
        matrices = trainable_parameters(policy.model)
        incoming = IncomingWeights(resolve("nano"), Layout.of(matrices), new.spec.scale, "nano")
        await sender.publish(1, incoming, matrices)
        before = await generate_replies(host)
        with pytest.raises(TransferFailed):
            await sender.publish(2, incoming, matrices, stop=5)
        assert await generate_replies(host) == before

    run_with_host(work)


def test_shared_gpu_memory_is_released_before_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch also returns what the engine has freed: a rank on the same card is another process."""
    host, calls = EngineHost(EngineSpec(), Precision.FP32, 1, 0.5), list[str]()

    async def release(policy: str) -> None:
        calls.append(f"released {policy}")

    monkeypatch.setattr(host._engine, "release", release)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("returned"))
    wait(host.release("p"))
    assert calls == ["released p", "returned"]


@pytest.mark.parametrize("gpus", [1, 2])
def test_vllm_processes_join_the_broadcast(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fake vLLM: the host holds no copy of the weights, and an incomplete broadcast is not served."""
    install(monkeypatch)
    greedy = [replace(one, temperature=0.0, max_tokens=4) for one in REQUESTS]

    async def check(host: EngineHost, version: int, module: Any) -> None:
        engine = InProcessEngine()
        await engine.publish("p", version, ModuleWeights(module))
        replies = (await host.generate(greedy, []))[0]
        assert [(one.ids, one.version) for one in replies] == [(o.ids, version) for o in await engine.generate(greedy)]
        (server,) = cast(VLLMEngine, host._engine)._servers.values()
        for worker in server.llm.workers:
            served = dict(worker.model_runner.model.module.named_parameters())
            assert all(torch.equal(served[name], tensor) for name, tensor in trainable_parameters(module).items())
        assert len(server.llm.workers) == gpus and not host._modules

    async def work(host: EngineHost, sender: Sender) -> None:
        modules = {version: make_changed_model(version) for version in (1, 2, 3)}
        for version in (1, 2):
            await sender.publish(version, *describe_weights(modules[version]))
            await check(host, version, modules[version])
        with pytest.raises(TransferFailed):
            await sender.publish(3, *describe_weights(modules[3]), stop=20)
        with pytest.raises(EngineError, match="two versions"):
            await host.generate(greedy, [])
        await sender.publish(3, *describe_weights(modules[3]))
        await check(host, 3, modules[3])

    run_with_host(work, kind="vllm", gpus=gpus)


def test_unshared_gpu_memory_is_not_released(monkeypatch: pytest.MonkeyPatch) -> None:
    host, calls = EngineHost(EngineSpec(), Precision.FP32, 1, 1.0), list[str]()

    async def release(policy: str) -> None:
        calls.append(policy)

    monkeypatch.setattr(host._engine, "release", release)
    wait(host.release("p"))
    assert not calls
