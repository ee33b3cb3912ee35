"""Does a run lose, double or mis-score a match when its parts die? 200 faults, each at a random moment.

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
from tests.arena.scale.fault_kinds import ALONE, MIX, Place, inject, processes, title

HERE = Path(__file__).resolve().parent
INSIDE = "ARENA_FAULTS_INSIDE"
"""Set in the namespaces."""
SCRATCH = Path("/tmp/faults")
"""On a /tmp that only this process and its children have."""
DISK_MB = 600
GRACE = 30.0
"""Seconds within which all processes of a run that has ended are gone."""
HUNG = 900.0
"""Seconds without progress after which a run counts as hung."""
TOGETHER = 0.15
"""Share of the faults that follow at once upon the one before."""
STEP = "0.05"
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
"""Imitation before all runs, once: so that acts are legal and payoffs differ."""


@dataclass
class Fault:
    """A fault that befell a run, and what followed."""

    kind: str
    victim: str
    at: float
    """Seconds after the run's first start."""
    committed: int
    """Iterations until then."""
    followed: str = ""
    after: float = 0.0
    """Seconds until that."""


@dataclass
class Ordeal:
    """One run: its faults, and what was found when it had ended."""

    command: str
    seed: int
    iterations: int
    faults: list[Fault] = field(default_factory=list)
    starts: int = 0
    seconds: float = 0.0
    orphans: list[str] = field(default_factory=list)
    """Processes that were still there after their driver's end and the grace."""
    unprovoked: list[str] = field(default_factory=list)
    """Ends of the run without a fault, or with a traceback."""
    left: list[str] = field(default_factory=list)
    """In /tmp and /dev/shm at the end."""
    counts: dict[str, int] = field(default_factory=dict)
    found: list[tuple[str, str]] = field(default_factory=list)


class Driver:
    """A run's driver process, from its start to its end."""

    def __init__(self, run: Path, asked: argparse.Namespace, ordeal: Ordeal) -> None:
        said = SCRATCH / f"said-{ordeal.seed}-{ordeal.starts}"
        words = ["resume", str(run), "--json"]
        if not (run / "config.yaml").exists():
            words = ["run", "selfplay", "--config", str(SCRATCH / "recipe.yaml"), "--out", str(run), "--json"]
            words += ["--seed", str(ordeal.seed), "--iterations", str(ordeal.iterations)]
            words += ["--scale", asked.scale] if asked.scale else []
            words += [word for setting in asked.set for word in ("--set", setting)]
        self.err = said.with_suffix(".err")
        with said.with_suffix(".out").open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(build_child_command(words), stdout=out, stderr=err, start_new_session=True)

    @property
    def ended(self) -> bool:
        """True once it has ended."""
        return self.process.poll() is not None

    def last_line(self) -> str:
        """Return its exit code and the last line that it said."""
        lines = self.err.read_text(errors="replace").strip().splitlines() or [""]
        return f"{self.process.returncode}: {lines[-1][:300]}"

    def broke(self) -> bool:
        """Return True if it said more than a line or two of an error that was expected."""
        return "Traceback" in self.err.read_text(errors="replace")


def progress(run: Path) -> tuple[int, int]:
    """Return the iterations that are committed, and bytes of logs that only grow while one is played."""
    metrics = run / "metrics.jsonl"
    rows = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
    logs = [path.stat().st_size for path in sorted((run / "log").glob("*.jsonl")) if path.exists()]
    return rows, sum(logs)


class Waiting:
    """The faults that are still to come; none after a time."""

    def __init__(self, kinds: list[str], ends: float) -> None:
        self._kinds, self._ends = kinds, ends

    def next(self) -> list[str]:
        """Kinds of which any may come now, the first before the others; [] where none comes any more."""
        return self._kinds[:8] if time.monotonic() < self._ends else []

    def take(self, kind: str) -> None:
        """One of that kind has come."""
        self._kinds.remove(kind)


