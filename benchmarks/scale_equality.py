"""Two DeepSpeed ranks compared with one: the largest difference of a weight after five iterations, by kind of update.

    python benchmarks/scale_equality.py             # all kinds under ZeRO 0, 1, 2 and 3, some minutes
    python benchmarks/scale_equality.py --ranks 3   # another number of ranks

Ranks are processes on Ray (gloo on CPUs) with one thread each; the baseline is a single rank without ZeRO in this
process. Kinds, samples and the learning rate (2e-5, the default) are those of tests/factories/scaled.py. Gradients are
not clipped. Adam divides a gradient by its own size, so it hides a wrong scale nearly as well as a clip. Therefore the
first moments, sums of gradients, are compared too, as shares of the largest. Writes results/scale-equality.json.
"""

import argparse
import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
os.environ |= {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # do not end because of other processes' memory
    "PYTHONPATH": str(HERE.parent),
}

import ray  # noqa: E402

from arena.doctor import describe_environment  # noqa: E402
from arena.learn.trainer import create_local_trainer  # noqa: E402
from arena.scale.ranks import Ranks  # noqa: E402
from arena.scale.trainer import ScaledTrainer  # noqa: E402
from tests.factories.scaled import CASES, ITERATIONS, train_case  # noqa: E402

RESULTS = HERE / "results" / "scale-equality.json"
OFFLOADED = ("packed ragged", "adapter")


def compare(ranks: Ranks, name: str) -> dict[str, Any]:
    """Return the differences between several ranks and one, by ZeRO stage.

    For reference, one rank is also compared with itself with smaller passes.
    """
    case, make = CASES[name], partial(ScaledTrainer, ranks)
    alone = train_case(create_local_trainer, case)
    found: dict[str, Any] = {"moved": alone.max_change(case)}
    found["one rank, smaller passes"] = alone.compute_differences(
        train_case(create_local_trainer, case, token_budget=60)
    )._asdict()
    stages = [(stage, False) for stage in (0, 1, 2, 3)]
    stages += [(stage, True) for stage in (1, 2, 3)] if name in OFFLOADED else []
    for stage, offload in stages:
        label = f"{len(ranks)} ranks, ZeRO {stage}{', offloaded' if offload else ''}"
        found[label] = alone.compute_differences(
            train_case(make, case, zero_stage=stage, offload_optimizer=offload)
        )._asdict()
        print(f"{name}, {label}: {found[label]}", flush=True)
    return found


def write_results(cases: dict[str, Any], ranks: int) -> None:
    """Write the results so far."""
    each = [value for case in cases.values() for label, value in case.items() if "ZeRO" in label]
    summary = {
        "command": f"python benchmarks/scale_equality.py --ranks {ranks}",
        "environment": describe_environment() | {"ray": ray.__version__},
        "iterations": ITERATIONS,
        "seeds": "samples 10 · iteration + policy, order of minibatches: the iteration",
        "worst weight": max(value["weight"] for value in each),
        "worst first moment, as a share of the largest": max(value["moment"] for value in each),
    }
    RESULTS.write_text(json.dumps(summary | {"cases": cases}, indent=1) + "\n")


def main() -> None:
    """Compare the cases. Results of other cases are kept."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--cases", nargs="*", default=list(CASES), metavar="KIND")
    options = parser.parse_args()
    cases = json.loads(RESULTS.read_text())["cases"] if options.cases != list(CASES) and RESULTS.exists() else {}
    ray.init("local", num_cpus=options.ranks + 1, object_store_memory=200 << 20, include_dashboard=False)
    ranks = asyncio.run(Ranks.start([{"num_cpus": 1}] * options.ranks, timeout=300.0, start_timeout=300.0))
    try:
        for name in options.cases:
            cases[name] = compare(ranks, name)
            write_results(cases, options.ranks)
    finally:
        asyncio.run(ranks.close())
        ray.shutdown()


if __name__ == "__main__":
    main()
