"""The vLLM engine, where vLLM is installed (`make test-vllm`): reported log-probabilities match the model.

Servers take a quarter of a minute to start, so the tests share them, in the order in which they stand.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

pytest.importorskip("vllm")

from agents.adapter import create_adapter, save_adapter
from agents.adapter_config import AdapterSpec
from agents.engines.base import Completion, Request
from agents.engines.in_process import InProcessEngine
from agents.engines.spec import EngineSpec
from agents.engines.vllm import VLLMEngine
from agents.errors import ContextFull, EngineError
from agents.model_config import NO_LIMIT
from agents.model_folder import load_model
from agents.policy import load_module
from agents.published import FolderWeights, ModuleWeights
from agents.stream import Stream
from agents.vision import get_vision
from agents.weights import resolve
from arena.cli.loop import wait
from tests.factories.eyes import IMAGE, compute_reference_scores, make_picture, make_stream, save_vision_model
from tests.factories.models import randomise_adapter, wrap_adapter
from tests.factories.requests import assert_agrees, make_contexts, make_request
from tests.factories.short_contexts import POSITIONS, assert_context_full, play_talk, save_short_nano

SPEC = EngineSpec(kind="vllm", cache_mb=256, max_batch=64)
SAMPLING: list[dict[str, Any]] = [{}, {"temperature": 0.6}, {"top_k": 5}, {"top_p": 0.7}, {"temperature": 0.0}]


@pytest.fixture(scope="module")
def engine() -> Iterator[VLLMEngine]:
    engine = VLLMEngine(SPEC)
    wait(engine.open())
    yield engine
    scratch = engine._scratch
    wait(engine.close())
    assert scratch and not scratch.exists()
    assert wait_until_ended(list_children(os.getpid()))


@pytest.fixture(scope="module")
def model() -> Any:
    """Load nano, whose head is tied to its embedding."""
    return load_model(resolve("nano"))


@pytest.fixture(scope="module")
def base() -> Any:
    return load_model(resolve("nano-1")).requires_grad_(False)


def make_requests(count: int, **changes: Any) -> list[Request]:
    contexts = make_contexts(200, count)
    return [make_request(ids, i, f"k{i}", **SAMPLING[i % 5] | changes) for i, ids in enumerate(contexts)]


def generate(engine: Any, requests: Sequence[Request]) -> list[Completion]:
    return list(wait(engine.generate(requests)))


def list_children(pid: int) -> set[psutil.Process]:
    """List the running children of a process, without Python's shared-memory tracker."""
    children = set()
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a zombie is one, too
            if "resource_tracker" not in " ".join(child.cmdline()):
                children.add(child)
    return children


def wait_until_ended(processes: Iterable[psutil.Process]) -> bool:
    """Whether all processes end within a minute."""
    deadline = time.monotonic() + 60
    while any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_event_loop_stays_responsive_while_a_server_starts(engine: VLLMEngine, model: Any) -> None:
    async def beats() -> int:
        starting, count = asyncio.ensure_future(engine.publish("p", 3, ModuleWeights(model))), 0
        while not starting.done():
            await asyncio.sleep(0.05)
            count += 1
        await starting
        return count

    assert wait(beats()) > 20, "a start takes a quarter of a minute"


def test_its_log_probabilities_are_those_of_the_trained_weights(engine: VLLMEngine, model: Any) -> None:
    wait(engine.publish("p", 3, ModuleWeights(model)))
    requests = make_requests(40)
    for request, got in zip(requests, generate(engine, requests), strict=True):
        assert got.version == 3 and len(got.ids) == 6
        if request.temperature:
            assert_agrees(model, request, got)
        else:
            assert got.logprobs == (0.0,) * 6


def test_greedy_replies_are_those_of_the_in_process_engine(engine: VLLMEngine, model: Any) -> None:
    here = InProcessEngine()
    wait(here.publish("p", 3, ModuleWeights(model)))
    requests = make_requests(40, temperature=0.0, max_tokens=16)
    assert [c.ids for c in generate(engine, requests)] == [c.ids for c in generate(here, requests)]


def test_same_seed_gives_same_reply_in_any_batch(engine: VLLMEngine) -> None:
    requests = make_requests(20, temperature=1.0)
    together = generate(engine, requests)
    assert [c.ids for c in together] == [generate(engine, [request])[0].ids for request in requests]
    assert len({c.ids for c in generate(engine, [make_request([1, 2, 3], seed, f"{seed}") for seed in range(20)])}) > 10


def test_a_stop_id_ends_the_reply_and_belongs_to_it(engine: VLLMEngine) -> None:
    (full,) = generate(engine, [make_request([1, 2, 3], max_tokens=8)])
    (short,) = generate(engine, [make_request([1, 2, 3], max_tokens=8, stop_ids=frozenset({full.ids[3]}))])
    cut = full.ids.index(full.ids[3]) + 1
    assert (full.finish, short.finish, short.ids) == ("length", "stop", full.ids[:cut])


