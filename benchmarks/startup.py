"""Time that a user waits for short commands, and for the first finished match of a run.

    python benchmarks/startup.py           # medians of new processes, files cached
    python benchmarks/startup.py --quick   # each once: does it still work?

Writes results/startup.json (`startup-quick.json` likewise).
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from reporting import format_command, write_result

from arena.doctor import describe_environment

HERE = Path(__file__).parent
SHORT = (
    *("--version", "--help", "run selfplay --help", "eval --help"),
    *("list games", "list roles", "list policies", "list estimators", "list losses", "list recipes", "list models"),
)
RUN = (
    "run selfplay --game negotiation --set policies.shared.imitate=null --set play.matches=8 --set evaluate=null "
    "--iterations 1"
)
Spent = dict[str, float]


def measure_command(words: str) -> Spent:
    """Run a command and return its wall and CPU seconds, from the start of its process to the end.

    Raises SystemExit if the command fails.
    """
    start = time.perf_counter()
    process = _start(words)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    if status:
        raise SystemExit(f"arena {words} failed")
    return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime}


def measure_first_match(words: str) -> Spent:
    """Return the wall and CPU seconds of a run until its first finished match is on the disk.

    `checked` is the wall time until the experiment is checked. The run's folder is polled every 10 ms: config.yaml
    appears when the experiment is checked, and a line in log/0001.jsonl when a match has ended. Then the process is
    killed.
    """
    with TemporaryDirectory() as folder:
        out, start = Path(folder) / "run", time.perf_counter()
        process = _start(f"{words} --out {out}")
        try:
            checked = _wait_until(lambda: (out / "config.yaml").exists(), process) - start
            log = out / "log" / "0001.jsonl"
            wall = _wait_until(lambda: log.exists() and log.stat().st_size > 0, process) - start
        finally:
            process.kill()
            usage = os.wait4(process.pid, 0)[2]
    return {"checked": checked, "wall": wall, "cpu": usage.ru_utime + usage.ru_stime}


def _start(words: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "arena", *words.split()]  # the current folder comes first on the path
    return subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.DEVNULL)


def _wait_until(condition: Callable[[], bool], process: "subprocess.Popen[bytes]") -> float:
    """Wait for the condition and return the time. Raises SystemExit if the process ends earlier."""
    while not condition():
        if process.poll() is not None:
            raise SystemExit("the run ended before its first match")
        time.sleep(0.01)
    return time.perf_counter()


def repeat(measure: Callable[[str], Spent], words: str, rounds: int) -> dict[str, Any]:
    """Measure a command repeatedly and return the medians after a round that fills caches."""
    times = [measure(words) for _ in range(1 + rounds)][1:]
    return {unit: median(each[unit] for each in times) for unit in times[0]} | {"rounds": times}


def main() -> None:
    """Measure all commands and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    result: dict[str, Any] = {"command": format_command()}
    result |= {"machine": describe_environment(), "load_at_start": os.getloadavg()}
    result["short"] = {words: repeat(measure_command, words, 1 if options.quick else 5) for words in SHORT}
    result["first_match"] = {"what": " ".join((measure_first_match.__doc__ or "").split()), "words": RUN}
    result["first_match"] |= repeat(measure_first_match, RUN, 1 if options.quick else 3)
    result["load_at_end"] = os.getloadavg()
    write_result("startup", result, options.quick)
    for words, found in [*result["short"].items(), ("first match", result["first_match"])]:
        print(f"{words:22} wall {found['wall']:.2f} s, cpu {found['cpu']:.2f} s")


if __name__ == "__main__":
    main()
