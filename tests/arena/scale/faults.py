"""Fault campaign: 200 faults at random moments, and a check that no match is lost, doubled or mis-scored.

    python -m tests.arena.scale.faults                          # two ranks, two engines, two tasks; an hour or more
    python -m tests.arena.scale.faults --scale "" --faults 20   # one process

Needs Linux, root (or a user who may make namespaces) and iproute2. It starts itself again in a network and a mount
namespace of its own: with its own loopback, /tmp and /dev/shm, and a small disk for the runs. There it runs `arena run
selfplay` with two games, negotiation and a Kuhn poker with slow steps, lets fault after fault befall it, types `arena
resume` when it stops, and judges what is in its folder at the end (fault_judge.py). The kinds and how many of each
there are (fault_kinds.py) are fixed beforehand; their order, moments and victims come from the seed. Writes
faults.json (`--out`) after every run.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import yaml

from arena.doctor import describe_environment
from arena.parts.apportion import apportion
from arena.process import build_child_command
from tests.arena.scale import fault_kinds
from tests.arena.scale.fault_judge import Finding, Verdict, judge
from tests.arena.scale.fault_kinds import MIX, SINGLE_PROCESS, RunPlace, inject, list_processes, read_title

HERE = Path(__file__).resolve().parent
INSIDE = "ARENA_FAULTS_INSIDE"
"""Environment variable that is set inside the namespaces."""
SCRATCH = Path("/tmp/faults")
"""Folder on a /tmp that is private to this process and its children."""
DISK_MB = 600
GRACE_SECONDS = 30.0
"""Seconds within which all processes of a run that has ended are gone."""
HANG_SECONDS = 900.0
"""Seconds without progress after which a run counts as hung."""
TOGETHER_SHARE = 0.15
"""Share of faults that follow the previous one immediately."""
STEP_SECONDS = "0.05"
"""Seconds of a slow step."""
KUHN = f"{HERE / 'slow_kuhn.py'}:SlowKuhn"
RECIPE: dict[str, Any] = {
    "name": "faults",
    "precision": "fp32",
    "threads": 1,
    "tables": [
        {
            "game": {"name": "negotiation", "options": {"illegal": "end", "max_turns": 6, "talk": False}},
            "seats": {s: {"role": f"nano_{s}", "policy": "shared"} for s in ("opener", "responder")},
            "share": 2,
        },
        {
            "game": {"name": KUHN, "options": {"illegal": "end", "talk": False, "penalty": 2}},
            "seats": {seat: {"role": "nano_kuhn", "policy": "shared"} for seat in ("first", "second")},
        },
    ],
    "policies": {"shared": {"model": "nano"}},
    "play": {"matches": 48, "in_flight": 48},
    "credit": {"estimator": "mars", "weights": {"deal": 0.1, "illegal": 1.0}},
    "learn": {"lr": 3e-4, "minibatches": 2, "token_budget": 4096},
    "checkpoint": {"every": 1, "keep": 1000},
}
WARM = {"scripted": ["random"], "matches": 192, "epochs": 2, "minibatches": 16, "lr": 3e-3}
"""Imitation before all runs, so that acts are legal and payoffs differ."""


@dataclass
class Fault:
    """A fault of a run, and what followed."""

    kind: str
    victim: str
    at: float
    """Seconds after the run's first start."""
    committed: int
    """Iterations committed by then."""
    followed: str = ""
    after: float = 0.0
    """Seconds from the fault to its outcome `followed`."""


@dataclass
class RunReport:
    """One run: its faults, and the findings at its end."""

    command: str
    seed: int
    iterations: int
    faults: list[Fault] = field(default_factory=list)
    starts: int = 0
    seconds: float = 0.0
    orphans: list[str] = field(default_factory=list)
    """Processes that outlived their driver by more than the grace period."""
    unprovoked: list[str] = field(default_factory=list)
    """Ends of the run that no fault caused, or with a traceback."""
    left: list[str] = field(default_factory=list)
    """Files left in /tmp and /dev/shm at the end."""
    counts: dict[str, int] = field(default_factory=dict)
    found: list[tuple[str, str]] = field(default_factory=list)


