"""Cost of Arena on top of vLLM, and vLLM beside the in-process engine: play, publishing, prefix cache.

    make engines                                              # in vLLM's own environment, ten minutes on two cores
    .venv-vllm/bin/python benchmarks/engines.py --quick # nano, small: does it still work?

A turn is 200 tokens that all share, 60 of its own, and 16 sampled. `raw vLLM` is the same server asked directly,
without seeds or log-probabilities, for the same prompts. Arms take turns. Writes results/engines.json.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from agents.adapter import adapted  # noqa: E402
from agents.adapter_config import AdapterSpec  # noqa: E402
from agents.engines.base import Request  # noqa: E402
from agents.engines.in_process import InProcessEngine  # noqa: E402
from agents.engines.spec import EngineSpec  # noqa: E402
from agents.engines.vllm import VLLMEngine  # noqa: E402
from agents.policy import Bases, load_module  # noqa: E402
from agents.precision import Precision  # noqa: E402
from agents.published import ModuleWeights, on_base  # noqa: E402
from agents.weights import resolve  # noqa: E402
from arena.cli.loop import wait  # noqa: E402
from arena.doctor import environment  # noqa: E402
from arena.learn.machine import find_fastest_precision  # noqa: E402

SHARED, OWN, REPLY = 200, 60, 16


def requests(count: int, policy: str, round_: int) -> list[Request]:
    """So many turns, none of them seen before but for what all share."""
    rng = np.random.default_rng(round_)
    opening = np.random.default_rng(0).integers(10, 500, SHARED).tolist()
    return [
        Request(
            policy=policy, ids=(*opening, *rng.integers(10, 500, OWN).tolist()), key=f"{round_}/{i}",
            max_tokens=REPLY, temperature=1.0, top_p=1.0, top_k=0, stop_ids=frozenset(), seed=(round_, i),
        )
        for i in range(count)
    ]  # fmt: skip


async def raw(llm: Any, asked: list[Request], number: int) -> None:
    """vLLM itself."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    sampling = SamplingParams(max_tokens=REPLY, temperature=1.0, ignore_eos=True, detokenize=False)

    async def one(request: Request, i: int) -> None:
        async for _ in llm.generate(TokensPrompt(prompt_token_ids=list(request.ids)), sampling, f"raw-{number}-{i}"):
            pass

    await asyncio.gather(*(one(request, i) for i, request in enumerate(asked)))


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    model, widths, rounds = ("nano", (8,), 1) if quick else ("smollm2-135m-instruct", (8, 64, 512), 3)
    bf16, folder = not quick and find_fastest_precision() == "bf16", resolve(model)
    module = load_module(folder)
    spec = EngineSpec(kind="vllm", max_batch=256, cache_mb=2048, max_model_len=512)
    vllm, here = (
        VLLMEngine(spec, Precision.BF16 if bf16 else Precision.FP32),
        InProcessEngine(Precision.BF16 if bf16 else Precision.FP32),
    )
    wait(vllm.open())
    started = time.perf_counter()
    wait(vllm.publish("p", 0, ModuleWeights(module)))
    result: dict[str, Any] = {"model": model, "bf16": bf16, "start_seconds": time.perf_counter() - started}
    wait(here.publish("p", 0, ModuleWeights(module)))
    llm = vllm._servers["trained p"].llm
    number = 0

    def timed(work: Callable[[list[Request]], Any], width: int) -> float:
        nonlocal number
        number += 1
        asked = requests(width, "p", number)
        began = time.perf_counter()
        work(asked)
        return width * REPLY / (time.perf_counter() - began)

    arms: dict[str, Callable[[list[Request]], Any]] = {
        "raw vLLM": lambda asked: wait(raw(llm, asked, number)),
        "vllm": lambda asked: wait(vllm.generate(asked)),
        "in process": lambda asked: wait(here.generate(asked)),
    }
    play: dict[str, Any] = {}
    for width in widths:
        rates: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(1 if width > 100 else rounds + 1):  # of several the first is thrown away
            for name, work in arms.items():
                rates[name].append(timed(work, width))
        kept = {name: found[1:] or found for name, found in rates.items()}
        ratio = [a / b for a, b in zip(kept["vllm"], kept["raw vLLM"], strict=True)]
        beside = [a / b for a, b in zip(kept["in process"], kept["vllm"], strict=True)]
        play[str(width)] = {
            "tokens per second": kept,
            "vllm ÷ raw vLLM": median(ratio),
            "in process ÷ vllm": median(beside),
        }
        print(width, json.dumps(play[str(width)]), flush=True)
    result["play"] = play

    before = vllm.figures()
    first = requests(8, "p", 10**6)
    said = wait(vllm.generate(first))
    later = [
        Request(
            policy=r.policy,
            ids=(*r.ids, *c.ids, *r.ids[-OWN:]),
            key=r.key,
            max_tokens=REPLY,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            stop_ids=frozenset(),
            seed=r.seed,
        )
        for r, c in zip(first, said, strict=True)
    ]
    wait(vllm.generate(later))
    after = vllm.figures()
    result["prefix cache"] = {
        "share of prompt tokens": (after["cached_tokens"] - before["cached_tokens"])
        / (after["prompt_tokens"] - before["prompt_tokens"]),
        "what": "8 first and 8 second turns; blocks of 128 tokens",
    }

    size = sum(p.numel() for p in module.parameters()) * (2 if bf16 else 4)
    whole, copies = [], []
    for version in range(1, rounds + 1):
        began = time.perf_counter()
        wait(vllm.publish("p", version, ModuleWeights(module)))
        whole.append(time.perf_counter() - began)
        with tempfile.TemporaryDirectory(dir=vllm._scratch) as place:
            source = Path(place) / "bytes"
            source.write_bytes(b"\0" * size)
            began = time.perf_counter()
            shutil.copyfile(source, Path(place) / "copy")
            copies.append(time.perf_counter() - began)
    base = Bases(Precision.BF16 if bf16 else Precision.FP32)(folder)
    small = adapted(base, AdapterSpec(), 0)
    wait(vllm.publish("a", 0, on_base(small, base, folder, model)))
    adapters = []
    for version in range(1, rounds + 1):
        began = time.perf_counter()
        wait(vllm.publish("a", version, on_base(small, base, folder, model)))
        adapters.append(time.perf_counter() - began)
    result["publish"] = {
        "bytes": size, "whole seconds": whole, "copying the bytes once, seconds": copies, "adapter seconds": adapters,
        "whole ÷ copy": median(a / b for a, b in zip(whole, copies, strict=True)),
    }  # fmt: skip
    wait(vllm.close())
    result |= {"command": "make engines", "machine": environment()}
    print(json.dumps({key: result[key] for key in ("start_seconds", "prefix cache", "publish")}, indent=1))
    if not quick:
        (HERE / "results" / "engines.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
