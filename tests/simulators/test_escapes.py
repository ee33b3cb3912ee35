"""The escape suite: nothing that a model's code or SQL does gets out, and the model is told what happened.

Around every attack stand canaries: a file and an environment variable with a secret, an inherited descriptor,
listening sockets, a process to kill, a path where nothing may appear. The same attacks unconfined show that the
canaries sing.
"""

import contextlib
import os
import platform
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

import psutil
import pytest

from simulators.confine.code import find_obstacle, run_python
from simulators.confine.sql import Database, Limits
from tests.simulators.hostile_code import ATTACKS, EVERY_CALL, KERNEL, Attack
from tests.simulators.hostile_sql import QUERIES, SCRIPT

PROJECT = Path(__file__).parents[2]
confined = pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle())
x86 = platform.machine() == "x86_64"


class Canaries:
    """What must not be reached. `sang` names what was, and forgets it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.token = folder, secrets.token_hex(8)
        self.canary, self.marker = folder / "canary.txt", folder / "marker"
        self.heard: list[bytes] = []
        self.sockets = []
        for family, kind, address in (
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            (socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "socket")),
            (socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self.token[::-1]}"),
        ):
            listener = socket.socket(family, kind)
            listener.bind(address)
            if kind == socket.SOCK_STREAM:
                listener.listen()
            self.sockets.append(listener)
            threading.Thread(target=self._listen, args=(listener,), daemon=True).start()
        self.victim = self._born()
        self.lay()
        self.open = os.open(self.canary, os.O_RDONLY)
        os.set_inheritable(self.open, True)

    def lay(self) -> None:
        """Puts everything where it was."""
        self.canary.write_text(self.token)
        self.marker.unlink(missing_ok=True)
        self.heard.clear()
        if self.victim.poll() is not None:
            self.victim = self._born()

    def _born(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["sleep", "600"])

    def fill(self, code: str) -> str:
        """The attack with the canaries' addresses."""
        for name, value in {
            "CANARY": self.canary, "MARKER": self.marker, "TOKEN": self.token, "VICTIM": self.victim.pid,
            "TCP": self.sockets[0].getsockname()[1], "UDP": self.sockets[1].getsockname()[1],
            "SOCKET": self.folder / "socket", "ABSTRACT": self.token[::-1], "PROJECT": PROJECT,
            "PACKAGES": sysconfig.get_path("purelib"),
        }.items():  # fmt: skip
            code = code.replace(f"@{name}@", str(value))
        return code

    def sang(self, stdout: str, stderr: str = "") -> set[str]:
        """What was reached; a traceback shows the attack's own lines."""
        found = {"secret"} if self.token in stdout + stderr else set()
        found |= {"print"} if "ESCAPED" in stdout else set()
        found |= {"marker"} if self.marker.exists() else set()
        found |= {"canary"} if not self.canary.exists() or self.canary.read_text() != self.token else set()
        found |= {"victim"} if self.victim.poll() is not None else set()
        found |= {"network"} if self.heard else set()
        return found

    def sing(self, *output: str) -> bool:
        """Whether anything is reached within a while."""
        for _ in range(200):
            if self.sang(*output):
                return True
            time.sleep(0.05)
        return False

    def close(self) -> None:
        """Ends everything."""
        self.victim.kill()
        self.victim.wait()
        for listener in self.sockets:
            listener.close()
        os.close(self.open)

    def _listen(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken = listener if listener.type == socket.SOCK_DGRAM else listener.accept()[0]
                self.heard.append(taken.recv(100))


@pytest.fixture(scope="module")
def laid(tmp_path_factory):
    canaries = Canaries(tmp_path_factory.mktemp("canaries"))
    os.environ["ARENA_TEST_SECRET"] = canaries.token
    yield canaries
    del os.environ["ARENA_TEST_SECRET"]
    canaries.close()


@pytest.fixture
def canaries(laid):
    laid.lay()
    return laid


def test_there_are_enough_cases():
    assert len(ATTACKS) + len(KERNEL) + len(QUERIES) >= 200
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    assert len({query.sql for query in QUERIES}) == len(QUERIES)


@confined
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_code_stays_in(attack: Attack, canaries):
    if "call(" in attack.code and not x86:
        pytest.skip("numbers of x86_64")
    seconds = 0.5 if "out of time" in attack.seen else 20
    outcome = run_python(canaries.fill(attack.code), seconds=seconds, memory_mb=256, output_bytes=20_000)
    told = outcome.observation()
    assert canaries.sang(outcome.stdout, outcome.stderr) == set(), told
    assert attack.seen in told
    assert len(told) < 21_000


@pytest.fixture(scope="module")
def answers():
    told = run_python(EVERY_CALL, seconds=20).stdout
    return {name: next(line for line in told.splitlines() if line.startswith(name)) for name in KERNEL}


@confined
@pytest.mark.skipif(not x86, reason="numbers of x86_64")
@pytest.mark.parametrize("name", KERNEL)
def test_the_kernel_is_out_of_reach(name, answers):
    assert answers[name] == f"{name} [Errno 1] Operation not permitted"


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if attack.works], ids=lambda attack: attack.name)
def test_the_same_code_gets_through_where_nothing_holds_it(attack: Attack, canaries, tmp_path):
    """In a throw-away folder, with what a careless child process would inherit."""
    done = subprocess.run(
        [sys.executable, "-c", canaries.fill(attack.code)],
        capture_output=True, cwd=tmp_path, close_fds=False, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert canaries.sing(done.stdout.decode(), done.stderr.decode()), done.stderr


@confined
def test_nothing_outlives_the_call():
    """Whatever processes were seen below ours during a run are gone after it, however it ended."""
    me, seen, stop = psutil.Process(), set(), threading.Event()
    before = set(me.children(recursive=True))  # cells of programs that last, such as a prover's

    def watch_children():
        while not stop.is_set():
            for child in set(me.children(recursive=True)) - before:
                with contextlib.suppress(psutil.Error):
                    if any("cell.py" in word or "code.py" in word for word in child.cmdline()):
                        seen.add(child)
            time.sleep(0.005)

    watch = threading.Thread(target=watch_children)
    watch.start()
    for code, reason in (
        ("import time; time.sleep(9)", "timeout"),
        ("while True: print('x' * 999)", "output"),
        ("import threading as t\nt.Thread(target=t.Event().wait, daemon=True).start()\nt.Event().wait(.2)", ""),
        ("import os, time; time.sleep(.2); os.kill(os.getpid(), 9)", "killed"),
    ):
        assert run_python(code, seconds=0.5).reason == reason
        assert [child for child in list(seen) if child.is_running() and child.status() != "zombie"] == []
    stop.set()
    watch.join()
    assert len(seen) >= 6  # keepers, wardens and prisoners


@confined
def test_nothing_outlives_a_killed_caller(tmp_path):
    """The caller cannot clean up: the kernel does."""
    caller = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from simulators.confine.code import run_python; run_python('while True: pass', seconds=60)",
        ],
        cwd=PROJECT,
    )
    below: list[psutil.Process] = []
    for _ in range(500):
        below = psutil.Process(caller.pid).children(recursive=True)
        if any("/code.py" in _command(child) for child in below) and len(below) == 3:
            break
        time.sleep(0.02)
    assert len(below) == 3
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    assert psutil.wait_procs(below, timeout=10)[1] == []


