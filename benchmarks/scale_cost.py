"""Cost of Ray: runs of a nano recipe in one process, and with trainer and engine in separate processes.

    python benchmarks/scale_cost.py               # minutes
    python benchmarks/scale_cost.py --quick       # does it still work?

The arms alternate; each run is a new process with one thread. Reported are the median wall time per iteration, without
the first one; the CPU time and peak memory (PSS, sampled twice a second) of all processes together; and the bytes of
replies and weights sent between processes. Writes results/scale-cost.json.
"""

import argparse
import asyncio
import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from engine_requests import make_request
from reporting import format_command

from agents.engines.base import Completion
from agents.model_folder import load_model
from agents.weights import resolve
from arena.doctor import describe_environment

HERE = Path(__file__).resolve().parent
MARK = "ARENA_SCALE_COST"
SETTINGS = ("threads=1", "policies.shared.imitate=null", "checkpoint.every=100")
ARMS = {"one process": (), "one trainer, one engine": ("--scale", "trainers=1,engines=1")}
Found = dict[str, Any]


def measure_run(arm: str, matches: int, iterations: int) -> Found:
    """Run an arm and return its seconds per iteration, and the CPU time and peak memory of all its processes."""
    sizes = (*SETTINGS, f"play.matches={matches}", f"iterations={iterations}")
    words = [word for setting in sizes for word in ("--set", setting)]
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "arena", "run", "selfplay", "--recipe", "negotiation-nano", *words, *ARMS[arm]]
        environ = {**os.environ, "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1", MARK: str(out)}
        start = time.perf_counter()
        quiet = subprocess.DEVNULL
        process = subprocess.Popen([*command, "--json", "--out", str(out)], env=environ, stdout=quiet, stderr=quiet)
        cpu_seconds, peak, first_match = dict[int, float](), 0, 0.0
        while process.poll() is None:
            memory = _read_usage(str(out), cpu_seconds)
            peak = max(peak, memory)
            if not first_match and (out / "log" / "0001.jsonl").exists():
                first_match = time.perf_counter() - start
            time.sleep(0.5)
        if process.returncode:
            raise SystemExit(f"{arm}: the run ended with exit code {process.returncode}")
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    later = [row["seconds"] for row in rows[1:]]
    return {
        "until the first match": first_match,
        "whole run": time.perf_counter() - start,
        "cpu seconds": sum(cpu_seconds.values()),
        "memory (MB)": peak / 1e6,
        **{f"{phase} per iteration": median(row[phase] for row in later) for phase in ("play", "learn")},
        "play per match": median(row["play"] for row in later) / matches,
    }


def _read_usage(out: str, cpu_seconds: dict[int, float]) -> int:
    """Return the bytes of memory of all processes of a run, and update their CPU seconds in `cpu_seconds`."""
    memory = 0
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == out:
                cpu_times = process.cpu_times()
                cpu_seconds[process.pid] = cpu_times.user + cpu_times.system
                memory += process.memory_full_info().pss
        except psutil.Error:
            continue
    return memory


def measure_messages() -> Found:
    """Return the bytes of a turn's request, of its reply and of nano's weights, and the time of remote calls."""
    request = make_request(range(150), 12, "i0001-d0001/opener/0", "shared", seed=(1, 2, 3), stop_ids=frozenset({1}))
    reply = Completion(tuple(range(8)), (-1.5,) * 8, "stop", 3)
    module = load_model(resolve("nano"))
    return {
        "bytes of a request of 150 tokens": len(pickle.dumps(request)),
        "bytes of a reply of 8 tokens": len(pickle.dumps(reply)),
        "bytes of a version of nano": sum(p.numel() * p.element_size() for p in module.parameters()),
        "turns": asyncio.run(_measure_calls()),
    }


async def _measure_calls() -> Found:
    """Return the milliseconds of an empty call to an engine's process, alone and as one of 32 concurrent calls."""
    from arena.scale.cluster import open_cluster
    from arena.scale.engines import ScaledEngine
    from arena.scale.settings import ScaleSpec

    async with open_cluster(ScaleSpec(), lambda line: None) as cluster:
        from agents.engines.spec import EngineSpec

        engine = ScaledEngine(cluster, EngineSpec())
        await engine.open()
        worker = engine._slots[0].worker
        assert worker is not None
        alone, many = [], []
        for _ in range(100):
            began = time.perf_counter()
            await worker.call("ping")
            alone.append(time.perf_counter() - began)
            began = time.perf_counter()
            await asyncio.gather(*(worker.call("ping") for _ in range(32)))
            many.append((time.perf_counter() - began) / 32)
        await engine.close()
    return {"ms of a call alone": 1000 * median(alone), "ms of one among 32": 1000 * median(many)}


def main() -> None:
    """Measure both arms and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--matches", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=6)
    options = parser.parse_args()
    rounds, matches, iterations = (1, 4, 2) if options.quick else (options.rounds, options.matches, options.iterations)
    result: Found = {"command": format_command()}
    result |= {"machine": describe_environment(), "load_at_start": os.getloadavg()}
    result |= {"recipe": "negotiation-nano", "settings": SETTINGS, "matches": matches, "iterations": iterations}
    found: dict[str, list[Found]] = {arm: [] for arm in ARMS}
    for _ in range(rounds):
        for arm in ARMS:
            found[arm].append(measure_run(arm, matches, iterations))
    one, scaled = found.values()
    result["rounds"] = found
    result["medians"] = {
        arm: {name: median(run[name] for run in runs) for name in runs[0]} for arm, runs in found.items()
    }
    result["ratios"] = {name: median(b[name] / a[name] for a, b in zip(one, scaled, strict=True)) for name in one[0]}
    result["load_at_end"] = os.getloadavg()
    file = HERE / "results" / ("scale-cost-quick.json" if options.quick else "scale-cost.json")
    file.write_text(json.dumps(result, indent=1) + "\n")
    file.write_text(json.dumps(result | {"shipped": measure_messages()}, indent=1) + "\n")
    for name, ratio in result["ratios"].items():
        print(f"{name:24}", *(f"{medians[name]:10.3f}" for medians in result["medians"].values()), f"{ratio:8.2f} ×")


if __name__ == "__main__":
    main()
