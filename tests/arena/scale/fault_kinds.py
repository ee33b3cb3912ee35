"""Kinds of faults: their victims and actions. All of a run's processes are in this process's network namespace.

The namespace identifies them under any name and parent: a process cannot leave it by mistake.
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
    "task": lambda title: title.startswith("ray::_run_call"),
}
"""Titles of the processes of each part, as Ray sets them."""
MIX = {
    "kill engine": 40, "kill rank": 30, "kill task": 20, "kill driver": 30, "stop engine": 15, "stop rank": 15,
    "stop task": 5, "stop driver": 10, "full disk": 15, "slow tool": 10, "drop connections": 10,
}  # fmt: skip
"""Kinds of faults and their counts in 200. `stop` sends SIGSTOP, and every second time SIGCONT some seconds later;
connections are cut, or the loopback is down for some seconds."""
SINGLE_PROCESS = ("kill driver", "stop driver", "full disk", "slow tool")
"""Kinds that apply to a run in one process."""


@dataclass(frozen=True)
class RunPlace:
    """A run's driver, the disk of its folder, and the file with the duration of a slow step."""

    driver: int
    disk: Path
    slow: Path


def read_namespace(pid: int | str = "self") -> str:
    """Return a process's network namespace, "" if it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def list_processes() -> list[psutil.Process]:
    """Return all other processes in this one's namespace."""
    own_namespace, processes = read_namespace(), []
    for pid in psutil.pids():
        if pid != os.getpid() and read_namespace(pid) == own_namespace:
            with suppress(psutil.NoSuchProcess):
                processes.append(psutil.Process(pid))
    return processes


def read_title(process: psutil.Process) -> str:
    """Return a process's title, "" if it has ended."""
    try:
        return " ".join(process.cmdline())[:120].strip()
    except psutil.Error:
        return ""


def find_victims(part: str, place: RunPlace) -> list[psutil.Process]:
    """Return the processes of a part of the run, sorted by process id."""
    if part == "driver":
        return [process for process in list_processes() if process.pid == place.driver]
    processes = [process for process in list_processes() if PATTERNS[part](read_title(process))]
    return sorted(processes, key=lambda process: process.pid)


def inject(kind: str, place: RunPlace, rng: random.Random) -> str:
    """Inject a fault and return what was hit, "" if there is no victim at present."""
    act, _, part = kind.partition(" ")
    if act in ("kill", "stop"):
        candidates = find_victims(part, place)
        return _send_signal(act, rng.choice(candidates), part, rng) if candidates else ""
    return {"full disk": _fill_disk, "slow tool": _slow_down, "drop connections": _drop_connections}[kind](place, rng)


def _send_signal(act: str, victim: psutil.Process, part: str, rng: random.Random) -> str:
    """Send SIGKILL or SIGSTOP. A stopped driver always continues, other processes every second time."""
    short_title = part if part == "driver" else "".join(read_title(victim).split()[:1])
    name, delay = f"{short_title} ({victim.pid})", rng.uniform(2, 20)
    continues = rng.random() < 0.5 or part == "driver"
    with suppress(psutil.NoSuchProcess):
        victim.send_signal(signal.SIGKILL if act == "kill" else signal.SIGSTOP)
    if act == "kill" or not continues:
        return name
    if part == "driver":
        time.sleep(delay / 2)
        _continue(victim)
        return f"{name}, for {delay / 2:.1f} s"
    timer = Timer(delay, _continue, [victim])
    timer.daemon = True
    timer.start()
    return f"{name}, for {delay:.1f} s"


def _continue(victim: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        victim.resume()


def _fill_disk(place: RunPlace, rng: random.Random) -> str:
    """Fill the run's disk for 5 to 20 s, or until the run ends."""
    until, filled = time.monotonic() + rng.uniform(5, 20), 0
    filler = place.disk / "filler"
    try:
        while time.monotonic() < until and _is_alive(place.driver):
            filled += _fill_free_space(filler)
            time.sleep(0.1)
    finally:
        filler.unlink(missing_ok=True)
    return f"{place.disk.name}: {filled >> 20} MB"


def _fill_free_space(filler: Path) -> int:
    """Fill all free space with a file and return its number of bytes."""
    with suppress(OSError), filler.open("ab") as file:
        free, size = os.statvfs(filler).f_bavail * os.statvfs(filler).f_frsize, file.seek(0, os.SEEK_END)
        if free:
            os.posix_fallocate(file.fileno(), size, free)
        return free
    return 0


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _slow_down(place: RunPlace, rng: random.Random) -> str:
    """Let steps that start within one second take 5 s, or longer than `play.limits.turn_seconds`."""
    seconds, usual = rng.choice([5, 150]), place.slow.read_text()
    place.slow.write_text(f"{seconds}")
    time.sleep(1.0)
    place.slow.write_text(usual)
    return f"steps of {seconds} s"


def _drop_connections(place: RunPlace, rng: random.Random) -> str:
    """Cut all connections, or take the loopback down for some seconds."""
    if rng.random() < 0.5:
        cut = _run("ss", "-KHt", "state", "established").count("\n")
        return f"{cut} connections cut" if cut else ""
    seconds = rng.uniform(1, 12)
    with _without_loopback():
        time.sleep(seconds)
    return f"loopback down for {seconds:.1f} s"


@contextmanager
def _without_loopback() -> Iterator[None]:
    _run("ip", "link", "set", "lo", "down")
    try:
        yield
    finally:
        _run("ip", "link", "set", "lo", "up")


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