class Driver:
    """A run's driver process, from its start to its end."""

    def __init__(self, run: Path, options: argparse.Namespace, report: RunReport) -> None:
        output = SCRATCH / f"said-{report.seed}-{report.starts}"
        arguments = ["resume", str(run), "--json"]
        if not (run / "config.yaml").exists():
            arguments = ["run", "selfplay", "--config", str(SCRATCH / "recipe.yaml"), "--out", str(run), "--json"]
            arguments += ["--seed", str(report.seed), "--iterations", str(report.iterations)]
            arguments += ["--scale", options.scale] if options.scale else []
            arguments += [word for setting in options.set for word in ("--set", setting)]
        self.err = output.with_suffix(".err")
        with output.with_suffix(".out").open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                build_child_command(arguments), stdout=out, stderr=err, start_new_session=True
            )

    @property
    def ended(self) -> bool:
        """Whether the driver has ended."""
        return self.process.poll() is not None

    def last_line(self) -> str:
        """Return its exit code and the last line of its stderr."""
        lines = self.err.read_text(errors="replace").strip().splitlines() or [""]
        return f"{self.process.returncode}: {lines[-1][:300]}"

    def has_traceback(self) -> bool:
        """Return whether it printed a traceback."""
        return "Traceback" in self.err.read_text(errors="replace")


def measure_progress(run: Path) -> tuple[int, int]:
    """Return the number of committed iterations and the size of the open logs in bytes."""
    metrics = run / "metrics.jsonl"
    rows = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
    logs = [path.stat().st_size for path in sorted((run / "log").glob("*.jsonl")) if path.exists()]
    return rows, sum(logs)


class PendingFaults:
    """Faults still to be injected; none after a deadline."""

    def __init__(self, kinds: list[str], ends: float) -> None:
        self._kinds, self._ends = kinds, ends

    def next(self) -> list[str]:
        """Return the next possible kinds in order of preference, [] if none remain."""
        return self._kinds[:8] if time.monotonic() < self._ends else []

    def take(self, kind: str) -> None:
        """Remove one fault of that kind."""
        self._kinds.remove(kind)


