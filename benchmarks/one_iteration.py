"""Two iterations of a recipe in a fresh process: where the time goes, and the most memory held. Prints JSON.

python benchmarks/one_iteration.py --model nano
"""

import argparse
import json
import resource
import sys
from typing import Any

import torch
from timing import Clock, seconds_of
from workload import experiment_for, open_lab, trainer_of

from agents.engines.decoding import Decoder
from arena.cli.loop import wait
from arena.lab import Lab

WHAT = (
    "decode and score: the engine's calls, whole (caches, sampling, log-probabilities); play_forward: the model's "
    "forward with its masks, within decode; forward, backward, step: the DeepSpeed engine's; commit: sealing the log "
    "and writing metrics, with a checkpoint (fsync, hashes) where `checkpoint` is true. Timers synchronise the device"
)


def put_timers(lab: Lab, clock: Clock) -> None:
    """Around every phase of an iteration, and around everything that is model work."""
    for phase in ("iterate", "play", "credit", "learn", "publish", "commit"):
        clock.put_around(lab, phase, phase)
    clock.put_around(lab.engine, "_decode", "decode")
    clock.put_around(lab.engine, "score", "score")
    clock.put_around(Decoder, "_pass", "play_forward")
    for name in lab.trainers:
        for call in ("forward", "backward", "step"):
            clock.put_around(trainer_of(lab, name).optimiser.engine, call, call)


def shares(seconds: dict[str, float]) -> dict[str, float]:
    """Parts of an iteration, 0 to 1. Without commit unless the name says so."""
    whole = seconds["iterate"] - seconds["commit"]
    passes = seconds["score"] + seconds["forward"] + seconds["backward"]
    model = seconds["decode"] + passes + seconds["step"]
    return {
        "play_outside_engine": 1 - seconds["decode"] / seconds["play"],
        "play_outside_model_forward": 1 - seconds["play_forward"] / seconds["play"],
        "learn_outside_model": 1 - (passes + seconds["step"]) / seconds["learn"],
        "iteration_outside_model": 1 - model / whole,
        "iteration_outside_forward_and_backward": 1 - (seconds["play_forward"] + passes) / whole,
        "iteration_outside_model_with_commit": 1 - model / seconds["iterate"],
        "commit_of_iteration": seconds["commit"] / seconds["iterate"],
    }


def peak_memory() -> dict[str, float]:
    """Most held so far by this process, in GB (10^9 bytes)."""
    unit = 1 if sys.platform == "darwin" else 1024
    found = {"rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9}
    if torch.cuda.is_available():
        found["cuda_allocated_gb"] = torch.cuda.max_memory_allocated() / 1e9
        found["cuda_reserved_gb"] = torch.cuda.max_memory_reserved() / 1e9
    return found


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    experiment, clock = experiment_for(options.model, options.quick), Clock()
    iterations: list[dict[str, Any]] = []
    memory: dict[str, dict[str, float]] = {}
    with open_lab(experiment) as lab:
        memory["loaded"] = peak_memory()
        warm_up, _ = seconds_of(lambda: wait(lab.imitate()))
        put_timers(lab, clock)
        for k in range(1, experiment.iterations + 1):
            row = wait(lab.iterate(k))
            seconds = clock.take()
            counts = {name: row[name] for name in ("matches", "turns", "tokens", "valid_rate")}
            checkpoint = k % experiment.checkpoint.every == 0
            part = {"iteration": k, "checkpoint": checkpoint, **counts, "seconds": seconds, "shares": shares(seconds)}
            iterations.append(part)
            memory[f"after iteration {k}"] = peak_memory()
    found = {"what": WHAT, "seed": experiment.seed, "imitate_seconds": warm_up, "iterations": iterations}
    print(json.dumps(found | {"peak_memory": memory}))


if __name__ == "__main__":
    main()
