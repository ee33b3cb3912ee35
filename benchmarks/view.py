"""Time and memory of `arena view` on a run of a million turns: first paint, single matches, other requests, a live run.

    PYTHONPATH=. python benchmarks/view.py    # some minutes on two cores; with Chromium, also the first paint

The run is that of `loading.py`: 100 iterations, the last of them open. The server is a separate process. `paint` is the
time from opening the address to Chromium's first paint, to the first curve, and to the list of matches, each with a new
server and a new window, and the CPU time of both sides. Matches are requested from random iterations, each for the
first time. `cpu_s` is the server's CPU time per answer, which, unlike `wall_s`, does not depend on the machine's other
load. Memory is the server's peak (VmHWM); requests that read much of a run (alarms, league) use a child process.
`follow_cpu` is the server's share of a core while a page follows an iteration that grows by 1,000 matches.
`few_iterations` are matches of a second run with ten iterations of 100,000 turns, which should cost no more. Writes
results/view.json.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import nullcontext, suppress
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from loading import ITERATIONS, SEED, TURNS, make_matches
from processes import read_status
from reporting import write_result

from arena.doctor import describe_environment
from arena.store.run import RunFolder

HERE = Path(__file__).parents[1]
TARGET = {"paint_s": 2.0, "match_s": 0.3, "server_mb": 500.0}
SERVE = "import sys; from pathlib import Path; from analysis.commands import view; view([Path(sys.argv[1])], 0, False)"
MATCHES, FEW, PAINTS = 20, 10, 3


class Server:
    """Server of `arena view` in a child process."""

    def __init__(self, run: Path) -> None:
        environ = {**os.environ, "PYTHONPATH": str(HERE)}
        self.child = subprocess.Popen(
            [sys.executable, "-P", "-c", SERVE, str(run)], env=environ, stdout=subprocess.PIPE
        )
        assert self.child.stdout is not None
        self.link = self.child.stdout.readline().decode().strip()
        self.base, _, self.token = self.link.partition("/#token=")

    def ask(self, path: str) -> tuple[tuple[float, float], Any]:
        """Send a request. Returns its wall seconds and the server's CPU seconds as a pair, and the answer."""
        request = urllib.request.Request(f"{self.base}/api/{path}", headers={"Authorization": f"Bearer {self.token}"})
        start, spent = time.perf_counter(), self.read_cpu()
        with urllib.request.urlopen(request) as answer:
            value = json.loads(answer.read())
        return (time.perf_counter() - start, self.read_cpu() - spent), value

    def read_cpu(self) -> float:
        """Return the server's CPU seconds so far."""
        times = psutil.Process(self.child.pid).cpu_times()
        return float(times.user + times.system)

    def read_peak_memory(self) -> float:
        """Return the server's peak memory in MB."""
        return read_status("VmHWM", self.child.pid) / 2**20


def measure_paint(run: Path) -> dict[str, list[dict[str, float]]]:
    """Return the times to the first paint and to the first curve or list on new pages, or {} without a browser.

    Each row also has the CPU seconds of the server and of the browser's processes.
    """
    try:
        from tests.factories.browser import open_chromium
    except ImportError:
        return {}
    found: dict[str, list[dict[str, float]]] = {}
    with open_chromium() as browser:
        for name, route, selector in (("curves", "", ".chart canvas"), ("list", "/matches", "table.matches tbody tr")):
            for _ in range(PAINTS):
                server = Server(run)
                try:
                    found.setdefault(name, []).append(
                        _measure_page(browser, server, f"{server.link}/run/run{route}", selector)
                    )
                finally:
                    server.child.terminate()
    return found


def _measure_page(browser: Any, server: Server, link: str, selector: str) -> dict[str, float]:
    view = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    view.set_default_timeout(120_000)
    server_cpu, browser_cpu, start = server.read_cpu(), read_browser_cpu(), time.perf_counter()
    view.goto(link)
    view.wait_for_selector(selector)
    wall = time.perf_counter() - start
    times = {
        "wall_s": wall,
        "server_cpu_s": server.read_cpu() - server_cpu,
        "browser_cpu_s": read_browser_cpu() - browser_cpu,
    }
    first = view.evaluate("performance.getEntriesByType('paint')[0].startTime / 1000")
    view.context.close()
    return {"first_paint_s": round(first, 3)} | {key: round(value, 3) for key, value in times.items()}


def read_browser_cpu() -> float:
    """Return the CPU seconds of all processes of the browser."""
    found = 0.0
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found += sum(child.cpu_times()[:2]) if "chrom" in child.name() else 0.0
    return found


