"""Does the event loop stay awake while a model plays and learns? Beats that a live view would draw with.

    python benchmarks/heartbeat.py           # SmolLM2, two iterations of the recipe negotiation
    python benchmarks/heartbeat.py --quick   # nano, seconds

A task beside the run sleeps for 5 ms again and again and notes how late it was woken. Writes results/heartbeat.json:
the delays in milliseconds as quantiles, and the share under 50 ms, by phase of the iteration.
"""

import argparse
import asyncio
import json
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose, to_yaml
from arena.config.sources import recipe_layer, set_layer
from arena.doctor import environment
from arena.lab import Lab
from arena.preflight import fitted
from arena.store.run import RunFolder

RESULTS = Path(__file__).parent / "results"
EVERY, LATE = 0.005, 0.05
"""Seconds."""


class Phases:
    """A watcher that knows what the run is doing."""

    def __init__(self) -> None:
        self.now = "open"

    def phase(self, iteration: int, name: str) -> None:
        """The run now does this."""
        self.now = name.partition(" ")[0]

    def __getattr__(self, name: str) -> Any:
        return lambda *news: None


async def beating(watcher: Phases, delays: dict[str, list[float]]) -> None:
    """Notes, until it is cancelled, how much later than asked the loop came back."""
    while True:
        started = perf_counter()
        await asyncio.sleep(EVERY)
        delays[watcher.now].append(perf_counter() - started - EVERY)


async def measured(experiment: Experiment, run: RunFolder) -> dict[str, list[float]]:
    """The delays of a whole run, by phase."""
    watcher, delays = Phases(), defaultdict[str, list[float]](list)
    heart = asyncio.create_task(beating(watcher, delays))
    lab = await Lab.open(run, experiment, watcher)
    try:
        await lab.run()
    finally:
        heart.cancel()
        await lab.close()
    return delays


def figures_of(delays: list[float]) -> dict[str, float]:
    """Quantiles in milliseconds, and the share that was on time."""
    found = np.array(delays) * 1e3
    quantiles = {f"p{q:g}": float(np.percentile(found, q)) for q in (50, 99, 99.9, 100)}
    return {"beats": len(found), **quantiles, "under_50_ms": float((found < LATE * 1e3).mean())}


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    recipe = "negotiation-nano" if quick else "negotiation"
    small = ["iterations=2", "checkpoint.every=1", "evaluate=null", *(["play.matches=16"] if quick else [])]
    experiment = fitted(compose([recipe_layer(recipe), *map(set_layer, small)]))
    with TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run", to_yaml(experiment), {})
        delays = wait(measured(experiment, run))
    everything = [delay for own in delays.values() for delay in own]
    found = {"all": figures_of(everything)} | {phase: figures_of(own) for phase, own in delays.items()}
    for phase, row in found.items():
        print(f"{phase:>8}: " + ", ".join(f"{name} {value:.4g}" for name, value in row.items()))
    if not quick:
        command = "python benchmarks/heartbeat.py"
        about = {"command": command, "recipe": recipe, "environment": environment(), "delays_ms": found}
        (RESULTS / "heartbeat.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
