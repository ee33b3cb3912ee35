"""Child processes: answers, errors, printed output, time limits, and cleanup."""

import importlib.util
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from agents.computing import Job
from games.adapters.child import Child, ChildError

SERVER = """
import os
import resource
import subprocess
import tempfile
import time


class Server:
    def __init__(self):
        print("noise")
        self.asked = 0

    def answer(self, asked):
        print("more noise")
        self.asked += 1
        if "divide" in asked:
            return {"quotient": 1 / asked["divide"]}
        if "exit" in asked:
            os._exit(asked["exit"])
        if "write" in asked:
            return {"path": tempfile.mkdtemp(), "core": resource.getrlimit(resource.RLIMIT_CORE)[0]}
        if "start" in asked:
            return {"pid": subprocess.Popen(["sleep", "1000"]).pid}
        time.sleep(asked.get("sleep", 0))
        return {"asked": self.asked, "dropped": asked["drop"], "bad": {1, 2} if "bad" in asked else None}
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    """Process that serves `SERVER`. This process allows core dumps."""
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limits[1], limits[1]))
    path = tmp_path / "counting.py"
    path.write_text(SERVER, "utf-8")
    spec = importlib.util.spec_from_file_location("counting", path)
    assert spec is not None
    process = Child(sys.executable, importlib.util.module_from_spec(spec), "the process")
    yield process
    process.close()
    resource.setrlimit(resource.RLIMIT_CORE, limits)


def test_answers_exclude_printed_output_and_errors_keep_the_state(child: Child) -> None:
    child.discard_rollout(7)
    assert child.ask({}, 30) == {"asked": 1, "dropped": [7], "bad": None}
    with pytest.raises(ChildError, match=r"^ZeroDivisionError: division by zero$"):
        child.ask({"divide": 0}, 30)
    with pytest.raises(ChildError, match=r"TypeError: .*not JSON serializable"):
        child.ask({"bad": True}, 30)
    assert child.ask({}, 30) == {"asked": 4, "dropped": [], "bad": None} and child.owner is None


def test_ended_process_raises_child_error(child: Child) -> None:
    with pytest.raises(ChildError, match="the process has ended"):
        child.ask({"exit": 3}, 30)
    assert not child.is_alive


def test_hanging_process_is_killed_with_its_children(child: Child) -> None:
    started = psutil.Process(child.ask({"start": True}, 30)["pid"])
    with pytest.raises(ChildError, match="no answer in time"):
        child.ask({"sleep": 1000, "rollout": 1}, 1)
    assert not child.is_alive
    assert wait_until_ended([started]) == []


def wait_until_ended(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that do not end within ten seconds."""
    _, alive = psutil.wait_procs(processes, timeout=10)
    return [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def test_killed_process_leaves_no_temporary_files_and_no_core_dump(child: Child) -> None:
    answer = child.ask({"write": True}, 30)
    path = Path(answer["path"])
    assert answer["core"] == 0 and path.is_dir()
    psutil.Process(child.pid).kill()
    child.close()
    assert not path.parent.exists()


def test_process_leaves_nothing_when_arena_is_killed(child: Child) -> None:
    path = Path(child.ask({"write": True}, 30)["path"])
    processes = [psutil.Process(child.ask({"start": True}, 30)["pid"]), psutil.Process(child.pid)]
    assert child._process.stdin is not None
    child._process.stdin.close()
    assert wait_until_ended(processes) == []
    for _ in range(1000):
        if not path.parent.exists():
            break
        time.sleep(0.01)
    assert not path.parent.exists()


def test_interrupted_request_ends_the_process_whose_answer_is_missing(child: Child) -> None:
    job = Job(lambda: child.ask({"sleep": 0.5}, 30))

    def run() -> None:
        with suppress(BaseException):
            job.run()

    thread = threading.Thread(target=run)
    thread.start()
    while child.owner is None:
        time.sleep(0.01)
    job.interrupt()
    thread.join(30)
    assert not thread.is_alive() and not child.is_alive