def measure_answers(server: Server) -> dict[str, tuple[float, float]]:
    """Return the times of a page's requests, first without an index and then with everything indexed."""
    found = {name: server.ask(path)[0] for name, path in (("runs", "runs"), ("head", "runs/run"))}
    found["first_curves"], _ = server.ask("runs/run/curves")
    found["first_list"], _ = server.ask("runs/run/matches")
    found |= measure_matches(server, ITERATIONS, 1000)
    found["tokens"], _ = server.ask("runs/run/matches/0050-0007/tokens")
    start, cpu_start = time.perf_counter(), server.read_cpu()
    while server.ask("runs/run/matches?limit=1")[1]["unread"]:
        pass
    found["all_listed"] = (time.perf_counter() - start, server.read_cpu() - cpu_start)
    found["by_loss"], _ = server.ask("runs/run/matches?sort=low")
    found["search"], _ = server.ask("runs/run/matches?text=hats+ball")
    found["sql"], _ = server.ask("runs/run/matches?where=turns+%3E+12")
    before = server.ask("runs/run/curves")[1]["unread"]
    (wall, cpu), curves = server.ask("runs/run/curves")
    read = before - curves["unread"]
    found["intervals_of_an_iteration"] = (wall / read, cpu / read)
    found["changes"], _ = server.ask("changes")
    return found


def measure_matches(server: Server, iterations: int, size: int) -> dict[str, tuple[float, float]]:
    """Return the median and maximum times of random matches, from different iterations as far as possible."""
    rng = random.Random(SEED)
    iterations_drawn = rng.sample(range(iterations), min(MATCHES, iterations)) * (MATCHES // min(MATCHES, iterations))
    times = [server.ask(f"runs/run/matches/{k:04d}-{rng.randrange(size):04d}")[0] for k in iterations_drawn]
    return {
        name: (summarize(wall for wall, _ in times), summarize(cpu for _, cpu in times))
        for name, summarize in (("match_median", median), ("match_most", max))
    }


def ensure_run(run: Path, turns: int, iterations: int) -> Path:
    """Make the run unless it exists, and return its folder. A child process makes it, to keep this one's memory low."""
    if (run / "metrics.jsonl").exists():
        return run
    code = "import sys, loading, pathlib; loading.make_run(pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:]))"
    environ = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE / 'benchmarks'}"}
    subprocess.run([sys.executable, "-P", "-c", code, str(run), str(turns), str(iterations)], env=environ, check=True)
    return run


def measure_follow(server: Server, run: Path, seconds: float = 20.0) -> dict[str, float]:
    """Return the server's share of a core while a page follows an iteration that grows by 1,000 matches."""
    folder, process = RunFolder.open(run), psutil.Process(server.child.pid)
    records = make_matches(ITERATIONS, 8_000)
    server.ask("runs/run/matches")
    cpu, start, added, changes = process.cpu_times(), time.perf_counter(), 0, ""
    while time.perf_counter() - start < seconds:
        batch = records[added : added + max(1, len(records) // 13)]
        if batch:
            folder.log.extend(batch)
            added += len(batch)
        time.sleep(1.5)
        print_now = json.dumps(server.ask("changes")[1])
        if print_now != changes:
            changes = print_now
            server.ask("runs/run/matches")
    folder.log.close()
    cpu_times = process.cpu_times()
    return {"matches": added, "share": round((cpu_times.user + cpu_times.system - cpu.user - cpu.system) / seconds, 4)}


def main() -> None:
    """Make the runs, serve them, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument(
        "--folder", help="folder of both runs, which are made there unless they exist; by default a temporary one"
    )
    options = parser.parse_args()
    command = f"python benchmarks/view.py --turns {options.turns}"
    result: dict[str, Any] = {"command": command, "seed": SEED, "turns": options.turns}
    result["load_at_start"] = os.getloadavg()
    with nullcontext(options.folder) if options.folder else tempfile.TemporaryDirectory() as folder:
        run = ensure_run(Path(folder) / "run", options.turns, ITERATIONS)
        result["log_mb"] = sum(file.stat().st_size for file in (run / "log").iterdir()) / 1e6
        result["paint"] = measure_paint(run)
        server = Server(run)
        try:
            times = measure_answers(server)
            result["server_mb"] = round(server.read_peak_memory(), 1)
            result["follow_cpu"] = measure_follow(server, run)
            times["league"], _ = server.ask("runs/run/league")
            for k, name in enumerate(("wall_s", "cpu_s")):
                result[name] = {key: round(pair[k], 4) for key, pair in times.items()}
            result["server_mb_at_last"] = round(server.read_peak_memory(), 1)
        finally:
            server.child.terminate()
        server = Server(ensure_run(Path(folder) / "few" / "run", options.turns, FEW))
        try:
            times_of_matches = measure_matches(server, FEW - 1, 10_000)
            result["few_iterations"] = {
                name: {"wall_s": round(w, 4), "cpu_s": round(c, 4)} for name, (w, c) in times_of_matches.items()
            }
            result["few_iterations"]["server_mb"] = round(server.read_peak_memory(), 1)
        finally:
            server.child.terminate()
    result |= {
        "target": TARGET,
        "machine": describe_environment() | {"command": [command]},
        "load_at_end": os.getloadavg(),
    }
    write_result("view", result)
    print(
        json.dumps({key: result[key] for key in ("paint", "wall_s", "cpu_s", "server_mb", "few_iterations")}, indent=1)
    )


if __name__ == "__main__":
    main()
