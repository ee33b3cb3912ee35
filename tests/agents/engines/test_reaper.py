"""The reaper: children of a killed process end with it, also those that are just starting."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from agents.engines import reaper

OWNER = """
import subprocess, sys, time
from pathlib import Path
from agents.engines import reaper
reaper.watch(Path(sys.argv[1]))
code = "import subprocess, sys, time; from multiprocessing.shared_memory import SharedMemory as S; "
code += "shared = S(sys.argv[1], create=True, size=9); subprocess.Popen(['sleep', '999']); "
code += "subprocess.Popen(['sleep', '998'], env={}, stdout=open(sys.argv[2], 'w')); time.sleep(999)"
nap = [sys.executable, "-c", code, sys.argv[2], sys.argv[1] + '/log']
print(subprocess.Popen(nap, start_new_session=True).pid, flush=True)
time.sleep(999)
"""


def test_children_end_with_a_killed_owner(tmp_path: Path) -> None:
    """Also an unmarked one that writes in the folder, as Ray's agents do, whose parent may be dead."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    (tmp_path / "agents.py").write_text("open('taken', 'w')")
    shared = f"arena-test-{os.getpid()}"
    folder.joinpath("read").touch()
    process = subprocess.Popen(["sleep", "999"], env={reaper.MARK: f"{folder}-of-another"})
    reader = subprocess.Popen(["tail", "-f", str(folder / "read")], stdout=subprocess.DEVNULL)
    with subprocess.Popen(
        [sys.executable, "-P", "-c", OWNER, str(folder), shared], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as owner:
        assert owner.stdout is not None
        child = psutil.Process(int(owner.stdout.readline()))
        while len([one for one in child.children() if "sleep" in one.name()]) < 2:
            time.sleep(0.01)
        assert Path("/dev/shm", shared).exists()
        family = [child, *child.children(), *psutil.Process(owner.pid).children()]
        owner.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] and not folder.exists()
    assert not (tmp_path / "taken").exists()
    deadline = time.monotonic() + 20
    while Path("/dev/shm", shared).exists():
        assert time.monotonic() < deadline, "what they shared is cleared away by Python's own tracker"
        time.sleep(0.05)
    for first in (process, reader):
        assert first.poll() is None, "nobody else's"
        first.kill()
        first.wait()


def test_terminated_reaper_kills_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(reaper.MARK, "")
    started = reaper.watch(tmp_path)
    child = subprocess.Popen(["sleep", "999"])
    started.terminate()
    assert started.wait() == -signal.SIGTERM and child.poll() is None and tmp_path.exists()
    child.kill()
    child.wait()
    assert os.environ[reaper.MARK] == str(tmp_path)


def test_owner_may_reap_its_own_children(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    with (folder / "log").open("w") as log:
        child = subprocess.Popen(["sleep", "999"], stdout=log)
        reaper.reap(str(folder))
    assert child.wait() == -signal.SIGKILL and not folder.exists()
