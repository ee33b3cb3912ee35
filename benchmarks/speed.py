"""Speed of Arena, each figure beside a bare transformers program doing the same work in the same process.

    python benchmarks/speed.py                  # SmolLM2, on the GPU if there is one; minutes
    python benchmarks/speed.py --model nano     # the same for the tiny policy
    python benchmarks/speed.py --quick          # one round of everything, small: does it still work?

Writes results/speed-cpu.json or results/speed-cuda.json (`speed-cpu-nano.json`, `…-quick.json` likewise).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from comparisons import decoding, playing, size_for, training
from peers import BareGenerate, BareTraining
from workload import device_of, experiment_for, open_lab, play, samples_from

from agents.weights import DEFAULT, load_model
from arena.cli.loop import wait
from arena.doctor import environment

HERE = Path(__file__).parent
RESULTS = HERE / "results"
TARGETS = {"play": 0.8, "train": 0.9}


# -- 1 and 4: where an iteration's time goes, peak memory -------------------------------------------------


def whole_iterations(model: str, quick: bool) -> dict[str, Any]:
    """Two iterations of the recipe in a process of their own; see one_iteration.py."""
    command = [sys.executable, str(HERE / "one_iteration.py"), "--model", model, *(["--quick"] if quick else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"command": " ".join(["python", "benchmarks/one_iteration.py", *command[2:]])}


# -- 2 and 3: against bare transformers, and the whole ----------------------------------------------------


def in_process(model: str, quick: bool) -> dict[str, Any]:
    """Figures 2 and 3: one lab, and beside it a peer with weights of its own."""
    size, experiment = size_for(quick), experiment_for(model, quick)
    with open_lab(experiment) as lab:
        wait(lab.imitate())
        device, folder = device_of(lab), next(iter(lab.policies.values())).source
        bf16 = lab.experiment.settled_precision.bf16_products
        peer = load_model(folder).to(device)
        bare = {"bare, autocast" if bf16 else "bare": BareGenerate(peer, autocast=bf16)}
        if bf16:
            bare["bare, bf16 weights"] = BareGenerate(load_model(folder, torch.bfloat16).to(device), autocast=False)
        play(lab, 0)  # unmeasured: kernels are chosen and memory is taken
        for one in bare.values():
            one([[5, 6, 7]] * size.rows, 2)
        played_figures, played = playing(lab, bare, size.rounds)
        found = {"play": played_figures, "decode": decoding(lab, bare, size)}
        samples = samples_from(lab, size.rounds, played)
        bare_training = BareTraining(peer, lab.experiment.learn, lab.policies.precision.bf16_products)
        precision = lab.experiment.precision
        found["train"] = training(lab, bare_training, samples, size.rounds)
    threads = torch.get_num_threads()
    return found | {"seed": experiment.seed, "precision": precision, "threads": threads}


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """The worst ratio of ours as it is to any peer, against the target."""
    found = {}
    for name, target in TARGETS.items():
        worst = min(r["median"] for pair, r in result[name]["ratio"].items() if pair.startswith("ours / "))
        found[name] = {"worst_ratio": worst, "target": target, "met": worst >= target}
    return found


def table(result: dict[str, Any]) -> str:
    """The figures worth a glance."""
    lines = []
    for part in result["iteration"]["iterations"]:
        named = ("iterate", "play", "learn", "commit")
        lines.append(
            f"iteration {part['iteration']}     " + "  ".join(f"{n} {part['seconds'][n]:.2f} s" for n in named)
        )
        lines += [f"    {name} {100 * share:.1f} %" for name, share in part["shares"].items()]
    lines += [f"memory          {when}: {most}" for when, most in result["iteration"]["peak_memory"].items()]
    compared = {"play": result["play"], "decode": result["decode"]["whole"], "train": result["train"]}
    for name, figures in compared.items():
        lines.append(f"{name}, tokens/s")
        lines += [f"    {arm:32} {rate['median']:.0f}" for arm, rate in figures["tokens_per_second"].items()]
        lines += [f"    {pair:52} {ratio['median']:.2f}" for pair, ratio in figures["ratio"].items()]
    return "\n".join([*lines, f"verdict         {json.dumps(result['verdict'])}"])


def main() -> None:
    """Measure everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    model, quick, begun = options.model, options.quick, time.perf_counter()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    result: dict[str, Any] = {"command": " ".join(["python", "benchmarks/speed.py", *sys.argv[1:]])}
    result |= {"machine": environment(), "load_at_start": os.getloadavg(), "model": model, "device": device}
    result["iteration"] = whole_iterations(model, quick)
    result |= in_process(model, quick)
    result |= {"verdict": verdict(result), "load_at_end": os.getloadavg(), "seconds": time.perf_counter() - begun}
    parts = ["speed", device, *([] if model == DEFAULT else [Path(model).name]), *(["quick"] if quick else [])]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{'-'.join(parts)}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


if __name__ == "__main__":
    main()