def _command(process):
    """What it was started with; nothing of one that has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.fixture(scope="module")
def shop():
    return Database(SCRIPT, Limits(seconds=1.0, steps=2_000_000))


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.sql[:40])
def test_sql_stays_in(query, shop, canaries, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = sqlite3.connect(tmp_path / "other.db")
    other.executescript(f"CREATE TABLE canary(secret); INSERT INTO canary VALUES ('{canaries.token}');")
    other.close()
    before, files = list(shop.connection.iterdump()), set(tmp_path.iterdir())
    told = shop.query(canaries.fill(query.sql).replace("@DIR@", str(tmp_path)), write=query.write)
    assert canaries.sang(told) == set()
    assert query.seen in told and (told.startswith("Error: ") or not query.error)
    assert len(told) < 2_000
    assert list(shop.connection.iterdump()) == before
    assert set(tmp_path.iterdir()) == files
    assert shop.query("SELECT 1 AS alive") == '{"columns":["alive"],"rows":[[1]]}'


@pytest.mark.parametrize("query", [query for query in QUERIES if query.works], ids=lambda query: query.sql[:40])
def test_the_same_sql_gets_through_where_nothing_holds_it(query, canaries, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = sqlite3.connect(tmp_path / "other.db")
    other.executescript(f"CREATE TABLE canary(secret); INSERT INTO canary VALUES ('{canaries.token}');")
    other.close()
    open_one = sqlite3.connect(":memory:", isolation_level=None)
    open_one.executescript(SCRIPT)
    before, files = list(open_one.iterdump()), set(tmp_path.iterdir())
    sql = canaries.fill(query.sql).replace("@DIR@", str(tmp_path))
    got = str(open_one.execute(sql).fetchmany(20))
    temporary = open_one.execute("SELECT count(*) FROM sqlite_temp_master").fetchone()[0]
    done = [canaries.token in got, "ESCAPED" in got, len(got) > 1_000_000, set(tmp_path.iterdir()) != files]
    assert any([*done, list(open_one.iterdump()) != before, temporary, got not in ("[]", "[(None,)]")])
