"""The reaper: whoever a killed process had started ends with it, also those that were just starting."""

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
nap = [sys.executable, "-c", "import subprocess, sys, time; subprocess.Popen(['sleep', '999']); time.sleep(999)"]
print(subprocess.Popen(nap, start_new_session=True).pid, flush=True)
time.sleep(999)
"""


def test_all_who_were_started_end_with_a_killed_owner(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    other = subprocess.Popen(["sleep", "999"], env={reaper.MARK: f"{folder}-of-another"})
    with subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        child = psutil.Process(int(owner.stdout.readline()))
        while not child.children():
            time.sleep(0.01)
        family = [child, *child.children(), *psutil.Process(owner.pid).children()]
        owner.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] and not folder.exists()
    assert other.poll() is None, "nobody else's"
    other.kill()
    other.wait()


def test_one_that_is_terminated_leaves_all_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(reaper.MARK, "")
    started = reaper.watch(tmp_path)
    child = subprocess.Popen(["sleep", "999"])
    started.terminate()
    assert started.wait() == -signal.SIGTERM and child.poll() is None and tmp_path.exists()
    child.kill()
    child.wait()
    assert os.environ[reaper.MARK] == str(tmp_path)