def test_next_turn_hits_the_cache(engine: VLLMEngine) -> None:
    ids = [int(i) for i in np.random.default_rng(0).integers(0, 200, 300)]
    (reply,) = generate(engine, [make_request(ids, key="long")])
    before = engine.figures()["cached_tokens"]
    generate(engine, [make_request([*ids, *reply.ids, 5], key="long")])
    assert engine.figures()["cached_tokens"] - before >= 256, "two blocks of 128"


def test_updated_weights_are_served_after_publishing(engine: VLLMEngine, model: Any) -> None:
    """The tied head too, and nothing cached from older weights."""
    requests = make_requests(20, temperature=1.0)
    before = generate(engine, requests)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.05).add_(0.002)
    wait(engine.publish("p", 4, ModuleWeights(model)))
    for request, old, got in zip(requests, before, generate(engine, requests), strict=True):
        assert got.version == 4
        assert_agrees(model, request, got)
        assert got.logprobs != old.logprobs


def change_tensors(number: int, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Return changed tensors of nano, as vLLM's process receives them."""
    torch.manual_seed(seed)
    for name, parameter in load_model(resolve("nano")).named_parameters():
        yield name, (parameter + 0.05 * torch.randn_like(parameter)).detach()


def test_transferred_weights_are_served(engine: VLLMEngine) -> None:
    """In place, without a folder, the tied head too."""
    model = load_model(resolve("nano"))
    for version, seed in ((1, 11), (2, 12)):
        assert wait(engine.expect("received", resolve("nano"), {*dict(model.named_parameters())})) == 1
        wait(engine.receive("received", version, f"{__name__}:{change_tensors.__name__}", {"seed": seed}))
        with torch.no_grad():
            for (_, changed), parameter in zip(change_tensors(0, seed), model.parameters(), strict=True):
                parameter.copy_(changed)
        requests = [replace(request, policy="received") for request in make_requests(20, temperature=1.0)]
        for request, got in zip(requests, generate(engine, requests), strict=True):
            assert got.version == version
            assert_agrees(model, request, got)
    wait(engine.retire("received"))


def test_streams_are_scored_with_the_published_weights(engine: VLLMEngine, model: Any) -> None:
    stream = Stream()
    stream.observe([1, 2, 3])
    (got,) = generate(engine, [make_request([1, 2, 3])])
    stream.append_sampled(list(got.ids), list(got.logprobs), 0)
    np.testing.assert_allclose(wait(engine.score("p", [stream], [1.0]))[0], got.logprobs, atol=1e-4)


def test_adapters_and_their_base_share_a_batch(engine: VLLMEngine, base: Any, tmp_path: Path) -> None:
    folder = resolve("nano-1")
    models = {
        n: randomise_adapter(create_adapter(base, AdapterSpec(rank=r), r), r) for n, r in (("a", 4), ("b", 8), ("c", 2))
    }
    for version, (name, model) in enumerate(models.items()):
        wait(engine.publish(name, version, wrap_adapter(model, base, folder, "nano-1")))
    save_adapter(models["c"], tmp_path / "past", "nano-1")
    wait(engine.publish("c@2", 2, FolderWeights(tmp_path / "past")))
    wait(engine.publish("bare", 0, FolderWeights(folder)))
    models |= {"c@2": models["c"], "bare": base}
    for _ in range(2):
        names = list(models)
        requests = [
            make_request(request.ids, i, request.key, policy=names[i % 5])
            for i, request in enumerate(make_requests(30, temperature=1.0))
        ]
        for request, got in zip(requests, generate(engine, requests), strict=True):
            assert_agrees(models[request.policy], request, got)
        randomise_adapter(models["b"], 77)
        wait(engine.publish("b", 9, wrap_adapter(models["b"], base, folder, "nano-1")))
    assert len(engine._servers) == 3, "one for `p`, one for `received`, one for nano-1 and all on it"
    for name in models:
        wait(engine.retire(name))


def test_failed_start_is_reported_in_one_line() -> None:
    others = list_children(os.getpid())
    engine = VLLMEngine(SPEC.model_copy(update={"cache_mb": 1}))
    wait(engine.open())
    wait(engine.publish("p", 0, FolderWeights(resolve("nano"))))
    with pytest.raises(EngineError, match="did not start") as error:
        generate(engine, [make_request([1, 2, 3])])
    wait(engine.close())
    assert "\n" not in str(error.value) and "cache" in str(error.value).lower()
    assert wait_until_ended(list_children(os.getpid()) - others)


@pytest.mark.parametrize("max_model_len", [256, 4096])
def test_a_match_ends_where_the_context_is_full(max_model_len: int, tmp_path: Path) -> None:
    """By the setting or by the model's positions, which may be known to vLLM only; no reply is truncated."""
    engine, positions = (
        VLLMEngine(SPEC.model_copy(update={"max_model_len": max_model_len})),
        min(max_model_len, POSITIONS),
    )
    folder = save_short_nano(tmp_path / "short")

    async def play() -> None:
        await engine.open()
        assert_context_full(await play_talk(engine, folder), positions)
        (full,) = await engine.generate([make_request([5] * (positions - 6), policy="short", max_tokens=6)])
        assert len(full.ids) == 6, "the last position is used"
        with pytest.raises(ContextFull, match=f"of {positions}"):
            await engine.generate([make_request([5] * (positions - 5), policy="short", max_tokens=6)])
        engine.max_context = NO_LIMIT
        record = await play_talk(engine, folder, NO_LIMIT)
        assert (record.status, record.report["ended"]) == ("finished", "context"), record.reason
        await engine.close()

    wait(play())


def test_a_failure_of_vllm_is_an_engine_error() -> None:
    """After the server has ended; the match is played again, as after any engine failure."""
    engine = VLLMEngine(SPEC)

    async def play() -> None:
        await engine.open()
        await engine.publish("p", 0, FolderWeights(resolve("nano")))
        await engine.generate([make_request([1, 2, 3])])
        (server,) = engine._servers.values()
        server.llm.engine_core.shutdown()
        with pytest.raises(EngineError, match="vLLM failed: "):
            await engine.generate([make_request([1, 2, 3])])
        await engine.close()

    wait(play())


RUN = """
name: small
iterations: 3
precision: fp32
threads: 1
engine: {kind: vllm, cache_mb: 256}
game: {name: negotiation, options: {illegal: end, max_turns: 4, talk: false}}
policies:
  opener: {model: nano, adapter: {rank: 4}}
  responder: {model: nano, adapter: {rank: 4}}
seats:
  opener: {role: nano_opener, policy: opener}
  responder: {role: nano_responder, policy: responder}
league: {opponents: [{play: self}, {play: past, lag: 1}], pool: {every: 1}}
play: {matches: 8}
learn: {lr: 1e-3}
"""


@pytest.mark.parametrize("moment", [0.1, 0.4, 0.7])
def test_killed_run_leaves_no_process_and_resumes(moment: float, tmp_path: Path) -> None:
    """A run takes about half a minute; SIGKILL comes after the share `moment` of it."""
    config = tmp_path / "small.yaml"
    config.write_text(RUN)
    arena, started_at = [sys.executable, "-m", "arena"], time.time()
    command = [*arena, "run", "selfplay", "--config", str(config), "--out", str(tmp_path / "run")]
    family = set[psutil.Process]()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        while time.time() - started_at < moment * 40 and run.poll() is None:
            family |= set(psutil.Process(run.pid).children(recursive=True))
            time.sleep(0.05)
        assert run.poll() is None, "it was to be killed"
        run.send_signal(signal.SIGKILL)
    assert wait_until_ended(family)
    assert not [folder for folder in Path("/dev/shm").glob("arena-vllm-*") if folder.stat().st_ctime > started_at]
    if (tmp_path / "run" / "config.yaml").exists():
        process = subprocess.run([*arena, "resume", str(tmp_path / "run")], capture_output=True, text=True)
        assert process.returncode == 0, process.stderr
        assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl"])
def test_replies_to_images_have_the_log_probabilities_of_the_weights(family: str, tmp_path: Path) -> None:
    pytest.importorskip("torchvision", reason="vLLM reads Qwen's images through it")
    tokens = ["<|image_pad|>", "<|video_pad|>"]  # vLLM knows them by these names, and on the CPU heads of 32
    folder = save_vision_model(tmp_path / "eyes", family, tokens=tokens, head=32)
    model = load_module(folder, frozen=True)
    vision: Any = get_vision(model)
    streams = [make_stream(vision, [[make_picture(n), make_picture(n + 50, 32, 40)]], n) for n in range(6)]
    requests = []
    for n, stream in enumerate(streams):
        ids, media = stream.before(stream.mask.index(True))
        ids = [vision.image_token if id == IMAGE else id for id in ids]
        requests.append(make_request(ids, n, f"k{n}", media=tuple(media)))
    engine = VLLMEngine(SPEC)
    wait(engine.open())
    try:
        wait(engine.publish("p", 1, ModuleWeights(model)))
        for context, got in zip(requests, generate(engine, requests), strict=True):
            played = Stream()
            played.observe(context.ids, context.media)
            played.append_sampled(got.ids, got.logprobs, 0)
            reference = compute_reference_scores(model, vision, played, vision.image_token)
            assert got.logprobs == pytest.approx(reference.tolist(), abs=1e-4)
    finally:
        wait(engine.close())
