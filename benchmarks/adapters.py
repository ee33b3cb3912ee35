"""Cost of four roles with an adapter each, beside one adapter for all, and all weights of one policy.

    python benchmarks/adapters.py            # SmolLM2 on two cores, twenty-five minutes
    python benchmarks/adapters.py --quick    # nano: does it still work?

Play: turns of an opening of 200 tokens, 60 more and 32 sampled, 16 and 64 at once, through one engine per arm; arms
take turns in one process. Learning: an update from 32 streams of an opening of 200 tokens and 32 sampled, a process per
arm, which also tells its memory (the kernel's high-water mark); the four adapters have 8 streams each. Both where all
share the opening, which four adapters compute four times and one once, and where each has one of its own. Writes
results/adapters.json. Linux only.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from memory import reset_peak, resident  # noqa: E402

from agents.adapter import adapted  # noqa: E402
from agents.adapter_config import AdapterSpec  # noqa: E402
from agents.engines.base import Request  # noqa: E402
from agents.engines.in_process import InProcessEngine  # noqa: E402
from agents.policy import Bases, OnBase, load_module  # noqa: E402
from agents.precision import Precision  # noqa: E402
from agents.published import ModuleWeights  # noqa: E402
from agents.stream import Stream  # noqa: E402
from agents.weights import resolve  # noqa: E402
from arena.cli.loop import wait  # noqa: E402
from arena.config.experiment import LearnSpec  # noqa: E402
from arena.doctor import environment  # noqa: E402
from arena.learn.machine import find_fastest_precision  # noqa: E402
from arena.learn.samples import Sample  # noqa: E402
from arena.learn.trainer import PolicyTrainer  # noqa: E402

OPENING, OWN, REPLY, STREAMS, UPDATES = 200, 60, 32, 32, 4
OPENINGS = ("shared", "own")
ARMS = {"all weights": 0, "one adapter": 1, "four adapters": 4}
"""Number of adapters of each arm; without any, the policy's weights are its own."""


def opening_of(openings: str, rng: np.random.Generator) -> list[int]:
    """Return a context's first tokens: those that all begin with, or some of its own."""
    chance = np.random.default_rng(0) if openings == "shared" else rng
    ids: list[int] = chance.integers(10, 500, OPENING).tolist()
    return ids


