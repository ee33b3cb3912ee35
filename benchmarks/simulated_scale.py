"""Simulation of a run of a 7B model on 8 to 512 engines, and a check of the simulation against real runs of nano.

    python benchmarks/simulated_scale.py             # ten minutes of a quiet machine: real runs, then the simulation
    python benchmarks/simulated_scale.py --engines   # only the real runs with engine processes
    python benchmarks/simulated_scale.py --again     # only the simulation, with the saved real runs
    python benchmarks/simulated_scale.py --redraw    # only the picture of the saved results

Real runs are `arena run selfplay --recipe negotiation-nano` with few and many matches in flight: in one process,
measured in CPU time, and with one and two engine processes on Ray, measured in wall time. Of each kind, two runs
calibrate the model's times (a decoding step, the driver's share of a turn). The model then predicts the others from
their real turns and tokens. Writes results/simulated_scale.json and .png. Nothing larger than nano ran.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scale_model import Simulation, Turn, World, compute_figures
from scipy.optimize import minimize

from analysis.panels import add_legend, make_sheet
from arena.doctor import describe_environment
from arena.process import count_cores
from arena.store.plots import assign_colours, encode_png
from arena.store.reader import RunReader

RESULTS = Path(__file__).parent / "results"
NAME = "simulated_scale"
SKIPPED = 1
"""Number of warm-up iterations of real runs, which are left out."""
REAL = {
    "4 in flight": ["play.matches=32", "play.in_flight=4"],
    "64 in flight": ["play.matches=64", "play.in_flight=64"],
    "8 in flight": ["play.matches=64", "play.in_flight=8"],
    "32 in flight": ["play.matches=96", "play.in_flight=32"],
}
CALIBRATING = ("4 in flight", "64 in flight")
"""Real runs that calibrate the model's times; the others are predicted."""
ENGINES = {
    "1 engine, 4 in flight": ["scale.engines=1", "play.matches=32", "play.in_flight=4"],
    "1 engine, 64 in flight": ["scale.engines=1", "play.matches=64", "play.in_flight=64"],
    "2 engines, 4 in flight": ["scale.engines=2", "play.matches=32", "play.in_flight=4"],
    "2 engines, 16 in flight": ["scale.engines=2", "play.matches=64", "play.in_flight=16"],
    "2 engines, 64 in flight": ["scale.engines=2", "play.matches=128", "play.in_flight=64"],
}
CALIBRATING_ENGINES = ("1 engine, 4 in flight", "1 engine, 64 in flight")
"""Runs with engine processes that calibrate the model's times."""
SHORT = [
    *("threads=1", "iterations=4", "evaluate=null", "play.limits.turns=12"),
    *("policies.shared.imitate.matches=48", "policies.shared.imitate.minibatches=6"),
]

SOURCES = {
    "step": "Llama 3.1 8B in bf16 on one H100: 6.48 ms a token alone (InferenceBench, yobitelcomm.github.io/bench, "
    "vLLM 0.21), 8,088 tokens/s with 256 rows (LambdaLabsML/vllm-benchmark, benchmark_v0.md, vLLM 0.6.0); a line "
    "through both",
    "learn": "MPT-7B in bf16, fully sharded, 8 H100, 2,048 tokens a sequence: 10,643 tokens/s and GPU "
    "(mosaicml/llm-foundry, scripts/train/benchmarking/README.md)",
    "driver": "benchmarks/results/throughput.json: ms_a_turn outside of the model, desk (clinic: 0.35)",
    "load": "7B are 13.3 GB in bfloat16, which rank 0 broadcasts to all engines in buckets; they stand still then. "
    "0.5 GB/s by gloo: the fastest of four publishes of SmolLM2 (0.27 GB) in benchmarks/results/publish.json; by NCCL "
    "a network of 100 Gbit/s is assumed, and nothing else to wait for",
}
STEP = (0.00638, 0.0000987)
DRIVER = 0.00170
LEARN = 10643.0
BYTES, GLOO, NCCL = 13.3, 0.5, 12.5
"""GB of weights, and GB per second of a broadcast by gloo and by NCCL."""
SIZES = (8, 16, 32, 64, 128, 256, 512)
ARMS: dict[str, dict[str, Any]] = {
    "in turns": {},
    "ahead 1": {"ahead": 1},
    "ahead 2": {"ahead": 2},
    "ahead 1, enough 0.95": {"ahead": 1, "enough": 0.95},
    "the same, 8 matches an engine": {"ahead": 1, "enough": 0.95, "each": 8},
    "the same, weights by NCCL": {"ahead": 1, "enough": 0.95, "each": 8, "rate": NCCL},
}
MATCHES, ITERATIONS = 1024, 9
PANELS = {
    "tokens_a_second": "tokens learned a second, thousands",
    "engines_idle": "engines idle",
    "ranks_idle": "ranks idle",
    "driver_busy": "driver busy",
    "staleness": "mean age of replies, versions",
    "seconds_an_iteration": "seconds an iteration",
}


