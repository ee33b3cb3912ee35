"""The learning phase inside a run, with freed memory kept or given back: what `learn_step.py` cannot see.

    python benchmarks/learn_in_run.py           # ten minutes on two quiet cores
    python benchmarks/learn_in_run.py --quick   # the smaller run, one measured iteration: does it still work?

Between two updates a run plays, so that buffers of other sizes are made; memory that goes back to the system then has
to be mapped again. Every arm is a process with a run of its own; arms take turns, iteration by iteration: `as it is`,
`kept` (memory never counts as scarce), `given back` (it always does). CPU seconds are user and system together.
Writes results/learn-in-run.json.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

from learn_step import children, measured

from arena.cli.loop import wait

RESULTS = Path(__file__).resolve().parent / "results"
RUNS: dict[str, tuple[int, list[str]]] = {
    "all weights, 8 streams": (
        5,
        [
            "policies.shared.adapter=null", "policies.shared.imitate=null", "league=null", "play.group=4",
            "play.matches=4", "evaluate=null", "credit.select=[]", "learn.lr=1e-5",
            "learn.regularisers={kl: {weight: 0.02}}",
        ],
    ),
    "flagship, adapter": (3, []),
}  # fmt: skip
"""Measured iterations, after one that is not, and what is laid over the recipe `negotiation`."""
ARMS = {"as it is": None, "kept": False, "given back": True}
"""Whether memory counts as scarce; None: as `agents.heap` finds it."""
SLOWER, PEAK_GB = 1.05, 3.0


def serve(arm: str) -> None:
    """Open the run that the first line names, then play an iteration for each line and tell what learning took."""
    from workload import open_lab

    from agents import heap
    from arena.config.layers import compose
    from arena.config.sources import recipe_layer, set_layer

    scarce = ARMS[arm]
    if scarce is not None:
        heap.is_scarce = lambda: scarce
    print(json.dumps({"ready": arm}), flush=True)
    rounds, settings = RUNS[json.loads(sys.stdin.readline())]
    layers = [*settings, f"iterations={rounds + 1}", f"checkpoint.every={rounds + 1}"]
    with open_lab(compose([recipe_layer("negotiation"), *map(set_layer, layers)])) as lab:
        learn, found = lab.learn, dict[str, float]()

        async def phase(*given: Any) -> Any:
            with measured() as figures:
                result = await learn(*given)
            found.update(figures)
            return result

        setattr(lab, "learn", phase)  # noqa: B010 mypy knows that it is a method
        wait(lab.imitate())
        for k in range(1, rounds + 2):
            with measured() as whole:
                wait(lab.iterate(k))
            iteration = {f"iteration_{name}": whole[name] for name in ("seconds", "cpu", "page_faults")}
            print(json.dumps({**found, **iteration, "peak_gb": whole["peak_gb"]}), flush=True)
            sys.stdin.readline()


def compared(workload: str, rounds: int) -> dict[str, Any]:
    """Return all arms' figures, their medians, and how much slower than `kept` learning is."""
    steps: dict[str, list[dict[str, float]]] = {arm: [] for arm in ARMS}
    with children({arm: {"arm": arm, "script": Path(__file__).name} for arm in ARMS}) as processes:
        for _ in range(1 + rounds):
            for arm, process in processes.items():
                steps[arm].append(process.step(workload))
    warm = {arm: told[1:] for arm, told in steps.items()}
    medians = {arm: {what: median(step[what] for step in told) for what in told[0]} for arm, told in warm.items()}
    slower = {
        what: {
            arm: median(a[what] / b[what] for a, b in zip(told, warm["kept"], strict=True))
            for arm, told in warm.items()
        }
        for what in ("seconds", "cpu", "iteration_seconds", "iteration_cpu")
    }
    peaks = {arm: max(step["peak_gb"] for step in told) for arm, told in steps.items()}
    return {"rounds": steps, "median": medians, "of kept": slower, "peak_gb": peaks}


def main() -> None:
    """Measure everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--serve", choices=ARMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve)
    from arena.doctor import environment

    result: dict[str, Any] = {"command": " ".join(["python", "benchmarks/learn_in_run.py", *sys.argv[1:]])}
    result |= {"machine": environment(), "seed": 0, "load_at_start": os.getloadavg()}
    for workload, (rounds, _) in list(RUNS.items())[:1] if options.quick else RUNS.items():
        result[workload] = compared(workload, 1 if options.quick else rounds)
        print(workload, json.dumps({k: result[workload][k] for k in ("of kept", "peak_gb")}), file=sys.stderr)
    worst = max(result[workload]["of kept"]["seconds"]["as it is"] for workload in RUNS if workload in result)
    peak = result.get("flagship, adapter", {}).get("peak_gb", {}).get("as it is", 0.0)
    result["verdict"] = {
        "slower": {"worst": worst, "target": SLOWER, "met": worst <= SLOWER},
        "flagship_peak_gb": {"worst": peak, "target": PEAK_GB, "met": peak <= PEAK_GB},
    }
    result["load_at_end"] = os.getloadavg()
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"learn-in-run{'-quick' if options.quick else ''}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["verdict"], indent=1))


if __name__ == "__main__":
    main()
