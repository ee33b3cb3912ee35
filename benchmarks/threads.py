"""Waiting of OpenMP's threads: decoding and training on two cores, quiet and beside one busy process.

    python benchmarks/threads.py            # a quarter of an hour; leave the machine alone meanwhile
    python benchmarks/threads.py --quick    # few tokens, three ways: does it still work?

torch's threads meet at a barrier after every parallel loop, hundreds of times a token. Waiting there by spinning is
the fastest as long as every thread has a core of its own; where another process wants one too, threads spin for one
that is not running. Each way is measured in a fresh process with environment variables of its own (libgomp reads them
once, as torch is loaded), held to two cores, quiet and busy in turns. The busy process counts, in Python, on the same
two cores: with three at work on two cores, two thirds of the quiet speed is what a fair scheduler could leave.

Writes results/threads.json.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from neighbour import THEIRS, Neighbour

from arena.doctor import environment

HERE = Path(__file__).parent
RESULTS = HERE / "results"
GOAL = 0.5
"""Goal, as a share of the quiet speed, beside a busy process."""
OURS = "as Arena sets it"
WAYS: dict[str, dict[str, str]] = {
    OURS: {},
    "libgomp's own (300,000)": {"GOMP_SPINCOUNT": "300000"},
    "passive (0)": {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"},
    "1,000": {"GOMP_SPINCOUNT": "1000"},
    "10,000": {"GOMP_SPINCOUNT": "10000"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
"""Environment variables that are set; the count says how often a thread looks before it sleeps. libgomp's own
values are those of its manual, said outright, since Arena sets what nobody has set."""
QUICK = (OURS, "libgomp's own (300,000)", "one thread")
SET = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS")


def environ_for(way: str) -> dict[str, str]:
    """The user's environment with nothing but this said of threads."""
    return {n: v for n, v in THEIRS.items() if n not in SET} | {"OMP_NUM_THREADS": "2"} | WAYS[way]


@contextmanager
def busy(wanted: bool) -> Iterator[None]:
    """One more process that never rests, if wanted."""
    if not wanted:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def measure(way: str, tokens: int, rounds: int) -> dict[str, Any]:
    """One way: every figure of every round, quiet and busy."""
    figures: dict[str, list[dict[str, float]]] = {"quiet": [], "busy": []}
    with Neighbour([sys.executable, HERE / "threads_peer.py"], environ_for(way)) as peer:
        ready = peer.ask(tokens=tokens)
        for _ in range(rounds):
            for condition, each in figures.items():
                with busy(condition == "busy"):
                    each.append(peer.ask())
    medians = {c: {name: median(one[name] for one in each) for name in each[0]} for c, each in figures.items()}
    return {"set": WAYS[way], **ready, "rounds": figures, **medians, "of_quiet": _speeds(medians)}


def _speeds(medians: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Speed beside the busy process, of the speed without."""
    quiet, busied = medians["quiet"], medians["busy"]
    return {name: quiet[name] / busied[name] if name.endswith(", s") else busied[name] / quiet[name] for name in quiet}


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The table, and the verdict on what Arena sets."""
    names = list(next(iter(result["ways"].values()))["quiet"])
    yield f"{'quiet → busy':26}" + "".join(f"{name:>30}" for name in names)
    for way, found in result["ways"].items():
        cells = [f"{found['quiet'][n]:.2f} → {found['busy'][n]:.2f} ({found['of_quiet'][n]:.2f})" for n in names]
        yield f"{way:26}" + "".join(f"{cell:>30}" for cell in cells)
    verdict = result["verdict"]
    yield (
        f"beside a busy process at least {GOAL} of the quiet speed    {verdict['least']:.2f} ({verdict['of']})    "
        f"{'met' if verdict['met'] else 'NOT met'}"
    )


def main() -> None:
    """Measure every way and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    began, cores = time.perf_counter(), sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, cores)  # children inherit it
    result: dict[str, Any] = {"command": " ".join(["python", "benchmarks/threads.py", *sys.argv[1:]])}
    result |= {"machine": environment(), "load_at_start": os.getloadavg(), "cores": cores, "seed": 0, "ways": {}}
    tokens, rounds = (4, 1) if options.quick else (24, options.rounds)
    for way in QUICK if options.quick else WAYS:
        result["ways"][way] = measure(way, tokens, rounds)
    speeds = result["ways"][OURS]["of_quiet"]
    of = min(speeds, key=lambda name: speeds[name])
    result["verdict"] = {"least": speeds[of], "of": of, "goal": GOAL, "met": speeds[of] >= GOAL}
    result |= {"load_at_end": os.getloadavg(), "seconds in all": time.perf_counter() - began}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"threads{'-quick' if options.quick else ''}.json").write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(lines(result)))


if __name__ == "__main__":
    main()
