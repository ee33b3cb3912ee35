"""Two DeepSpeed ranks beside one: the worst difference of a weight after five iterations, for each kind of update.

    python benchmarks/scale_equality.py             # all kinds under ZeRO 0, 1, 2 and 3, some minutes
    python benchmarks/scale_equality.py --ranks 3   # another number of ranks

Ranks are processes on Ray (gloo on CPUs), one thread each; what they are compared with is a single rank without ZeRO in
this process. Kinds, samples and the learning rate (2e-5, the default) are those of tests/factories/scaled.py. No
gradient is clipped. Adam divides a gradient by its own size, so it hides a wrong scale nearly as well as a clip: so the
first moments, sums of gradients, are compared too, as shares of the largest. Writes results/scale-equality.json.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
os.environ["PYTHONPATH"] = str(HERE.parent)

import ray  # noqa: E402

from arena.doctor import environment  # noqa: E402
from arena.learn.make import local_trainer  # noqa: E402
from arena.scale.ranks import Ranks  # noqa: E402
from arena.scale.trainer import ScaledTrainer  # noqa: E402
from tests.factories.scaled import CASES, ITERATIONS, begun, learned  # noqa: E402

RESULTS = HERE / "results" / "scale-equality.json"
OFFLOADED = ("packed ragged", "adapter")


def compared(ranks: Ranks, names: list[str]) -> dict[str, Any]:
    """By case and stage, how far the ranks are from one."""
    found: dict[str, Any] = {}
    for name in names:
        case, make = CASES[name], partial(ScaledTrainer, ranks)
        alone = learned(local_trainer, case)
        found[name] = {"moved": alone.moved(begun(case))}
        stages = [(stage, False) for stage in (0, 1, 2, 3)]
        stages += [(stage, True) for stage in (1, 2, 3)] if name in OFFLOADED else []
        for stage, offload in stages:
            started = time.perf_counter()
            weight, moment = alone.off(learned(make, case, zero_stage=stage, offload_optimizer=offload))
            label = f"ZeRO {stage}{', offloaded' if offload else ''}"
            found[name][label] = {"weight": weight, "moment": moment}
            print(f"{name}, {label}: {weight:.2g}, {moment:.2g} ({time.perf_counter() - started:.0f} s)", flush=True)
    return found


def main() -> None:
    """Compare, and write what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    given = parser.parse_args()
    ray.init("local", num_cpus=given.ranks + 1, object_store_memory=200 << 20, include_dashboard=False)
    ranks = asyncio.run(Ranks.start([{"num_cpus": 1}] * given.ranks, timeout=300.0))
    try:
        found = compared(ranks, given.cases)
    finally:
        asyncio.run(ranks.close())
        ray.shutdown()
    each = [value for case in found.values() for value in case.values() if isinstance(value, dict)]
    result = {
        "command": f"python benchmarks/scale_equality.py --ranks {given.ranks}",
        "environment": environment(),
        "ranks": given.ranks,
        "iterations": ITERATIONS,
        "seeds": "samples 10 · iteration + policy, order of minibatches: the iteration",
        "worst weight": max(value["weight"] for value in each),
        "worst first moment, as a share of the largest": max(value["moment"] for value in each),
        "cases": found,
    }
    if given.cases == list(CASES):
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: result[name] for name in result if name != "cases"}, indent=1))


if __name__ == "__main__":
    main()