class Trial:
    """One run on its way through faults to its end."""

    def __init__(self, asked: argparse.Namespace, waiting: Waiting, ordeal: Ordeal, rng: random.Random) -> None:
        self.asked, self.waiting, self.ordeal, self.rng = asked, waiting, ordeal, rng
        self.run, self.begun = SCRATCH / "disk" / "run", time.monotonic()

    def to_its_end(self) -> None:
        """Start and resume it until it is complete, and judge it then."""
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", self.run.parent], check=True)
        try:
            while not self._driven() and len(self.ordeal.unprovoked) <= 3:
                pass
            self._judged()
        finally:
            subprocess.run(["umount", "-l", self.run.parent], check=True)

    def _judged(self) -> None:
        ordeal = self.ordeal
        ordeal.seconds = round(time.monotonic() - self.begun, 1)
        rooms = [path for room in ("/tmp", "/dev/shm") for path in sorted(Path(room).iterdir())]
        ordeal.left = [str(path) for path in rooms if path != SCRATCH]
        begun = (self.run / "config.yaml").exists()
        verdict = judge(self.run) if begun else Verdict(found=[Finding("lost", "no run began")])
        ordeal.counts, ordeal.found = dict(verdict.counts), [(kind, what) for kind, what in verdict.found]
        if ordeal.found and self.asked.keep:
            shutil.copytree(self.run, Path(self.asked.keep) / f"run-{ordeal.seed}")

    def _driven(self) -> bool:
        """Drive it through as many faults as one driver takes; True if the run is complete then."""
        self.ordeal.starts += 1
        driver, before, last = Driver(self.run, self.asked, self.ordeal), len(self.ordeal.faults), None
        while not driver.ended:
            together = last is not None and self.rng.random() < TOGETHER
            if last and not together and not self._went_on(driver, last):
                break
            _sleep(driver, 0.0 if together else self.rng.uniform(0.0, self.asked.gap))
            last = self._befall(driver) or last
            if not self.waiting.next():
                _sleep(driver, HUNG if last is None else 1.0)
        self._ended(driver, provoked=last is not None, before=before)
        self._nobody_left()
        return driver.process.returncode == 0

    def _befall(self, driver: Driver) -> Fault | None:
        """The next fault that can befall the run; None if there was no victim until it ended, or for long."""
        place, until = Place(driver.process.pid, self.run.parent, SCRATCH / "slow"), time.monotonic() + HUNG
        while not driver.ended and time.monotonic() < until and (kinds := self.waiting.next()):
            for kind in kinds:
                at, committed = time.monotonic() - self.begun, progress(self.run)[0]
                if victim := inject(kind, place, self.rng):
                    self.waiting.take(kind)
                    fault = Fault(kind, victim, round(at, 1), committed)
                    self.ordeal.faults.append(fault)
                    print(f"{at:7.1f} s, {committed} committed: {kind}: {victim}", flush=True)
                    return fault
            time.sleep(0.1)
        return None

    def _went_on(self, driver: Driver, fault: Fault) -> bool:
        """Wait until the run has gone on after the fault; False where it ended, or hangs and was killed."""
        before, until = progress(self.run), time.monotonic() + HUNG
        while time.monotonic() < until and not driver.ended:
            if (now := progress(self.run)) != before and now > (before[0], 0):
                self._followed(fault, "went on")
                return True
            time.sleep(0.1)
        if not driver.ended:
            self._followed(fault, "hung")
            print("hung:", [title(process) for process in processes()], driver.last_line(), flush=True)
            driver.process.kill()
            driver.process.wait()
        return False

    def _ended(self, driver: Driver, provoked: bool, before: int) -> None:
        """Note the driver's end as what followed upon its last faults, or as one of its own."""
        told, complete = driver.last_line(), driver.process.returncode == 0
        for fault in self.ordeal.faults[before:]:
            self._followed(fault, "complete" if complete else f"ended with {told}")
        if driver.broke() or not (provoked or complete):
            self.ordeal.unprovoked.append(told)
            print(driver.err.read_text(errors="replace")[-4000:], flush=True)
        print(f"{time.monotonic() - self.begun:7.1f} s: driver ended with {told}", flush=True)

    def _followed(self, fault: Fault, what: str) -> None:
        if not fault.followed:
            fault.followed, fault.after = what, round(time.monotonic() - self.begun - fault.at, 1)

    def _nobody_left(self) -> None:
        """All processes of the run are gone within the grace; those that are not are orphans, and killed."""
        until = time.monotonic() + GRACE
        while (left := processes()) and time.monotonic() < until:
            time.sleep(0.1)
        for process in left:
            self.ordeal.orphans.append(f"{title(process)} ({process.pid}), after start {self.ordeal.starts}")
            print("orphan:", self.ordeal.orphans[-1], flush=True)
            process.kill()