class FaultyRun:
    """One run with faults, from its start to its end."""

    def __init__(
        self, options: argparse.Namespace, pending: PendingFaults, report: RunReport, rng: random.Random
    ) -> None:
        self.options, self.pending, self.report, self.rng = options, pending, report, rng
        self.run, self.begun = SCRATCH / "disk" / "run", time.monotonic()

    def run_to_end(self) -> None:
        """Start and resume the run until it is complete, then judge it."""
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", self.run.parent], check=True)
        try:
            while not self._drive() and len(self.report.unprovoked) <= 3:
                pass
            self._judge()
        finally:
            subprocess.run(["umount", "-l", self.run.parent], check=True)

    def _judge(self) -> None:
        report = self.report
        report.seconds = round(time.monotonic() - self.begun, 1)
        paths = [path for folder in ("/tmp", "/dev/shm") for path in sorted(Path(folder).iterdir())]
        report.left = [str(path) for path in paths if path != SCRATCH]
        has_begun = (self.run / "config.yaml").exists()
        verdict = judge(self.run) if has_begun else Verdict(found=[Finding("lost", "no run began")])
        report.counts, report.found = dict(verdict.counts), [(kind, what) for kind, what in verdict.found]
        if report.found and self.options.keep:
            shutil.copytree(self.run, Path(self.options.keep) / f"run-{report.seed}")

    def _drive(self) -> bool:
        """Run one driver and inject faults until it ends; return whether the run is complete."""
        self.report.starts += 1
        driver, before, last = Driver(self.run, self.options, self.report), len(self.report.faults), None
        while not driver.ended:
            together = last is not None and self.rng.random() < TOGETHER_SHARE
            if last and not together and not self._wait_for_progress(driver, last):
                break
            _sleep(driver, 0.0 if together else self.rng.uniform(0.0, self.options.gap))
            last = self._inject_next(driver) or last
            if not self.pending.next():
                _sleep(driver, HANG_SECONDS if last is None else 1.0)
        self._record_end(driver, provoked=last is not None, before=before)
        self._kill_orphans()
        return driver.process.returncode == 0

    def _inject_next(self, driver: Driver) -> Fault | None:
        """Inject the next possible fault; return None if there was no victim until the driver ended or for long."""
        place, deadline = (
            RunPlace(driver.process.pid, self.run.parent, SCRATCH / "slow"),
            time.monotonic() + HANG_SECONDS,
        )
        while not driver.ended and time.monotonic() < deadline and (kinds := self.pending.next()):
            for kind in kinds:
                at, committed = time.monotonic() - self.begun, measure_progress(self.run)[0]
                if victim := inject(kind, place, self.rng):
                    self.pending.take(kind)
                    fault = Fault(kind, victim, round(at, 1), committed)
                    self.report.faults.append(fault)
                    print(f"{at:7.1f} s, {committed} committed: {kind}: {victim}", flush=True)
                    return fault
            time.sleep(0.1)
        return None

    def _wait_for_progress(self, driver: Driver, fault: Fault) -> bool:
        """Wait for progress after the fault; return False if the driver ended, or hung and was killed."""
        before, deadline = measure_progress(self.run), time.monotonic() + HANG_SECONDS
        while time.monotonic() < deadline and not driver.ended:
            if (now := measure_progress(self.run)) != before and now > (before[0], 0):
                self._record_outcome(fault, "went on")
                return True
            time.sleep(0.1)
        if not driver.ended:
            self._record_outcome(fault, "hung")
            print("hung:", [read_title(process) for process in list_processes()], driver.last_line(), flush=True)
            driver.process.kill()
            driver.process.wait()
        return False

    def _record_end(self, driver: Driver, provoked: bool, before: int) -> None:
        """Record the driver's end as the outcome of its last faults, or as unprovoked."""
        last_line, is_complete = driver.last_line(), driver.process.returncode == 0
        for fault in self.report.faults[before:]:
            self._record_outcome(fault, "complete" if is_complete else f"ended with {last_line}")
        if driver.has_traceback() or not (provoked or is_complete):
            self.report.unprovoked.append(last_line)
            print(driver.err.read_text(errors="replace")[-4000:], flush=True)
        print(f"{time.monotonic() - self.begun:7.1f} s: driver ended with {last_line}", flush=True)

    def _record_outcome(self, fault: Fault, outcome: str) -> None:
        if not fault.followed:
            fault.followed, fault.after = outcome, round(time.monotonic() - self.begun - fault.at, 1)

    def _kill_orphans(self) -> None:
        """Wait for the end of all processes of the run; record and kill those that outlive the grace period."""
        deadline = time.monotonic() + GRACE_SECONDS
        while (remaining := list_processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for process in remaining:
            self.report.orphans.append(f"{read_title(process)} ({process.pid}), after start {self.report.starts}")
            print("orphan:", self.report.orphans[-1], flush=True)
            process.kill()


def _sleep(driver: Driver, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not driver.ended:
        time.sleep(0.05)


def draw_kinds(options: argparse.Namespace, rng: random.Random) -> list[str]:
    """Draw the faults in random order: counts per kind as in the mix, or one of each requested kind."""
    only = options.only.split(",") if options.only else list(MIX) if options.scale else list(SINGLE_PROCESS)
    counts = apportion(options.faults, [MIX[kind] for kind in only]) if options.faults else [1] * len(only)
    kinds = [kind for kind, n in zip(only, counts, strict=True) for _ in range(n)]
    rng.shuffle(kinds)
    return kinds


def _restore_report(row: dict[str, Any]) -> RunReport:
    """Restore a run's report from an earlier command's file."""
    return RunReport(**{**row, "faults": [Fault(**fault) for fault in row["faults"]]})


def prepare_recipe(weights: Path | None) -> None:
    """Write the recipe with a policy that writes legal acts: `weights`, or a newly imitated one."""
    (SCRATCH / "disk").mkdir(parents=True)
    (SCRATCH / "slow").write_text(STEP_SECONDS)
    os.environ["ARENA_SLOW_STEP"] = str(SCRATCH / "slow")
    recipe, folder = SCRATCH / "recipe.yaml", SCRATCH / "warm"
    if weights is None:
        recipe.write_text(yaml.safe_dump(RECIPE | {"policies": {"shared": {"model": "nano", "imitate": WARM}}}))
        arguments = ["run", "selfplay", "--config", str(recipe), "--iterations", "1", "--out", str(folder), "--json"]
        subprocess.run(build_child_command(arguments), check=True, stdout=subprocess.DEVNULL)
        weights = folder / "checkpoints" / "0000" / "policies" / "shared"
    recipe.write_text(yaml.safe_dump(RECIPE | {"policies": {"shared": {"model": str(weights)}}}))


def summarize(reports: list[RunReport]) -> dict[str, Any]:
    """Return counts over all runs."""
    faults = [fault for report in reports for fault in report.faults]
    counts: Counter[str] = Counter()
    for report in reports:
        counts.update(report.counts)
    findings = Counter(kind for report in reports for kind, _ in report.found)
    wrong = {kind: findings[kind] for kind in ("lost", "doubled", "wrong", "folder")}
    wrong |= {"orphans": sum(len(report.orphans) for report in reports)}
    wrong |= {"hung": sum(fault.followed == "hung" for fault in faults)}
    wrong |= {"unprovoked": sum(len(report.unprovoked) for report in reports)}
    return {"faults": len(faults), "by_kind": Counter(fault.kind for fault in faults), **wrong, "counts": counts}


def run_campaign(options: argparse.Namespace, out: TextIO, before: Sequence[Any]) -> dict[str, Any]:
    """Run until all faults are injected; return the results, which are written to the file after each run."""
    rng = random.Random(options.seed)
    pending = PendingFaults(draw_kinds(options, rng), time.monotonic() + 60 * options.minutes)
    reports, results = [_restore_report(one) for one in before], dict[str, Any]()
    command = " ".join(["python", "-m", "tests.arena.scale.faults", *sys.argv[1:]])
    prepare_recipe(options.weights)
    while pending.next() and (not results or reports[-1].faults):  # without any there is no victim for what is left
        reports.append(RunReport(command, 1000 * options.seed + len(reports), options.iterations))
        FaultyRun(options, pending, reports[-1], rng).run_to_end()
        results = {"summary": summarize(reports), "mix": MIX, "environment": describe_environment()}
        results |= {"runs": [asdict(report) for report in reports]}
        out.seek(0)
        out.truncate()
        out.write(json.dumps(results, indent=1) + "\n")
        out.flush()
        print(json.dumps(results["summary"]), flush=True)
    return results


def main() -> None:
    """Restart in new namespaces, and run and judge there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="trainers=2,engines=2,tasks=2", help='as of arena run; "": one process')
    parser.add_argument("--faults", type=int, help="how many; default 200, with --only one of each")
    parser.add_argument("--only", help="these kinds alone, separated by commas")
    parser.add_argument("--iterations", type=int, default=12, help="of each run")
    parser.add_argument("--minutes", type=float, default=600.0, help="no fault comes later than that")
    parser.add_argument("--gap", type=float, default=8.0, help="most seconds between a fault's end and the next")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="a setting of the runs; repeatable")
    parser.add_argument("--weights", type=Path, help="of the policy, not in /tmp; default nano, after an imitation")
    parser.add_argument("--out", type=Path, default=Path("faults.json"))
    parser.add_argument("--add", action="store_true", help="keep the runs that the file has, and add more")
    parser.add_argument("--keep", help="a folder for copies of runs in which something was found")
    options = parser.parse_args()
    options.faults = options.faults or (0 if options.only else sum(MIX.values()))
    if INSIDE not in os.environ:
        os.environ[INSIDE] = fault_kinds.read_namespace()
        os.execvp(
            "unshare", ["unshare", "--net", "--mount", sys.executable, "-m", "tests.arena.scale.faults", *sys.argv[1:]]
        )
    if os.environ[INSIDE] == fault_kinds.read_namespace():
        raise SystemExit("no namespace could be made here")
    before = json.loads(options.out.read_text())["runs"] if options.add and options.out.exists() else []
    with options.out.open("a") as out:  # which may be in the /tmp that is hidden from here on
        results = _run_inside(options, out, before)["summary"]
    bad = [kind for kind in ("lost", "doubled", "wrong", "folder", "orphans", "hung", "unprovoked") if results[kind]]
    raise SystemExit(", ".join(f"{results[kind]} {kind}" for kind in bad) or 0)


def _run_inside(options: argparse.Namespace, out: TextIO, before: Sequence[Any]) -> dict[str, Any]:
    """Prepare the loopback, /tmp and /dev/shm of the namespaces, then run the campaign."""
    for folder in ("/tmp", "/dev/shm"):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", folder], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    try:
        return run_campaign(options, out, before)
    finally:
        for process in list_processes():
            process.kill()


if __name__ == "__main__":
    main()
