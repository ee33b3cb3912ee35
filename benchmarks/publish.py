"""Publishing weights from two ranks to two engines: wall and CPU time, and peak memory of driver, ranks and engines.

    python benchmarks/publish.py                      # SmolLM2-135M and a random model of 0.5B; minutes, 14 GB
    python benchmarks/publish.py --models nano        # does it still work?

Per model: the policy is loaded, published once, and then published again `--rounds` times. Peaks are the kernel's
high-water marks (VmHWM), set back at the beginning of each phase; a process's memory includes what it maps of Ray's
store. "above start" is relative to the process before the policy was loaded. Writes results/publish.json.
"""

import argparse
import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from agents.engines.spec import EngineSpec  # noqa: E402
from agents.policy import Bases, Policy  # noqa: E402
from agents.precision import Precision  # noqa: E402
from agents.weights import resolve  # noqa: E402
from arena.config.experiment import LearnSpec  # noqa: E402
from arena.doctor import environment  # noqa: E402
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


def cpu(pids: Mapping[str, int]) -> float:
    """Return the CPU seconds that the processes have taken, which do not depend on what else the machine does."""
    times = [psutil.Process(pid).cpu_times() for pid in pids.values()]
    return float(sum(one.user + one.system for one in times))


def peaks(pids: Mapping[str, int], of: str = "VmHWM") -> Peaks:
    """Return the GB (10^9 bytes) that each process held at most since its mark was set back."""
    found = {}
    for name, pid in pids.items():
        said = re.search(rf"{of}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        assert said
        found[name] = int(said[1]) * 1024 / 1e9
    return found


def reset(pids: Mapping[str, int]) -> None:
    """Set back the high-water marks."""
    for pid in pids.values():
        Path(f"/proc/{pid}/clear_refs").write_text("5")


async def measure(folder: Path, rounds: int, stage: int) -> dict[str, Any]:
    """Load and publish one model."""
    async with open_cluster(SPEC, lambda line: None) as cluster:
        from arena.scale.engines import ScaledEngine
        from arena.scale.ranks import Ranks
        from arena.scale.trainer import ScaledTrainer

        ranks = await Ranks.start([cluster.trainer(rank) for rank in range(RANKS)], 600.0, 300.0)
        engine = ScaledEngine(cluster, EngineSpec(), Precision.BF16)
        await engine.open()
        pids = {"driver": os.getpid()} | {f"rank {k}": place.pid for k, place in enumerate(ranks.places)}
        for place in engine._slots:
            assert place.worker
            pids[place.name] = (await place.worker.call("ping"))[1]
        start, phases = peaks(pids, "VmRSS"), {}
        rule, seconds, spent = LearnSpec(zero_stage=stage), [], []  # type: ignore[arg-type]

        def made() -> Any:
            policy = Policy.load("p", folder, folder, True, None, Bases(Precision.BF16), Precision.BF16, empty=True)
            return ScaledTrainer(ranks, policy, rule, True)

        reset(pids)
        trainer = await asyncio.to_thread(made)
        phases["loading"] = peaks(pids)
        for version in range(1 + rounds):
            reset(pids)
            began, before = time.perf_counter(), cpu(pids)
            await engine.publish("p", version, await trainer.weights())
            seconds.append(time.perf_counter() - began)
            spent.append(cpu(pids) - before)
            phases["first publish" if version == 0 else "publish"] = peaks(pids)
        await trainer.close()
        await engine.close()
        await ranks.close()
    above = {phase: {name: held[name] - start[name] for name in pids} for phase, held in phases.items()}
    return {
        "seconds of the first publish": seconds[0],
        "seconds to publish": {"median": median(seconds[1:]), "all": seconds[1:]},
        "CPU seconds to publish": {"median": median(spent[1:]), "all": spent[1:]},
        "GB at start": start,
        "GB above start, at most": above,
    }


def main() -> None:
    """Measure the models and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=["smollm2-135m-instruct", RANDOM])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stage", type=int, default=0, help="ZeRO")
    parser.add_argument("--label", default="after", help="key in the results")
    asked = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    mine = results.setdefault(asked.label, {})
    for name in asked.models:
        with TemporaryDirectory(prefix="arena-publish-") as scratch:
            folder = Path(scratch) / name
            if name == RANDOM:
                from fits import random_model

                random_model(folder)
            found = asyncio.run(measure(folder if name == RANDOM else resolve(name), asked.rounds, asked.stage))
        found |= {"command": " ".join(["python", "benchmarks/publish.py", *sys.argv[1:]])}
        mine[name] = found | {"machine": environment(), "load at end": os.getloadavg()}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(found, indent=1), flush=True)


if __name__ == "__main__":
    main()
