"""Child processes: answers, errors, what a server prints, time limits, and what stays after the end."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from games.adapters.child import Child, ChildError

SERVER = """
import os
import subprocess
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
        if "start" in asked:
            return {"pid": subprocess.Popen(["sleep", "1000"]).pid}
        time.sleep(asked.get("sleep", 0))
        return {"asked": self.asked, "dropped": asked["drop"], "bad": {1, 2} if "bad" in asked else None}
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    """Process that serves the class above."""
    path = tmp_path / "counting.py"
    path.write_text(SERVER, "utf-8")
    spec = importlib.util.spec_from_file_location("counting", path)
    assert spec is not None
    served = Child(sys.executable, importlib.util.module_from_spec(spec), "the process")
    yield served
    served.close()


def test_answers_are_free_of_what_the_server_prints_and_errors_keep_its_state(child: Child) -> None:
    child.forget(7)
    assert child.ask({}, 30) == {"asked": 1, "dropped": [7], "bad": None}
    with pytest.raises(ChildError, match=r"^ZeroDivisionError: division by zero$"):
        child.ask({"divide": 0}, 30)
    with pytest.raises(ChildError, match=r"TypeError: .*not JSON serializable"):
        child.ask({"bad": True}, 30)
    assert child.ask({}, 30) == {"asked": 4, "dropped": [], "bad": None} and child.owner is None


def test_a_process_that_ends_is_told(child: Child) -> None:
    with pytest.raises(ChildError, match="the process has ended"):
        child.ask({"exit": 3}, 30)
    assert not child.is_alive


def test_a_process_that_hangs_ends_with_all_that_it_started(child: Child) -> None:
    started = psutil.Process(child.ask({"start": True}, 30)["pid"])
    with pytest.raises(ChildError, match="no answer in time"):
        child.ask({"sleep": 1000, "rollout": 1}, 1)
    assert not child.is_alive
    _, alive = psutil.wait_procs([started], timeout=10)
    assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []
