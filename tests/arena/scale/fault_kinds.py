"""Faults that befall a run: who is hit, and how. All of a run's processes are in the network namespace of this one.

The namespace finds them under any name and parent: a process cannot leave it by mistake.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

import psutil

PATTERNS: Mapping[str, Callable[[str], bool]] = {
    "engine": lambda title: title.startswith("ray::") and "Engine" in title,
    "rank": lambda title: title.startswith("ray::") and "Rank" in title,
    "task": lambda title: title.startswith("ray::_computed"),
}
"""Titles of the processes of each part, as Ray sets them."""
MIX = {
    "kill engine": 40, "kill rank": 30, "kill task": 20, "kill driver": 30, "stop engine": 15, "stop rank": 15,
    "stop task": 5, "stop driver": 10, "full disk": 15, "slow tool": 10, "drop connections": 10,
}  # fmt: skip
"""Kinds of faults, and how many of each there are in 200. What is stopped is SIGSTOPped, and every second time goes on
some seconds later; connections are cut, or the loopback is down for some seconds."""
ALONE = ("kill driver", "stop driver", "full disk", "slow tool")
"""Kinds that can befall a run in one process."""


@dataclass(frozen=True)
class Place:
    """Place of a run: its driver, the disk of its folder, and the file that says how long a slow step takes."""

    driver: int
    disk: Path
    slow: Path


def namespace(pid: int | str = "self") -> str:
    """Return the network namespace of a process, "" of one that has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def processes() -> list[psutil.Process]:
    """All other processes in this one's namespace."""
    own, found = namespace(), []
    for pid in psutil.pids():
        if pid != os.getpid() and namespace(pid) == own:
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
    return found


def title(process: psutil.Process) -> str:
    """Return what a process calls itself, "" of one that has ended."""
    try:
        return " ".join(process.cmdline())[:120].strip()
    except psutil.Error:
        return ""


def victims(part: str, place: Place) -> list[psutil.Process]:
    """The processes of a part of the run, ascending by number."""
    if part == "driver":
        return [process for process in processes() if process.pid == place.driver]
    found = [process for process in processes() if PATTERNS[part](title(process))]
    return sorted(found, key=lambda process: process.pid)


def inject(kind: str, place: Place, rng: random.Random) -> str:
    """Let a fault befall the run; what was hit, or "" if there is nothing of that kind just now."""
    act, _, part = kind.partition(" ")
    if act in ("kill", "stop"):
        found = victims(part, place)
        return _signal(act, rng.choice(found), part, rng) if found else ""
    return {"full disk": _fill, "slow tool": _slow, "drop connections": _drop}[kind](place, rng)


def _signal(act: str, victim: psutil.Process, part: str, rng: random.Random) -> str:
    """SIGKILL, or SIGSTOP; a driver always goes on again, others every second time."""
    called = part if part == "driver" else "".join(title(victim).split()[:1])
    name, late = f"{called} ({victim.pid})", rng.uniform(2, 20)
    goes_on = rng.random() < 0.5 or part == "driver"
    with suppress(psutil.NoSuchProcess):
        victim.send_signal(signal.SIGKILL if act == "kill" else signal.SIGSTOP)
    if act == "kill" or not goes_on:
        return name
    if part == "driver":
        time.sleep(late / 2)
        _go_on(victim)
        return f"{name}, for {late / 2:.1f} s"
    timer = Timer(late, _go_on, [victim])
    timer.daemon = True
    timer.start()
    return f"{name}, for {late:.1f} s"


def _go_on(victim: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        victim.resume()


def _fill(place: Place, rng: random.Random) -> str:
    """No byte is free on the run's disk until the run has ended, or for 5 to 20 s."""
    until, taken = time.monotonic() + rng.uniform(5, 20), 0
    filler = place.disk / "filler"
    try:
        while time.monotonic() < until and _alive(place.driver):
            taken += _take_all(filler)
            time.sleep(0.1)
    finally:
        filler.unlink(missing_ok=True)
    return f"{place.disk.name}: {taken >> 20} MB"


def _take_all(filler: Path) -> int:
    """Put all that is free into a file; its number of bytes."""
    with suppress(OSError), filler.open("ab") as file:
        free, size = os.statvfs(filler).f_bavail * os.statvfs(filler).f_frsize, file.seek(0, os.SEEK_END)
        if free:
            os.posix_fallocate(file.fileno(), size, free)
        return free
    return 0


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _slow(place: Place, rng: random.Random) -> str:
    """Steps that begin within a second take 5 s, or longer than a turn may (`play.limits.turn_seconds`)."""
    seconds, usual = rng.choice([5, 150]), place.slow.read_text()
    place.slow.write_text(f"{seconds}")
    time.sleep(1.0)
    place.slow.write_text(usual)
    return f"steps of {seconds} s"


def _drop(place: Place, rng: random.Random) -> str:
    """Every connection is cut, or no packet arrives for some seconds."""
    if rng.random() < 0.5:
        cut = _run("ss", "-KHt", "state", "established").count("\n")
        return f"{cut} connections cut" if cut else ""
    seconds = rng.uniform(1, 12)
    with _no_loopback():
        time.sleep(seconds)
    return f"loopback down for {seconds:.1f} s"


@contextmanager
def _no_loopback() -> Iterator[None]:
    _run("ip", "link", "set", "lo", "down")
    try:
        yield
    finally:
        _run("ip", "link", "set", "lo", "up")


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
