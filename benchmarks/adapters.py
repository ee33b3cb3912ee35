"""Speed and memory of four adapters, one per role, compared with one shared adapter and with training all weights.

    python benchmarks/adapters.py            # SmolLM2 on two cores, twenty-five minutes
    python benchmarks/adapters.py --quick    # nano: does it still work?

Play: 16 and 64 simultaneous replies of 32 tokens to contexts of 260 tokens, of which the first 200 are the opening.
Each arm has an engine; arms alternate in one process. Learning: an update on 32 streams, each with an opening of 200
tokens and 32 sampled tokens. Each arm runs in its own process, which also reports its peak memory. With four adapters,
each learns 8 streams. Both are measured with one opening shared by all streams, which four adapters compute four times,
and with a different opening per stream. Writes results/adapters.json. Linux only.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from reporting import write_result

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from engine_requests import make_request  # noqa: E402
from processes import read_memory, reset_peak, run_script  # noqa: E402

from agents.adapter import create_adapter  # noqa: E402
from agents.adapter_config import AdapterSpec  # noqa: E402
from agents.engines.in_process import InProcessEngine  # noqa: E402
from agents.policy import AdapterOnBase, Bases, load_module  # noqa: E402
from agents.precision import Precision  # noqa: E402
from agents.published import ModuleWeights  # noqa: E402
from agents.stream import Stream  # noqa: E402
from agents.weights import resolve  # noqa: E402
from arena.cli.loop import wait  # noqa: E402
from arena.config.experiment import LearnSpec  # noqa: E402
from arena.doctor import describe_environment  # noqa: E402
from arena.learn.machine import find_fastest_precision  # noqa: E402
from arena.learn.samples import Sample  # noqa: E402
from arena.learn.trainer import PolicyTrainer  # noqa: E402

OPENING, OWN, REPLY, STREAMS, UPDATES = 200, 60, 32, 32, 4
"""Tokens of an opening, of the rest of a context, and of a reply; streams per update, and number of updates."""
OPENINGS = ("shared", "own")
ARMS = {"all weights": 0, "one adapter": 1, "four adapters": 4}
"""Number of adapters of each arm. With 0, all weights are trained."""


def draw_opening(openings: str, rng: np.random.Generator) -> list[int]:
    """Return a context's first tokens: the shared opening, or a random one."""
    source = np.random.default_rng(0) if openings == "shared" else rng
    ids: list[int] = source.integers(10, 500, OPENING).tolist()
    return ids


