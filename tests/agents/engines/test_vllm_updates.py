"""New weights of a vLLM server in place, and its sleep, against a stand-in for vLLM: see tests/factories/fake_vllm.py.

The real one sleeps on GPUs alone; test_vllm.py runs its CPU build where that is installed.
"""

import asyncio
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from agents.engines.base import Completion
from agents.engines.in_process import InProcessEngine
from agents.engines.spec import EngineSpec
from agents.engines.vllm import VLLMEngine
from agents.errors import EngineError
from agents.policy import load_module, trainable_parameters
from agents.published import ModuleWeights
from agents.stream import Stream
from agents.weights import resolve
from arena.cli.loop import wait
from tests.factories.fake_vllm import AsyncLLM, install
from tests.factories.requests import make_contexts, make_request

NANO = resolve("nano")
REQUESTS = [make_request(ids, i, f"k{i}", temperature=0.0, max_tokens=4) for i, ids in enumerate(make_contexts(200, 3))]
HERE = f"{__name__}:iterate_tensors"


def make_changed_model(seed: int) -> Any:
    """Return nano with other weights."""
    torch.manual_seed(seed)
    module = load_module(NANO)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return module


def iterate_tensors(number: int, seed: int, stop: int = 10**9) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield nano's changed tensors as a worker receives them; the sender fails after `stop` of them."""
    for at, named in enumerate(trainable_parameters(make_changed_model(seed)).items()):
        if at == stop:
            raise ConnectionError("the ranks are gone")
        yield named[0], named[1].detach().clone()


def generate_greedily(module: Any) -> list[tuple[int, ...]]:
    """Return greedy replies by a module's weights."""

    async def through() -> list[Completion]:
        engine = InProcessEngine()
        await engine.publish("p", 0, ModuleWeights(module))
        return await engine.generate(REQUESTS)

    return [one.ids for one in wait(through())]


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> type[AsyncLLM]:
    return install(monkeypatch)


@pytest.fixture
def engine(llm: type[AsyncLLM]) -> Iterator[VLLMEngine]:
    engine = VLLMEngine(EngineSpec(kind="vllm", cache_mb=16))
    wait(engine.open())
    yield engine
    wait(engine.close())


def get_server(engine: VLLMEngine) -> Any:
    (server,) = engine._servers.values()
    return server.llm


def generate_replies(engine: VLLMEngine) -> tuple[list[tuple[int, ...]], set[int]]:
    """Return greedy replies and their versions."""
    completions: Sequence[Completion] = wait(engine.generate(REQUESTS))
    return [one.ids for one in completions], {one.version for one in completions}


async def publish_received(engine: VLLMEngine, version: int, seed: int, **more: int) -> int:
    members = await engine.expect("p", NANO, trainable_parameters(load_module(NANO)).keys())
    await engine.receive("p", version, HERE, {"seed": seed, **more})
    return members


def test_received_weights_replace_the_older_ones_without_a_folder(engine: VLLMEngine) -> None:
    assert engine._scratch
    for version in (1, 2):
        assert wait(publish_received(engine, version, version)) == 1
        assert generate_replies(engine) == (generate_greedily(make_changed_model(version)), {version})
        assert not [path for path in engine._scratch.iterdir() if path.is_dir()]
    assert len(engine._servers) == 1
    assert generate_greedily(make_changed_model(1)) != generate_greedily(make_changed_model(2))


