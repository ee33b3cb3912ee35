"""Overhead of Arena's vLLM engine over raw vLLM, and both compared with the in-process engine.

    make engines                                          # in vLLM's own environment, ten minutes on two cores
    .venv-vllm/bin/python benchmarks/engines.py --quick   # nano, small: does it still work?

Measured are play, publishing and the prefix cache. A turn has 200 shared tokens, 60 of its own and 16 sampled tokens.
`raw vLLM` uses the same server directly, on the same kind of prompts, without seeds or log-probabilities. Arms
alternate. Writes results/engines.json.
"""

import argparse
import asyncio
import itertools
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from reporting import write_result

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from engine_requests import make_request  # noqa: E402
from timing import compute_ratios, time_call  # noqa: E402

from agents.adapter import create_adapter  # noqa: E402
from agents.adapter_config import AdapterSpec  # noqa: E402
from agents.engines.base import Request  # noqa: E402
from agents.engines.in_process import InProcessEngine  # noqa: E402
from agents.engines.spec import EngineSpec  # noqa: E402
from agents.engines.vllm import VLLMEngine  # noqa: E402
from agents.policy import AdapterOnBase, Bases, load_module  # noqa: E402
from agents.precision import Precision  # noqa: E402
from agents.published import ModuleWeights  # noqa: E402
from agents.weights import resolve  # noqa: E402
from arena.cli.loop import wait  # noqa: E402
from arena.doctor import describe_environment  # noqa: E402
from arena.learn.machine import find_fastest_precision  # noqa: E402

SHARED, OWN, REPLY = 200, 60, 16
"""Tokens of a turn: shared with all turns, its own, and sampled."""


def make_requests(count: int, round_: int) -> list[Request]:
    """Return requests for `count` new turns, which share only their opening."""
    rng = np.random.default_rng(round_)
    opening = np.random.default_rng(0).integers(10, 500, SHARED).tolist()
    return [
        make_request((*opening, *rng.integers(10, 500, OWN).tolist()), REPLY, f"{round_}/{i}", seed=(round_, i))
        for i in range(count)
    ]


async def sample_raw(llm: Any, requests: list[Request]) -> None:
    """Sample the replies with vLLM directly."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    sampling = SamplingParams(max_tokens=REPLY, temperature=1.0, ignore_eos=True, detokenize=False)

    async def sample_one(request: Request) -> None:
        prompt = TokensPrompt(prompt_token_ids=list(request.ids))
        async for _ in llm.generate(prompt, sampling, f"raw-{request.key}"):
            pass

    await asyncio.gather(*map(sample_one, requests))


def measure_play(vllm: VLLMEngine, in_process: InProcessEngine, widths: Sequence[int], rounds: int) -> dict[str, Any]:
    """Return the tokens per second of all arms and their ratios, by number of simultaneous turns (`widths`)."""
    llm = vllm._servers["trained p"].llm
    arms: dict[str, Callable[[list[Request]], Any]] = {
        "raw vLLM": lambda requests: wait(sample_raw(llm, requests)),
        "vllm": lambda requests: wait(vllm.generate(requests)),
        "in process": lambda requests: wait(in_process.generate(requests)),
    }
    numbers, play = itertools.count(1), dict[str, Any]()
    for width in widths:
        rates: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(1 if width > 100 else rounds + 1):  # the first of several is a warm-up
            for name, sample in arms.items():
                requests = make_requests(width, next(numbers))
                rates[name].append(width * REPLY / time_call(partial(sample, requests))[0])
        measured = {name: found[1:] or found for name, found in rates.items()}
        play[str(width)] = {
            "tokens per second": measured,
            "vllm ÷ raw vLLM": compute_ratios(measured["vllm"], measured["raw vLLM"])["median"],
            "in process ÷ vllm": compute_ratios(measured["in process"], measured["vllm"])["median"],
        }
        print(width, json.dumps(play[str(width)]), flush=True)
    return play


def measure_prefix_cache(vllm: VLLMEngine) -> dict[str, Any]:
    """Return the share of prompt tokens that vLLM takes from its prefix cache, over two turns of eight matches."""
    before = vllm.figures()
    first = make_requests(8, 10**6)
    replies = wait(vllm.generate(first))
    later = [
        make_request((*request.ids, *reply.ids, *request.ids[-OWN:]), REPLY, request.key, seed=request.seed)
        for request, reply in zip(first, replies, strict=True)
    ]
    wait(vllm.generate(later))
    after = vllm.figures()
    cached, prompts = (after[name] - before[name] for name in ("cached_tokens", "prompt_tokens"))
    return {"share of prompt tokens": cached / prompts, "what": "8 first and 8 second turns; blocks of 128 tokens"}


def measure_publishing(vllm: VLLMEngine, module: Any, model: str, precision: Precision, rounds: int) -> dict[str, Any]:
    """Return the seconds to publish all weights, to publish an adapter, and to copy the bytes of all weights once."""
    size = sum(p.numel() for p in module.parameters()) * (2 if precision is Precision.BF16 else 4)
    full, copies = [], []
    for version in range(1, rounds + 1):
        full.append(time_call(partial(_publish, vllm, "p", version, ModuleWeights(module)))[0])
        with tempfile.TemporaryDirectory(dir=vllm._scratch) as scratch:
            source = Path(scratch) / "bytes"
            source.write_bytes(b"\0" * size)
            copies.append(time_call(partial(shutil.copyfile, source, Path(scratch) / "copy"))[0])
    folder, adapters = resolve(model), []
    base = Bases(precision)(folder)
    adapter = create_adapter(base, AdapterSpec(), 0)
    for version in range(rounds + 1):
        weights = ModuleWeights(adapter, AdapterOnBase(adapter, base, folder, model))
        adapters.append(time_call(partial(_publish, vllm, "a", version, weights))[0])
    return {
        "bytes": size, "whole seconds": full, "copying the bytes once, seconds": copies,
        "adapter seconds": adapters[1:], "whole ÷ copy": compute_ratios(full, copies)["median"],
    }  # fmt: skip


def _publish(engine: VLLMEngine | InProcessEngine, name: str, version: int, weights: ModuleWeights) -> None:
    wait(engine.publish(name, version, weights))


def main() -> None:
    """Measure all parts and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    model, widths, rounds = ("nano", (8,), 1) if quick else ("smollm2-135m-instruct", (8, 64, 512), 3)
    precision = Precision.FP32 if quick else Precision(find_fastest_precision())
    module = load_module(resolve(model))
    spec = EngineSpec(kind="vllm", max_batch=256, cache_mb=2048, max_model_len=512)
    vllm, in_process = VLLMEngine(spec, precision), InProcessEngine(precision)
    wait(vllm.open())
    seconds, _ = time_call(partial(_publish, vllm, "p", 0, ModuleWeights(module)))
    result: dict[str, Any] = {"model": model, "bf16": precision is Precision.BF16, "start_seconds": seconds}
    _publish(in_process, "p", 0, ModuleWeights(module))
    result["play"] = measure_play(vllm, in_process, widths, rounds)
    result["prefix cache"] = measure_prefix_cache(vllm)
    result["publish"] = measure_publishing(vllm, module, model, precision, rounds)
    wait(vllm.close())
    result |= {"command": "make engines", "machine": describe_environment()}
    print(json.dumps({key: result[key] for key in ("start_seconds", "prefix cache", "publish")}, indent=1))
    if not quick:
        write_result("engines", result)


if __name__ == "__main__":
    main()
