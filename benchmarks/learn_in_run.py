"""Learning time within a run, with and without returning freed memory. `learn_step.py` measures a single step.

    python benchmarks/learn_in_run.py           # ten minutes on two quiet cores
    python benchmarks/learn_in_run.py --quick   # the smaller run, one measured iteration: does it still work?

Between two updates a run plays, which allocates buffers of other sizes. Memory that was returned to the system must be
mapped again. Each arm is a process with its own run; they alternate by iteration. `as it is` is Arena's default,
`never` returns no memory, and `always` returns all free memory after each phase and each batch of play. CPU seconds are
user and system time. Writes results/learn-in-run.json.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

from learn_step import measure_block, start_arms
from reporting import format_command, write_result

from arena.cli.loop import wait

RUNS: dict[str, tuple[int, list[str]]] = {
    "all weights": (
        3,
        [
            "policies.shared.adapter=null", "policies.shared.imitate.lr=5e-5", "league=null", "play.matches=4",
            "play.group=4", "evaluate=null", "learn.lr=1e-5", "learn.regularisers={kl: {weight: 0.02}}",
        ],
    ),
    "flagship, adapter": (2, ["evaluate=null"]),
}  # fmt: skip
"""Number of measured iterations, after a warm-up, and overrides of the recipe `negotiation`, by workload."""
ARMS = ("as it is", "never", "always")
SLOWER, PEAK_GB = 1.05, 3.0
"""Maximum learning time relative to the arm `never`, and maximum peak memory of the flagship."""


def serve(arm: str) -> None:
    """Open the run named in the first line of standard input, then print the figures of one iteration per line."""
    from workload import open_lab

    from agents import heap
    from agents.engines import in_process
    from arena.config.layers import compose
    from arena.config.sources import recipe_layer, set_layer

    if arm != "as it is":
        setattr(in_process, "trim_holes", heap.trim_memory if arm == "always" else lambda: None)  # noqa: B010
    print(json.dumps({"ready": arm}), flush=True)
    rounds, settings = RUNS[json.loads(sys.stdin.readline())]
    layers = [*settings, f"iterations={rounds + 1}", f"checkpoint.every={rounds + 1}"]
    with open_lab(compose([recipe_layer("negotiation"), *map(set_layer, layers)])) as lab:
        learn, figures = lab.learn, dict[str, float]()

        async def measure_phase(*arguments: Any) -> Any:
            with measure_block() as learning:
                result = await learn(*arguments)
            figures.update(learning)
            return result

        lab.learn = measure_phase  # type: ignore[method-assign, assignment]
        wait(lab.imitate())
        for k in range(1, rounds + 2):
            with measure_block() as total:
                wait(lab.iterate(k))
            iteration = {f"iteration_{name}": total[name] for name in ("seconds", "cpu", "page_faults")}
            print(json.dumps({**figures, **iteration, "peak_gb": total["peak_gb"]}), flush=True)
            sys.stdin.readline()


def compare_arms(workload: str, rounds: int) -> dict[str, Any]:
    """Return all arms' figures, medians and peak memory, and their times relative to the arm `never`."""
    steps: dict[str, list[dict[str, float]]] = {arm: [] for arm in ARMS}
    with start_arms({arm: {"arm": arm, "script": Path(__file__).name} for arm in ARMS}) as processes:
        for _ in range(1 + rounds):
            for arm, process in processes.items():
                steps[arm].append(process.run_step(workload))
    # Iterations whose matches all ended alike have no learning signal, and so no learning time to compare.
    learned = [k for k in range(1, 1 + rounds) if min(steps[arm][k]["cpu"] for arm in ARMS) > 0.5]
    medians = {arm: {name: median(s[k][name] for k in learned) for name in s[0]} for arm, s in steps.items()}
    relative = {
        name: {arm: median(steps[arm][k][name] / steps["never"][k][name] for k in learned) for arm in ARMS}
        for name in ("seconds", "cpu", "iteration_seconds", "iteration_cpu")
    }
    peaks = {arm: max(step["peak_gb"] for step in figures) for arm, figures in steps.items()}
    return {"rounds": steps, "learned": learned, "median": medians, "of never": relative, "peak_gb": peaks}


def main() -> None:
    """Measure all workloads and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--serve", choices=ARMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve)
    from arena.doctor import describe_environment

    result: dict[str, Any] = {"command": format_command()}
    result |= {"machine": describe_environment(), "seed": 0, "load_at_start": os.getloadavg()}
    for workload, (rounds, _) in list(RUNS.items())[:1] if options.quick else RUNS.items():
        result[workload] = compare_arms(workload, 1 if options.quick else rounds)
        print(workload, json.dumps({k: result[workload][k] for k in ("of never", "peak_gb")}), file=sys.stderr)
    worst = max(result[workload]["of never"]["cpu"]["as it is"] for workload in RUNS if workload in result)
    peak = result.get("flagship, adapter", {}).get("peak_gb", {}).get("as it is", 0.0)
    result["verdict"] = {
        "slower": {"worst": worst, "target": SLOWER, "met": worst <= SLOWER},
        "flagship_peak_gb": {"worst": peak, "target": PEAK_GB, "met": peak <= PEAK_GB},
    }
    result["load_at_end"] = os.getloadavg()
    write_result("learn-in-run", result, options.quick)
    print(json.dumps(result["verdict"], indent=1))


if __name__ == "__main__":
    main()
