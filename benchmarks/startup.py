"""Time that a user waits: short commands from start to end, and a run from its start to its first finished match.

    python benchmarks/startup.py                  # medians of fresh processes, files cached
    python benchmarks/startup.py --before PATH    # beside another checkout, which takes turns with this one
    python benchmarks/startup.py --quick          # each once: does it still work?

Writes results/startup.json (`startup-quick.json` likewise).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from arena.doctor import describe_environment

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SHORT = (
    *("--version", "--help", "run selfplay --help", "eval --help"),
    *("list games", "list roles", "list policies", "list estimators", "list losses", "list recipes", "models"),
)
RUN = (
    "run selfplay --game negotiation --set policies.shared.imitate=null --set play.matches=8 --set evaluate=null "
    "--iterations 1"
)
Spent = dict[str, float]


def whole(words: str, checkout: Path) -> Spent:
    """Wall and CPU seconds of a command, from the start of its process to the end."""
    begun = time.perf_counter()
    process = _started(words, checkout)
    used = os.wait4(process.pid, 0)[2]
    wall = time.perf_counter() - begun
    return {"wall": wall, "cpu": used.ru_utime + used.ru_stime}


def first_match(words: str, checkout: Path) -> Spent:
    """The same of a run until its first finished match is on the disk; `checked` is the wall time until it begins.

    What is looked at every 10 ms is the run's folder: config.yaml is there when the experiment is checked, a line in
    log/0001.jsonl when a match is over. Then the process is killed.
    """
    with TemporaryDirectory() as folder:
        out, begun = Path(folder) / "run", time.perf_counter()
        process = _started(f"{words} --out {out}", checkout)
        try:
            checked = _until(lambda: (out / "config.yaml").exists(), process) - begun
            log = out / "log" / "0001.jsonl"
            wall = _until(lambda: log.exists() and log.stat().st_size > 0, process) - begun
        finally:
            process.kill()
            used = os.wait4(process.pid, 0)[2]
    return {"checked": checked, "wall": wall, "cpu": used.ru_utime + used.ru_stime}


def _started(words: str, checkout: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "arena", *words.split()]  # found in the current folder before anywhere else
    return subprocess.Popen(command, cwd=checkout, stdout=subprocess.DEVNULL)


def _until(so: Callable[[], bool], process: "subprocess.Popen[bytes]") -> float:
    """Wait, and return the time when it became so; SystemExit if the process ends before."""
    while not so():
        if process.poll() is not None:
            raise SystemExit("arena run ended before its first match")
        time.sleep(0.01)
    return time.perf_counter()


def measured(
    measure: Callable[[str, Path], Spent], words: str, checkouts: dict[str, Path], rounds: int
) -> dict[str, Any]:
    """Medians of so many rounds, in which the checkouts take turns, after one that only fills the caches."""
    found: dict[str, list[Spent]] = {name: [] for name in checkouts}
    for _ in range(1 + rounds):
        for name, checkout in checkouts.items():
            found[name].append(measure(words, checkout))
    return {
        name: {part: median(one[part] for one in spent[1:]) for part in spent[0]} | {"rounds": spent[1:]}
        for name, spent in found.items()
    }


def main() -> None:
    """Measure everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="another checkout of Arena")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    checkouts = {"before": options.before.resolve()} if options.before else {}
    checkouts["now"] = HERE.parent
    result: dict[str, Any] = {"command": " ".join(["python", "benchmarks/startup.py", *sys.argv[1:]])}
    result |= {"machine": describe_environment(), "load_at_start": os.getloadavg()}
    result["short"] = {words: measured(whole, words, checkouts, 1 if options.quick else 5) for words in SHORT}
    result["first_match"] = {"what": " ".join((first_match.__doc__ or "").split()), "words": RUN}
    result["first_match"] |= measured(first_match, RUN, checkouts, 1 if options.quick else 3)
    result["load_at_end"] = os.getloadavg()
    RESULTS.mkdir(exist_ok=True)
    name = "startup-quick.json" if options.quick else "startup.json"
    (RESULTS / name).write_text(json.dumps(result, indent=1) + "\n")
    for words, found in [*result["short"].items(), ("first match", result["first_match"])]:
        told = [f"{c}: wall {found[c]['wall']:.2f} s, cpu {found[c]['cpu']:.2f} s" for c in checkouts]
        print(f"{words:22}", "   ".join(told))


if __name__ == "__main__":
    main()