def play(model: str, bf16: bool, openings: str, widths: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Tokens sampled per second by arm and width."""
    folder = resolve(model)
    base = Bases(Precision.BF16 if bf16 else Precision.FP32)(folder)
    engines: dict[str, tuple[InProcessEngine, list[str]]] = {}
    for arm, count in ARMS.items():
        engine, names = (
            InProcessEngine(Precision.BF16 if bf16 else Precision.FP32),
            [f"p{i}" for i in range(max(1, count))],
        )
        for seed, name in enumerate(names):
            weights = OnBase(adapted(base, AdapterSpec(), seed), base, folder, model) if count else folder
            wait(engine.publish(name, 0, ModuleWeights(weights)))
        engines[arm] = engine, names
    found: dict[str, Any] = {}
    for width in widths:
        rates: dict[str, list[float]] = {arm: [] for arm in ARMS}
        for number in range(rounds + 1):
            rng = np.random.default_rng(number)
            contexts = [(*opening_of(openings, rng), *rng.integers(10, 500, OWN).tolist()) for _ in range(width)]
            for arm in (list(ARMS), list(ARMS)[::-1])[number % 2]:
                engine, names = engines[arm]
                asked = [
                    Request(
                        policy=names[i % len(names)],
                        ids=ids,
                        key=f"{number}/{i}",
                        max_tokens=REPLY,
                        temperature=1.0,
                        top_p=1.0,
                        top_k=0,
                        stop_ids=frozenset(),
                        seed=(number, i),
                    )
                    for i, ids in enumerate(contexts)
                ]
                began = time.perf_counter()
                wait(engine.generate(asked))
                rates[arm].append(width * REPLY / (time.perf_counter() - began))
        kept = {arm: values[1:] for arm, values in rates.items()}  # the first round is thrown away
        found[str(width)] = {"tokens per second": kept, **_ratios(kept)}
        print(openings, width, json.dumps(found[str(width)]), flush=True)
    return found


def _ratios(rates: dict[str, list[float]]) -> dict[str, float]:
    pairs = [("four adapters", "all weights"), ("four adapters", "one adapter"), ("one adapter", "all weights")]
    return {f"{a} ÷ {b}": median(x / y for x, y in zip(rates[a], rates[b], strict=True)) for a, b in pairs}


def learn(arm: str, model: str, bf16: bool, openings: str) -> dict[str, Any]:
    """Seconds of an arm's updates and the memory of its process, this one."""
    reset_peak()
    folder, rule = resolve(model), LearnSpec(lr=1e-5, regularisers={}, gate_tolerance=1e9)
    count = ARMS[arm]
    if count:
        base = Bases(Precision.BF16 if bf16 else Precision.FP32)(folder)
        models = [adapted(base, AdapterSpec(), seed) for seed in range(count)]
    else:
        models = [load_module(folder)]
    trainers = [PolicyTrainer(f"p{i}", one, rule, bf16) for i, one in enumerate(models)]
    rng = np.random.default_rng(1)
    samples = []
    for _ in range(STREAMS):
        stream = Stream()
        stream.observe(opening_of(openings, rng))
        stream.wrote(rng.integers(10, 500, REPLY).tolist(), [-3.0] * REPLY, 0)
        ones = np.ones(REPLY, np.float32)
        advantages = rng.normal(size=REPLY).astype(np.float32)
        samples.append(
            Sample(
                stream=stream,
                advantages=advantages,
                behaviour=-3 * ones,
                temperature=1.0,
                places=np.zeros(REPLY, np.int64),
                learned=ones.astype(bool),
            )
        )
    seconds = []
    for _ in range(UPDATES):
        began = time.perf_counter()
        for i, trainer in enumerate(trainers):
            trainer.carry_out(trainer.plan(samples[i :: len(trainers)], np.random.default_rng(0)))
        seconds.append(time.perf_counter() - began)
    return {"seconds": seconds[1:], "gb": resident()["peak"], "trained": sum(_count(one) for one in models)}


def _count(model: Any) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def learned(openings: str, rounds: int, quick: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Updates per second, and memory, by arm: each round has a process per arm."""
    found: list[dict[str, Any]] = []
    words = ["--openings", openings, *(["--quick"] if quick else [])]
    for _ in range(rounds):
        found.append({})
        for arm in ARMS:
            command = [sys.executable, __file__, "--learn", arm, *words]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found[-1][arm] = json.loads(done.stdout.splitlines()[-1])
    rates = {arm: [1 / median(one[arm]["seconds"]) for one in found] for arm in ARMS}
    memory = {arm: [one[arm]["gb"] for one in found] for arm in ARMS}
    return {"updates per second": rates, **_ratios(rates), "rounds": found}, {"gb": memory, **_ratios(memory)}


def main() -> None:
    """Measure, or be the process in which one arm learns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="nano, one round")
    parser.add_argument("--learn", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--openings", choices=OPENINGS, default="shared", help=argparse.SUPPRESS)
    options = parser.parse_args()
    model = "nano" if options.quick else "smollm2-135m-instruct"
    bf16 = not options.quick and find_fastest_precision() == "bf16"
    if options.learn:
        print(json.dumps(learn(options.learn, model, bf16, options.openings)))
        return
    result: dict[str, Any] = {"command": f"python benchmarks/adapters.py{' --quick' if options.quick else ''}"}
    result |= {"bf16": bf16, "learn": {}, "memory": {}, "play": {}, "machine": environment()}
    widths, rounds = ((8,), 1) if options.quick else ((16, 64), 6)
    for openings in OPENINGS:
        found = learned(openings, 1 if options.quick else 3, options.quick)
        result["learn"][openings], result["memory"][openings] = found
        for what, part in zip(("learn", "memory"), found, strict=True):
            print(openings, what, json.dumps({n: v for n, v in part.items() if "÷" in n}, indent=1), flush=True)
        result["play"][openings] = play(model, bf16, openings, widths, rounds)
    if not options.quick:
        (HERE / "results" / "adapters.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