BY_CPU = """
import sys, time
import agents.engines.in_process, arena.lab
arena.lab.perf_counter = agents.engines.in_process.perf_counter = time.process_time
from arena.cli.main import run_cli
raise SystemExit(run_cli())
"""
"""Program that runs `arena` but measures CPU time, so that other work on the machine does not count."""


def run_real(settings: list[str], alone: bool = True) -> dict[str, Any]:
    """Run nano with these settings. Returns the seconds of play and learning by iteration, and the tokens per turn.

    If `alone`, the run has one process and its seconds are CPU time.
    """
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        overrides = [part for setting in (*SHORT, *settings) for part in ("--set", setting)]
        program = ["-c", BY_CPU] if alone else ["-m", "arena"]
        command = [sys.executable, "-P", *program, "run", "selfplay", "--recipe", "negotiation-nano", *overrides]
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([*command, "--out", str(out)], env=environ, check=True, capture_output=True)
        reader = RunReader(out)
        rows = reader.metrics()[SKIPPED:]
        matches: dict[int, list[str]] = {row["iteration"]: [] for row in rows}
        for match in reader.matches(streams=False):
            if match["iteration"] in matches:
                matches[match["iteration"]].append(" ".join(str(turn["tokens"]) for turn in match["turns"]))
    names = ("play", "play_model", "learn")
    seconds = {name: [row["seconds"][name] for row in rows] for name in names}
    return {
        "settings": settings,
        "seconds": seconds,
        "tokens": [",".join(each) for each in matches.values()],
        "load": os.getloadavg()[0],
    }


def parse_matches(run: dict[str, Any]) -> list[list[list[Turn]]]:
    """Return a real run's matches by iteration, as lists of turns."""
    return [[[Turn(int(n)) for n in match.split()] for match in each.split(",")] for each in run["tokens"]]


def make_world(run: dict[str, Any], step: tuple[float, float], driver: float) -> tuple[World, list[list[list[Turn]]]]:
    """Return the model of a real run with these times, and the run's matches."""
    matches, settings = parse_matches(run), dict(each.split("=") for each in run["settings"])
    engines, in_flight = int(settings.get("scale.engines", 1)), int(settings["play.in_flight"])
    world = World(engines, 1, 0, in_flight, step, rows=10**6, driver=driver, learn=math.inf, iterations=len(matches))
    return world, matches


def simulate_play(run: dict[str, Any], step: tuple[float, float], driver: float) -> float:
    """Simulate a real run's matches and return the mean seconds of play per iteration."""
    world, played = make_world(run, step, driver)
    return Simulation(world, played).run()[-1]["end"] / len(played)


def check_model(runs: dict[str, dict[str, Any]], calibrated: Sequence[str]) -> dict[str, Any]:
    """Calibrate the model's times on the `calibrated` runs, and compare its predictions for all runs with the runs."""
    calibration = [runs[name] for name in calibrated]
    outside = [sum(run["seconds"]["play"]) - sum(run["seconds"]["play_model"]) for run in calibration]
    driver = sum(outside) / sum(
        len(match) for run in calibration for matches in parse_matches(run) for match in matches
    )
    measured = {name: sum(run["seconds"]["play"]) / len(run["seconds"]["play"]) for name, run in runs.items()}

    def compute_error(logs: Any) -> float:
        step = (math.exp(logs[0]), math.exp(logs[1]))
        return sum(math.log(simulate_play(runs[name], step, driver) / measured[name]) ** 2 for name in calibrated)

    found = minimize(compute_error, [math.log(0.003), math.log(0.0003)], method="Nelder-Mead", options={"maxiter": 80})
    step = (math.exp(found.x[0]), math.exp(found.x[1]))
    rows = {}
    for name, run in runs.items():
        predicted = simulate_play(run, step, driver)
        purpose = "for its times" if name in calibrated else "to check it"
        rows[name] = {
            "used": purpose,
            "seconds": measured[name],
            "simulated": predicted,
            "ratio": predicted / measured[name],
        }
    return {"step": step, "driver": driver, "play": rows}


