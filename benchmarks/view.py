"""Time and memory of `arena view` on a run of a million turns: the first look, any match, all else, and a live run.

    python benchmarks/view.py    # some minutes on two cores; with Chromium, the first picture in it, too

The run is `loading.py`'s: 100 iterations, the last of them open. The server is a process of its own; answers are timed
from outside. `paint` is from the address to the first thing that Chromium draws, to the first curve, and to the list of
matches, each time with a new server and a new window, and what that took of both sides' processors; a match
is asked of random iterations, each for the first time. `cpu_s` is what an answer takes of the server's processors,
which a busy machine does not stretch as it does `wall_s`. Memory is the server's largest (VmHWM); what takes much of
a run at once (alarms, league) is a child's. `follow_cpu` is the server's share of a core while a page follows an
iteration that grows by 1,000 matches. `few_iterations` are matches of a second run, of ten iterations of 100,000 turns:
a match costs no more in a large iteration. Writes results/view.json.
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
from loading import ITERATIONS, SEED, TURNS, iteration

from arena.doctor import describe_environment
from arena.store.run import RunFolder

RESULTS = Path(__file__).parent / "results"
HERE = Path(__file__).parents[1]
TARGET = {"paint_s": 2.0, "match_s": 0.3, "server_mb": 500.0}
SERVE = "import sys; from pathlib import Path; from analysis.commands import view; view([Path(sys.argv[1])], 0, False)"
MATCHES, FEW, PAINTS = 20, 10, 3


class Server:
    """The page's server as a child, and its answers with their times."""

    def __init__(self, run: Path) -> None:
        environ = {**os.environ, "PYTHONPATH": str(HERE)}
        self.child = subprocess.Popen(
            [sys.executable, "-P", "-c", SERVE, str(run)], env=environ, stdout=subprocess.PIPE
        )
        assert self.child.stdout is not None
        self.link = self.child.stdout.readline().decode().strip()
        self.base, _, self.token = self.link.partition("/#token=")

    def ask(self, path: str) -> tuple[tuple[float, float], Any]:
        """Seconds from outside and of the server's processors, and the answer."""
        request = urllib.request.Request(f"{self.base}/api/{path}", headers={"Authorization": f"Bearer {self.token}"})
        begun, spent = time.perf_counter(), self.spent()
        with urllib.request.urlopen(request) as answer:
            told = json.loads(answer.read())
        return (time.perf_counter() - begun, self.spent() - spent), told

    def spent(self) -> float:
        """Processor seconds of the server."""
        times = psutil.Process(self.child.pid).cpu_times()
        return float(times.user + times.system)

    def largest(self) -> float:
        """The largest memory that the process ever had, in MB."""
        (line,) = (x for x in Path(f"/proc/{self.child.pid}/status").read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 1024


def painted(run: Path) -> dict[str, list[dict[str, float]]]:
    """Seconds to the first paint, the first curve and the list, each on a page just opened; {} without a browser.

    And processor seconds until then, of the server and of all of the browser's processes together.
    """
    try:
        from tests.factories.browser import chromium
    except ImportError:
        return {}
    found: dict[str, list[dict[str, float]]] = {}
    with chromium() as browser:
        for name, route, sign in (("curves", "", ".chart canvas"), ("list", "/matches", "table.matches tbody tr")):
            for _ in range(PAINTS):
                server = Server(run)
                try:
                    found.setdefault(name, []).append(_painted(browser, server, f"{server.link}/run/run{route}", sign))
                finally:
                    server.child.terminate()
    return found


def _painted(browser: Any, server: Server, link: str, sign: str) -> dict[str, float]:
    view = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    view.set_default_timeout(120_000)
    spent, drawn, begun = server.spent(), browsing(), time.perf_counter()
    view.goto(link)
    view.wait_for_selector(sign)
    wall = time.perf_counter() - begun
    told = {"wall_s": wall, "server_cpu_s": server.spent() - spent, "browser_cpu_s": browsing() - drawn}
    first = view.evaluate("performance.getEntriesByType('paint')[0].startTime / 1000")
    view.context.close()
    return {"first_paint_s": round(first, 3)} | {key: round(value, 3) for key, value in told.items()}


def browsing() -> float:
    """Processor seconds of the browser's processes."""
    found = 0.0
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found += sum(child.cpu_times()[:2]) if "chrom" in child.name() else 0.0
    return found


def answers(server: Server) -> dict[str, tuple[float, float]]:
    """Times of what a page asks, the first time and when all is known."""
    found = {name: server.ask(path)[0] for name, path in (("runs", "runs"), ("head", "runs/run"))}
    found["first_curves"], _ = server.ask("runs/run/curves")
    found["first_list"], _ = server.ask("runs/run/matches")
    found |= matches(server, ITERATIONS, 1000)
    found["tokens"], _ = server.ask("runs/run/matches/0050-0007/tokens")
    begun, spent = time.perf_counter(), server.spent()
    while server.ask("runs/run/matches?limit=1")[1]["unread"]:
        pass
    found["all_listed"] = (time.perf_counter() - begun, server.spent() - spent)
    found["by_loss"], _ = server.ask("runs/run/matches?sort=low")
    found["search"], _ = server.ask("runs/run/matches?text=hats+ball")
    found["sql"], _ = server.ask("runs/run/matches?where=turns+%3E+12")
    before = server.ask("runs/run/curves")[1]["unread"]
    (wall, cpu), told = server.ask("runs/run/curves")
    read = before - told["unread"]
    found["intervals_of_an_iteration"] = (wall / read, cpu / read)
    found["changes"], _ = server.ask("changes")
    return found


def matches(server: Server, iterations: int, size: int) -> dict[str, tuple[float, float]]:
    """Times of matches at random, of different iterations as far as there are so many."""
    rng = random.Random(SEED)
    places = rng.sample(range(iterations), min(MATCHES, iterations)) * (MATCHES // min(MATCHES, iterations))
    times = [server.ask(f"runs/run/matches/{k:04d}-{rng.randrange(size):04d}")[0] for k in places]
    return {
        name: (of(wall for wall, _ in times), of(cpu for _, cpu in times))
        for name, of in (("match_median", median), ("match_most", max))
    }


def made(run: Path, turns: int, iterations: int) -> Path:
    """Make the run, if it is not there, in a process of its own, whose memory is not this one's."""
    if (run / "metrics.jsonl").exists():
        return run
    code = "import sys, loading, pathlib; loading.make_run(pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:]))"
    environ = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE / 'benchmarks'}"}
    subprocess.run([sys.executable, "-P", "-c", code, str(run), str(turns), str(iterations)], env=environ, check=True)
    return run


def followed(server: Server, run: Path, seconds: float = 20.0) -> dict[str, float]:
    """The server's share of a core while the open iteration grows by 1,000 matches and a page follows it."""
    folder, process = RunFolder.open(run), psutil.Process(server.child.pid)
    records = iteration(ITERATIONS, 8_000)
    server.ask("runs/run/matches")
    cpu, begun, added, known = process.cpu_times(), time.perf_counter(), 0, ""
    while time.perf_counter() - begun < seconds:
        batch = records[added : added + max(1, len(records) // 13)]
        if batch:
            folder.log.extend(batch)
            added += len(batch)
        time.sleep(1.5)
        print_now = json.dumps(server.ask("changes")[1])
        if print_now != known:
            known = print_now
            server.ask("runs/run/matches")
    folder.log.close()
    now = process.cpu_times()
    return {"matches": added, "share": round((now.user + now.system - cpu.user - cpu.system) / seconds, 4)}


def main() -> None:
    """Make the run, serve it, ask, write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--folder", help="where both runs are made, or are from an earlier time; else they are removed")
    chosen = parser.parse_args()
    command = f"python benchmarks/view.py --turns {chosen.turns}"
    result: dict[str, Any] = {"command": command, "seed": SEED, "turns": chosen.turns}
    result["load_at_start"] = os.getloadavg()
    with nullcontext(chosen.folder) if chosen.folder else tempfile.TemporaryDirectory() as folder:
        run = made(Path(folder) / "run", chosen.turns, ITERATIONS)
        result["log_mb"] = sum(file.stat().st_size for file in (run / "log").iterdir()) / 1e6
        result["paint"] = painted(run)
        server = Server(run)
        try:
            times = answers(server)
            result["server_mb"] = round(server.largest(), 1)
            result["follow_cpu"] = followed(server, run)
            times["league"], _ = server.ask("runs/run/league")
            for k, name in enumerate(("wall_s", "cpu_s")):
                result[name] = {key: round(pair[k], 4) for key, pair in times.items()}
            result["server_mb_at_last"] = round(server.largest(), 1)
        finally:
            server.child.terminate()
        server = Server(made(Path(folder) / "few" / "run", chosen.turns, FEW))
        try:
            told = matches(server, FEW - 1, 10_000)
            result["few_iterations"] = {
                name: {"wall_s": round(w, 4), "cpu_s": round(c, 4)} for name, (w, c) in told.items()
            }
            result["few_iterations"]["server_mb"] = round(server.largest(), 1)
        finally:
            server.child.terminate()
    result |= {
        "target": TARGET,
        "machine": describe_environment() | {"command": [command]},
        "load_at_end": os.getloadavg(),
    }
    (RESULTS / "view.json").write_text(json.dumps(result, indent=1) + "\n")
    print(
        json.dumps({key: result[key] for key in ("paint", "wall_s", "cpu_s", "server_mb", "few_iterations")}, indent=1)
    )


if __name__ == "__main__":
    main()