def _sleep(driver: Driver, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not driver.ended:
        time.sleep(0.05)


def drawn(asked: argparse.Namespace, rng: random.Random) -> list[str]:
    """The faults in random order: as many of each kind as the mix has, or one of each of those that are asked for."""
    only = asked.only.split(",") if asked.only else list(MIX) if asked.scale else list(ALONE)
    counts = apportion(asked.faults, [MIX[kind] for kind in only]) if asked.faults else [1] * len(only)
    kinds = [kind for kind, n in zip(only, counts, strict=True) for _ in range(n)]
    rng.shuffle(kinds)
    return kinds


def _again(kept: dict[str, Any]) -> Ordeal:
    """An ordeal of an earlier command, as the file keeps it."""
    return Ordeal(**{**kept, "faults": [Fault(**fault) for fault in kept["faults"]]})


def prepare(weights: Path | None) -> None:
    """The recipe, with a policy that has learned to write legal acts: this one, or a new one."""
    (SCRATCH / "disk").mkdir(parents=True)
    (SCRATCH / "slow").write_text(STEP)
    os.environ["ARENA_SLOW_STEP"] = str(SCRATCH / "slow")
    recipe, made = SCRATCH / "recipe.yaml", SCRATCH / "warm"
    if weights is None:
        recipe.write_text(yaml.safe_dump(RECIPE | {"policies": {"shared": {"model": "nano", "imitate": WARM}}}))
        words = ["run", "selfplay", "--config", str(recipe), "--iterations", "1", "--out", str(made), "--json"]
        subprocess.run(build_child_command(words), check=True, stdout=subprocess.DEVNULL)
        weights = made / "checkpoints" / "0000" / "policies" / "shared"
    recipe.write_text(yaml.safe_dump(RECIPE | {"policies": {"shared": {"model": str(weights)}}}))


def summary(ordeals: list[Ordeal]) -> dict[str, Any]:
    """Counts over all runs."""
    faults = [fault for ordeal in ordeals for fault in ordeal.faults]
    counts: Counter[str] = Counter()
    for ordeal in ordeals:
        counts.update(ordeal.counts)
    found = Counter(kind for ordeal in ordeals for kind, _ in ordeal.found)
    wrong = {kind: found[kind] for kind in ("lost", "doubled", "wrong", "folder")}
    wrong |= {"orphans": sum(len(ordeal.orphans) for ordeal in ordeals)}
    wrong |= {"hung": sum(fault.followed == "hung" for fault in faults)}
    wrong |= {"unprovoked": sum(len(ordeal.unprovoked) for ordeal in ordeals)}
    return {"faults": len(faults), "by_kind": Counter(fault.kind for fault in faults), **wrong, "counts": counts}


def torment(asked: argparse.Namespace, out: TextIO, before: Sequence[Any]) -> dict[str, Any]:
    """Run after run until every fault has befallen one; what the file keeps, renewed after each."""
    rng = random.Random(asked.seed)
    waiting = Waiting(drawn(asked, rng), time.monotonic() + 60 * asked.minutes)
    ordeals, kept = [_again(one) for one in before], dict[str, Any]()
    command = " ".join(["python", "-m", "tests.arena.scale.faults", *sys.argv[1:]])
    prepare(asked.weights)
    while waiting.next() and (not kept or ordeals[-1].faults):  # without any there is no victim for what is left
        ordeals.append(Ordeal(command, 1000 * asked.seed + len(ordeals), asked.iterations))
        Trial(asked, waiting, ordeals[-1], rng).to_its_end()
        kept = {"summary": summary(ordeals), "mix": MIX, "environment": describe_environment()}
        kept |= {"runs": [asdict(ordeal) for ordeal in ordeals]}
        out.seek(0)
        out.truncate()
        out.write(json.dumps(kept, indent=1) + "\n")
        out.flush()
        print(json.dumps(kept["summary"]), flush=True)
    return kept


def main() -> None:
    """Start again in namespaces; there, run and judge."""
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
    asked = parser.parse_args()
    asked.faults = asked.faults or (0 if asked.only else sum(MIX.values()))
    if INSIDE not in os.environ:
        os.environ[INSIDE] = fault_kinds.namespace()
        os.execvp(
            "unshare", ["unshare", "--net", "--mount", sys.executable, "-m", "tests.arena.scale.faults", *sys.argv[1:]]
        )
    if os.environ[INSIDE] == fault_kinds.namespace():
        raise SystemExit("no namespace could be made here")
    before = json.loads(asked.out.read_text())["runs"] if asked.add and asked.out.exists() else []
    with asked.out.open("a") as out:  # which may be in the /tmp that is hidden from here on
        kept = _inside(asked, out, before)["summary"]
    bad = [kind for kind in ("lost", "doubled", "wrong", "folder", "orphans", "hung", "unprovoked") if kept[kind]]
    raise SystemExit(", ".join(f"{kept[kind]} {kind}" for kind in bad) or 0)


def _inside(asked: argparse.Namespace, out: TextIO, before: Sequence[Any]) -> dict[str, Any]:
    """Prepare the namespaces, a loopback, a /tmp and a /dev/shm for the runs; then the runs."""
    for room in ("/tmp", "/dev/shm"):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", room], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    try:
        return torment(asked, out, before)
    finally:
        for process in processes():
            process.kill()


if __name__ == "__main__":
    main()