def test_only_a_starting_server_has_a_safe_path(llm: type[AsyncLLM], monkeypatch: pytest.MonkeyPatch) -> None:
    """Later child processes, such as an agent's program, must be able to import modules from their folder."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    start, values = llm.from_engine_args, list[str | None]()

    def start_and_record(arguments: Any) -> AsyncLLM:
        values.append(os.environ.get("PYTHONSAFEPATH"))
        return start(arguments)

    monkeypatch.setattr(llm, "from_engine_args", start_and_record)
    engine = VLLMEngine(EngineSpec(kind="vllm", cache_mb=16))
    wait(engine.open())
    wait(publish_received(engine, 1, 1))
    assert values == ["1"] and "PYTHONSAFEPATH" not in os.environ
    wait(engine.close())


def test_interrupted_transfer_is_repeated_with_full_layers(engine: VLLMEngine) -> None:
    """vLLM counts what a layer has got: without a clean end, a second try would fill layers from two versions."""
    wait(publish_received(engine, 1, 1))
    with pytest.raises(EngineError, match="the ranks are gone"):
        wait(publish_received(engine, 2, 2, stop=3))
    wait(publish_received(engine, 3, 3))
    assert generate_replies(engine) == (generate_greedily(make_changed_model(3)), {3})


@pytest.mark.parametrize("slow", ["way", "speed"])
def test_running_replies_finish_with_their_initial_weights(
    engine: VLLMEngine, llm: type[AsyncLLM], monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    """Also those that vLLM's scheduler has not seen when the update begins."""
    wait(publish_received(engine, 1, 1))
    monkeypatch.setattr(llm, slow, 0.2)

    async def through() -> list[Completion]:
        generation = asyncio.ensure_future(engine.generate(REQUESTS))
        await asyncio.sleep(0.05)
        await publish_received(engine, 2, 2)
        assert generation.done()
        return await generation

    completions = wait(through())
    assert ([one.ids for one in completions], {one.version for one in completions}) == (
        generate_greedily(make_changed_model(1)),
        {1},
    )
    assert generate_replies(engine) == (generate_greedily(make_changed_model(2)), {2})


def test_a_server_sleeps_while_its_policy_learns_and_has_no_cache_when_its_weights_come(engine: VLLMEngine) -> None:
    """Its cache comes back after the weights, when the trainer has freed what it needed."""
    wait(engine.publish("p", 1, ModuleWeights(make_changed_model(1))))
    wait(engine.release("p"))
    assert get_server(engine).asleep == {"weights", "kv_cache"}
    wait(engine.publish("p", 2, ModuleWeights(make_changed_model(2))))
    assert ("arena_reload", {"kv_cache"}) in get_server(engine).asleep_during
    assert generate_replies(engine) == (generate_greedily(make_changed_model(2)), {2})


def test_received_weights_wake_a_server_too(engine: VLLMEngine) -> None:
    wait(publish_received(engine, 1, 1))
    wait(engine.release("p"))
    assert get_server(engine).asleep
    wait(publish_received(engine, 2, 2))
    assert ("update_weights", {"kv_cache"}) in get_server(engine).asleep_during
    assert not get_server(engine).asleep and generate_replies(engine) == (generate_greedily(make_changed_model(2)), {2})


def test_sleeping_server_serves_its_old_weights_on_request(engine: VLLMEngine) -> None:
    """An update may fail and its policy go on playing."""
    wait(engine.publish("p", 1, ModuleWeights(make_changed_model(1))))
    wait(engine.release("p"))
    assert generate_replies(engine) == (generate_greedily(make_changed_model(1)), {1})
    wait(engine.release("p"))
    assert get_server(engine).asleep, "and sleeps again"


def test_without_a_gpu_no_server_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, gpu=False)
    engine = VLLMEngine(EngineSpec(kind="vllm"))

    async def through() -> None:
        await engine.open()
        await engine.publish("p", 1, ModuleWeights(make_changed_model(1)))
        await engine.release("p")
        assert not get_server(engine).asleep and not get_server(engine).arguments.enable_sleep_mode

    wait(through())
    assert generate_replies(engine) == (generate_greedily(make_changed_model(1)), {1})
    wait(engine.close())


def test_a_model_of_other_names_needs_folders(engine: VLLMEngine) -> None:
    assert wait(engine.expect("p", NANO, {"model.some.other.name"})) == 0 and not engine._servers
    wait(engine.publish("p", 1, ModuleWeights(make_changed_model(1))))
    assert generate_replies(engine) == (generate_greedily(make_changed_model(1)), {1})
    wait(engine.publish("p", 2, ModuleWeights(make_changed_model(2))))
    assert generate_replies(engine) == (generate_greedily(make_changed_model(2)), {2})


def test_refuses_to_score_with_transferred_weights(engine: VLLMEngine) -> None:
    wait(publish_received(engine, 1, 1))
    stream = Stream()
    stream.observe([1, 2, 3])
    with pytest.raises(EngineError, match="only vLLM has the weights of policy 'p'"):
        wait(engine.score("p", [stream], [1.0]))
