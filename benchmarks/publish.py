"""Time and peak memory of publishing weights from two ranks to two engines.

    python benchmarks/publish.py                      # SmolLM2-135M and a random model of 0.5B; minutes, 14 GB
    python benchmarks/publish.py --models nano        # does it still work?

For each model, the policy is loaded, published once, and then published `--rounds` more times. Measured are wall and
CPU time, and the peak memory of driver, ranks and engines: the kernel's high-water mark (VmHWM), reset before each
phase. A process's memory includes its mappings of Ray's store. "above start" is relative to the process before the
policy was loaded. Writes results/publish.json.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from reporting import format_command

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from processes import read_status, reset_peak  # noqa: E402

from agents.engines.spec import EngineSpec  # noqa: E402
from agents.policy import Bases, Policy  # noqa: E402
from agents.precision import Precision  # noqa: E402
from agents.weights import resolve  # noqa: E402
from arena.config.experiment import LearnSpec  # noqa: E402
from arena.doctor import describe_environment  # noqa: E402
from arena.scale.cluster import open_cluster  # noqa: E402
from arena.scale.settings import ResourcesSpec, ScaleSpec, WorkerResources  # noqa: E402

RESULTS = HERE / "results" / "publish.json"
RANDOM = "random-0.5b"
RANKS = ENGINES = 2
SHARED = WorkerResources(cpus=0.5)
SPEC = ScaleSpec(
    trainers=RANKS, engines=ENGINES, patience=300.0, resources=ResourcesSpec(trainer=SHARED, engine=SHARED)
)
Peaks = dict[str, float]


def read_cpu(pids: Mapping[str, int]) -> float:
    """Return the CPU seconds of all processes together, which do not depend on the machine's other load."""
    times = [psutil.Process(pid).cpu_times() for pid in pids.values()]
    return float(sum(each.user + each.system for each in times))


def read_memory(pids: Mapping[str, int], field: str = "VmHWM") -> Peaks:
    """Return a field of each process's memory in GB (10^9 bytes), by default the peak since the last reset."""
    return {name: read_status(field, pid) / 1e9 for name, pid in pids.items()}


def reset_peaks(pids: Mapping[str, int]) -> None:
    """Reset the peak memory of the processes."""
    for pid in pids.values():
        reset_peak(pid)


async def measure(folder: Path, rounds: int, stage: int) -> dict[str, Any]:
    """Load and publish one model with a ZeRO `stage`, and return the times and the memory by phase."""
    async with open_cluster(SPEC, lambda line: None) as cluster:
        from arena.scale.engines import ScaledEngine
        from arena.scale.ranks import Ranks
        from arena.scale.trainer import ScaledTrainer

        ranks = await Ranks.start([cluster.get_trainer_options(rank) for rank in range(RANKS)], 600.0, 300.0)
        engine = ScaledEngine(cluster, EngineSpec(), Precision.BF16)
        await engine.open()
        pids = {"driver": os.getpid()} | {f"rank {k}": place.pid for k, place in enumerate(ranks.locations)}
        for place in engine._slots:
            assert place.worker
            pids[place.name] = (await place.worker.call("ping"))[1]
        start, phases = read_memory(pids, "VmRSS"), {}
        rule, seconds, cpu_seconds = LearnSpec(zero_stage=stage), [], []  # type: ignore[arg-type]

        def make_trainer() -> Any:
            policy = Policy.load("p", folder, folder, True, None, Bases(Precision.BF16), Precision.BF16, empty=True)
            return ScaledTrainer(ranks, policy, rule, True)

        reset_peaks(pids)
        trainer = await asyncio.to_thread(make_trainer)
        phases["loading"] = read_memory(pids)
        for version in range(1 + rounds):
            reset_peaks(pids)
            start_time, cpu_before = time.perf_counter(), read_cpu(pids)
            await engine.publish("p", version, await trainer.weights())
            seconds.append(time.perf_counter() - start_time)
            cpu_seconds.append(read_cpu(pids) - cpu_before)
            phases["first publish" if version == 0 else "publish"] = read_memory(pids)
        await trainer.close()
        await engine.close()
        await ranks.close()
    above = {phase: {name: gigabytes[name] - start[name] for name in pids} for phase, gigabytes in phases.items()}
    return {
        "seconds of the first publish": seconds[0],
        "seconds to publish": {"median": median(seconds[1:]), "all": seconds[1:]},
        "CPU seconds to publish": {"median": median(cpu_seconds[1:]), "all": cpu_seconds[1:]},
        "GB at start": start,
        "GB above start, at most": above,
    }


def main() -> None:
    """Measure the models and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=["smollm2-135m-instruct", RANDOM])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stage", type=int, default=0, help="ZeRO stage")
    parser.add_argument("--label", default="after", help="key in the results")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    models = results.setdefault(options.label, {})
    for name in options.models:
        with TemporaryDirectory(prefix="arena-publish-") as scratch:
            folder = Path(scratch) / name
            if name == RANDOM:
                from fits import save_random_model

                save_random_model(folder)
            found = asyncio.run(measure(folder if name == RANDOM else resolve(name), options.rounds, options.stage))
        found |= {"command": format_command()}
        models[name] = found | {"machine": describe_environment(), "load at end": os.getloadavg()}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(found, indent=1), flush=True)


if __name__ == "__main__":
    main()