def make_cluster(engines: int, each: int = 0, rate: float = GLOO, **rule: Any) -> World:
    """Return a model of a run of a 7B model with as many ranks as engines.

    `each` is the number of matches per engine (0: `MATCHES` in total). 30 % of the turns call a tool, for one second on
    average. Weights are broadcast at `rate` GB per second.
    """
    matches = each * engines or MATCHES
    return World(
        engines=engines, ranks=engines, matches=matches, in_flight=matches * (1 + rule.get("ahead", 0)), step=STEP,
        rows=256, driver=DRIVER, learn=LEARN, overhead=1.0, learned_ratio=2.0, load=BYTES / rate, tools=(0.3, 1.0),
        iterations=ITERATIONS, **rule,
    )  # fmt: skip


def simulate() -> dict[str, dict[str, dict[str, float]]]:
    """Return the figures of all arms by number of engines."""
    found: dict[str, dict[str, dict[str, float]]] = {arm: {} for arm in ARMS}
    pairs = [(arm, engines) for arm in ARMS for engines in SIZES]
    with ProcessPoolExecutor(count_cores()) as pool:
        worlds = [make_cluster(engines, **ARMS[arm]) for arm, engines in pairs]
        for (arm, engines), row in zip(pairs, pool.map(compute_figures, worlds), strict=True):
            found[arm][str(engines)] = row
            print(f"{arm}, {engines} engines:", {name: round(value, 3) for name, value in row.items()}, flush=True)
    return found


def draw(arms: dict[str, dict[str, dict[str, float]]]) -> Any:
    """Draw a panel per figure, with a curve per arm over the number of engines."""
    figure, axes = make_sheet(
        list(PANELS.values()), "Simulated: 7B on H100, as many ranks as engines", x_label="engines"
    )
    for axis, name in zip(axes, PANELS, strict=True):
        for arm, colour in assign_colours(arms).items():
            values = [arms[arm][str(size)][name] / (1000 if name == "tokens_a_second" else 1) for size in SIZES]
            axis.plot(SIZES, values, color=colour, label=arm, marker=".")
        axis.set_xscale("log", base=2)
        axis.set_xticks(SIZES, [str(size) for size in SIZES])
        axis.set_ylim(0, 1.02 if name.endswith(("idle", "busy")) else None)
    add_legend(figure, 44)
    return figure


def main() -> None:
    """Run the chosen parts and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true", help="only the simulation; keep the real runs")
    parser.add_argument("--engines", action="store_true", help="only the real runs with engine processes")
    parser.add_argument("--redraw", action="store_true", help="only the picture of the saved results")
    parser.add_argument("--quick", action="store_true", help="a small test that writes nothing")
    options = parser.parse_args()
    file = RESULTS / f"{NAME}.json"
    if options.quick:
        runs = {name: run_real([*REAL[name], "iterations=2", "play.matches=8"]) for name in CALIBRATING}
        print(json.dumps(check_model(runs, CALIBRATING)["play"], indent=1))
        print(compute_figures(make_cluster(8, each=4, ahead=1)))
        return
    result: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    if options.redraw:
        (RESULTS / f"{NAME}.png").write_bytes(encode_png(draw(result["simulated"])))
        return
    environment = describe_environment() | {"command": ["benchmarks/simulated_scale.py"]}
    if not (options.again or options.engines):
        result |= {"environment": environment, "real": {name: run_real(settings) for name, settings in REAL.items()}}
    if not options.again:
        on_ray = {name: run_real(settings, alone=False) for name, settings in ENGINES.items()}
        result["engines"] = {
            "environment": environment,
            "check": check_model(on_ray, CALIBRATING_ENGINES),
            "real": on_ray,
        }
        print(json.dumps(result["engines"]["check"], indent=1), flush=True)
    if not options.engines:
        result |= {"check": check_model(result["real"], CALIBRATING), "simulated": simulate()}
        times = {"step": STEP, "driver": DRIVER, "learn": LEARN, "gigabytes": BYTES}
        times |= {"gigabytes_a_second": {"gloo": GLOO, "nccl": NCCL}}
        result["assumed"] = {"sources": SOURCES, **times, "seed": 0}
        print(json.dumps(result["check"], indent=1), flush=True)
        (RESULTS / f"{NAME}.png").write_bytes(encode_png(draw(result["simulated"])))
    file.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
