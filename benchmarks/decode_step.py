"""Milliseconds of a decoding step of our engine, by rows, with and without an adapter.

    python benchmarks/decode_step.py                     # three minutes on two quiet cores
    python benchmarks/decode_step.py --before CHECKOUT   # an older checkout of ours takes its turns too
    python benchmarks/decode_step.py --quick             # one small round: does it still work?

SmolLM2-135M in what is fastest here, bfloat16 or float32. Rows go on from contexts of 200 random tokens, the last eight
their own, which are in the engine's cache when a round begins, for 40 tokens; a step is a fortieth of that: forward
pass, sampling, and a finished row's copy. Checkouts are processes of their own and take turns. Writes
results/decode-step.json, on a GPU decode-step-nvidia-h100.json or as it is called.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from neighbour import THEIRS, Line, Neighbour, Stopwatch

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
ROWS = (1, 8, 32, 64, 128)
POLICIES = ("base", "adapter")
SHARED, OWN, STEPS = 192, 8, 40


def serve() -> None:
    """Answer how long steps take, in the checkout that comes first on the path."""
    line = Line()

    import arena  # noqa: F401  before torch is loaded: it says how OpenMP waits

    # isort: split
    import numpy as np
    from workload import requests_for

    from agents.adapter import adapted
    from agents.adapter_config import AdapterSpec
    from agents.engines.in_process import InProcessEngine
    from agents.policy import Bases, OnBase
    from agents.precision import Precision
    from agents.published import FolderWeights, ModuleWeights
    from agents.weights import DEFAULT, resolve
    from arena.cli.loop import wait
    from arena.learn.machine import find_fastest_precision

    precision, folder = Precision(find_fastest_precision()), resolve(DEFAULT)
    engine, base = InProcessEngine(precision), Bases(precision)(folder)
    wait(engine.publish("base", 0, FolderWeights(folder)))
    one = OnBase(adapted(base, AdapterSpec(), 0), base, folder, DEFAULT)
    wait(engine.publish("adapter", 0, ModuleWeights(one)))
    line.hear()
    line.say(precision=precision.value)
    while (asked := line.hear()) is not None:
        rng = np.random.default_rng(asked["round"])
        opening = rng.integers(10, 500, SHARED).tolist()
        contexts = [(*opening, *rng.integers(10, 500, OWN).tolist()) for _ in range(asked["rows"])]
        first, more = (requests_for(contexts, tokens, "row", asked["policy"]) for tokens in (1, asked["steps"]))
        wait(engine.generate(first))
        watch = Stopwatch()
        wait(engine.generate(more))
        line.say(milliseconds=watch.read()["seconds"] / asked["steps"] * 1e3)
        for request in more:
            engine.forget(request.key)


def measure(checkouts: dict[str, Path], rounds: int, quick: bool) -> dict[str, Any]:
    """Milliseconds a step by policy, rows and checkout, which take turns; the first round is not measured."""
    found: dict[str, Any] = {}
    with ExitStack() as open_ones:
        peers = {}
        for name, root in checkouts.items():
            path = os.pathsep.join([str(root), *filter(None, [THEIRS.get("PYTHONPATH")])])
            command = [sys.executable, __file__, "--serve"]
            peers[name] = open_ones.enter_context(Neighbour(command, THEIRS | {"PYTHONPATH": path}))
        found["precision"] = {name: peer.ask()["precision"] for name, peer in peers.items()}
        for policy in POLICIES:
            for rows in ROWS[:2] if quick else ROWS:
                told: dict[str, list[float]] = {name: [] for name in peers}
                for number in range(rounds + 1):
                    for name, peer in peers.items():
                        asked = {"policy": policy, "rows": rows, "round": number, "steps": 4 if quick else STEPS}
                        told[name].append(peer.ask(**asked)["milliseconds"])
                kept = {name: each[1:] for name, each in told.items()}
                own = {name: {"median": median(each), "rounds": each} for name, each in kept.items()}
                found.setdefault(policy, {})[str(rows)] = own
    return found


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The figures worth a glance."""
    for policy in POLICIES:
        for rows, own in found[policy].items():
            told = "   ".join(f"{name} {each['median']:6.1f} ms" for name, each in own.items())
            yield f"{policy:8} {rows:>4} rows   {told}"


def main() -> None:
    """Measure, or be a checkout's process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="an older checkout")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    if options.before and not (options.before / "agents" / "engines").is_dir():
        parser.error(f"--before {options.before}: no checkout of Arena lies there")  # the installed one would be taken
    from timing import file_name

    from arena.doctor import environment

    checkouts = {"before": options.before.resolve()} if options.before else {}
    words = ["python", "benchmarks/decode_step.py", *["--before CHECKOUT"] * bool(options.before)]
    result: dict[str, Any] = {"command": " ".join(words), "machine": environment(), "load_at_start": os.getloadavg()}
    result |= measure(checkouts | {"now": HERE.parent}, 1 if options.quick else options.rounds, options.quick)
    result["machine"].pop("command", None)
    result["load_at_end"] = os.getloadavg()
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / file_name("decode-step", options.quick)).write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(lines(result)))


if __name__ == "__main__":
    main()