def compare_play(model: str, bf16: bool, openings: str, widths: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Return the sampled tokens per second by number of simultaneous replies (`widths`) and arm."""
    folder = resolve(model)
    base = Bases(Precision.BF16 if bf16 else Precision.FP32)(folder)
    engines: dict[str, tuple[InProcessEngine, list[str]]] = {}
    for arm, count in ARMS.items():
        engine, names = (
            InProcessEngine(Precision.BF16 if bf16 else Precision.FP32),
            [f"p{i}" for i in range(max(1, count))],
        )
        for seed, name in enumerate(names):
            weights = AdapterOnBase(create_adapter(base, AdapterSpec(), seed), base, folder, model) if count else folder
            wait(engine.publish(name, 0, ModuleWeights(weights)))
        engines[arm] = engine, names
    results: dict[str, Any] = {}
    for width in widths:
        rates: dict[str, list[float]] = {arm: [] for arm in ARMS}
        for number in range(rounds + 1):
            rng = np.random.default_rng(number)
            contexts = [(*draw_opening(openings, rng), *rng.integers(10, 500, OWN).tolist()) for _ in range(width)]
            for arm in (list(ARMS), list(ARMS)[::-1])[number % 2]:
                engine, names = engines[arm]
                requests = [
                    make_request(ids, REPLY, f"{number}/{i}", names[i % len(names)], (number, i))
                    for i, ids in enumerate(contexts)
                ]
                start = time.perf_counter()
                wait(engine.generate(requests))
                rates[arm].append(width * REPLY / (time.perf_counter() - start))
        measured = {arm: values[1:] for arm, values in rates.items()}  # the first round is a warm-up
        results[str(width)] = {"tokens per second": measured, **_compute_ratios(measured)}
        print(openings, width, json.dumps(results[str(width)]), flush=True)
    return results


def _compute_ratios(rates: dict[str, list[float]]) -> dict[str, float]:
    pairs = [("four adapters", "all weights"), ("four adapters", "one adapter"), ("one adapter", "all weights")]
    return {f"{a} ÷ {b}": median(x / y for x, y in zip(rates[a], rates[b], strict=True)) for a, b in pairs}


def measure_learning(arm: str, model: str, bf16: bool, openings: str) -> dict[str, Any]:
    """Return the seconds of an arm's updates, this process's peak memory in GB, and the number of trained weights."""
    reset_peak()
    folder, rule = resolve(model), LearnSpec(lr=1e-5, regularisers={}, gate_tolerance=1e9)
    count = ARMS[arm]
    if count:
        base = Bases(Precision.BF16 if bf16 else Precision.FP32)(folder)
        models = [create_adapter(base, AdapterSpec(), seed) for seed in range(count)]
    else:
        models = [load_module(folder)]
    trainers = [PolicyTrainer(f"p{i}", module, rule, bf16) for i, module in enumerate(models)]
    rng = np.random.default_rng(1)
    samples = []
    for _ in range(STREAMS):
        stream = Stream()
        stream.observe(draw_opening(openings, rng))
        stream.append_sampled(rng.integers(10, 500, REPLY).tolist(), [-3.0] * REPLY, 0)
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
        start = time.perf_counter()
        for i, trainer in enumerate(trainers):
            trainer.carry_out(trainer.plan(samples[i :: len(trainers)], np.random.default_rng(0)))
        seconds.append(time.perf_counter() - start)
    return {
        "seconds": seconds[1:],
        "gb": read_memory()["peak"],
        "trained": sum(_count_trainable(module) for module in models),
    }


def _count_trainable(model: Any) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def compare_learning(openings: str, rounds: int, quick: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the updates per second and the peak memory by arm, each with ratios. Each round runs a process per arm."""
    rounds_found: list[dict[str, Any]] = []
    words = ["--openings", openings, *(["--quick"] if quick else [])]
    for _ in range(rounds):
        rounds_found.append({})
        for arm in ARMS:
            rounds_found[-1][arm] = run_script("adapters.py", "--learn", arm, *words)
    rates = {arm: [1 / median(each_round[arm]["seconds"]) for each_round in rounds_found] for arm in ARMS}
    memory = {arm: [each_round[arm]["gb"] for each_round in rounds_found] for arm in ARMS}
    return {"updates per second": rates, **_compute_ratios(rates), "rounds": rounds_found}, {
        "gb": memory,
        **_compute_ratios(memory),
    }


def main() -> None:
    """Measure all arms, or run one arm's updates in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="nano, one round")
    parser.add_argument("--learn", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--openings", choices=OPENINGS, default="shared", help=argparse.SUPPRESS)
    options = parser.parse_args()
    model = "nano" if options.quick else "smollm2-135m-instruct"
    bf16 = not options.quick and find_fastest_precision() == "bf16"
    if options.learn:
        print(json.dumps(measure_learning(options.learn, model, bf16, options.openings)))
        return
    result: dict[str, Any] = {"command": f"python benchmarks/adapters.py{' --quick' if options.quick else ''}"}
    result |= {"bf16": bf16, "learn": {}, "memory": {}, "play": {}, "machine": describe_environment()}
    widths, rounds = ((8,), 1) if options.quick else ((16, 64), 6)
    for openings in OPENINGS:
        found = compare_learning(openings, 1 if options.quick else 3, options.quick)
        result["learn"][openings], result["memory"][openings] = found
        for label, part in zip(("learn", "memory"), found, strict=True):
            print(openings, label, json.dumps({n: v for n, v in part.items() if "÷" in n}, indent=1), flush=True)
        result["play"][openings] = compare_play(model, bf16, openings, widths, rounds)
    if not options.quick:
        write_result("adapters", result)


if __name__ == "__main__":
    main()
