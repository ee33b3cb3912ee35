"""The escape suite: model-written code and SQL cannot escape, and the model reads what happened.

Every attack is surrounded by canaries: a file and an environment variable with a secret, an inherited descriptor,
listening sockets, a process to kill, and a path where nothing may appear. Running the same attacks unconfined shows
that the canaries detect them.
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
needs_confinement = pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle())
is_x86 = platform.machine() == "x86_64"


class Canaries:
    """Resources that attacks must not reach, and detection of those that were reached."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.token = folder, secrets.token_hex(8)
        self.canary, self.marker = folder / "canary.txt", folder / "marker"
        self.received: list[bytes] = []
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
        self.victim = self._start_victim()
        self.reset()
        self.open = os.open(self.canary, os.O_RDONLY)
        os.set_inheritable(self.open, True)

    def reset(self) -> None:
        """Restore all canaries."""
        self.canary.write_text(self.token)
        self.marker.unlink(missing_ok=True)
        self.received.clear()
        if self.victim.poll() is not None:
            self.victim = self._start_victim()

    def _start_victim(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["sleep", "600"])

    def fill(self, code: str) -> str:
        """Fill the canaries' addresses into an attack's code."""
        for name, value in {
            "CANARY": self.canary, "MARKER": self.marker, "TOKEN": self.token, "VICTIM": self.victim.pid,
            "TCP": self.sockets[0].getsockname()[1], "UDP": self.sockets[1].getsockname()[1],
            "SOCKET": self.folder / "socket", "ABSTRACT": self.token[::-1], "PROJECT": PROJECT,
            "PACKAGES": sysconfig.get_path("purelib"),
        }.items():  # fmt: skip
            code = code.replace(f"@{name}@", str(value))
        return code

    def find_reached(self, stdout: str, stderr: str = "") -> set[str]:
        """Return the names of reached canaries. In stderr, only the secret counts, as tracebacks quote the attack."""
        reached = {"secret"} if self.token in stdout + stderr else set()
        reached |= {"print"} if "ESCAPED" in stdout else set()
        reached |= {"marker"} if self.marker.exists() else set()
        reached |= {"canary"} if not self.canary.exists() or self.canary.read_text() != self.token else set()
        reached |= {"victim"} if self.victim.poll() is not None else set()
        reached |= {"network"} if self.received else set()
        return reached

    def is_reached_soon(self, *output: str) -> bool:
        """Wait up to ten seconds; return whether any canary was reached."""
        for _ in range(200):
            if self.find_reached(*output):
                return True
            time.sleep(0.05)
        return False

    def close(self) -> None:
        """Stop the process and close the sockets."""
        self.victim.kill()
        self.victim.wait()
        for listener in self.sockets:
            listener.close()
        os.close(self.open)

    def _listen(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listener if listener.type == socket.SOCK_DGRAM else listener.accept()[0]
                self.received.append(connection.recv(100))


@pytest.fixture(scope="module")
def shared_canaries(tmp_path_factory):
    canaries = Canaries(tmp_path_factory.mktemp("canaries"))
    os.environ["ARENA_TEST_SECRET"] = canaries.token
    yield canaries
    del os.environ["ARENA_TEST_SECRET"]
    canaries.close()


@pytest.fixture
def canaries(shared_canaries):
    shared_canaries.reset()
    return shared_canaries


def test_there_are_enough_cases():
    assert len(ATTACKS) + len(KERNEL) + len(QUERIES) >= 200
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    assert len({query.sql for query in QUERIES}) == len(QUERIES)


@needs_confinement
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_code_cannot_escape(attack: Attack, canaries):
    if "call(" in attack.code and not is_x86:
        pytest.skip("numbers of x86_64")
    seconds = 0.5 if "out of time" in attack.expected else 20
    outcome = run_python(canaries.fill(attack.code), seconds=seconds, memory_mb=256, output_bytes=20_000)
    observation = outcome.observation()
    assert canaries.find_reached(outcome.stdout, outcome.stderr) == set(), observation
    assert attack.expected in observation
    assert len(observation) < 21_000


@pytest.fixture(scope="module")
def kernel_answers():
    output = run_python(EVERY_CALL, seconds=20).stdout
    return {name: next(line for line in output.splitlines() if line.startswith(name)) for name in KERNEL}


@needs_confinement
@pytest.mark.skipif(not is_x86, reason="numbers of x86_64")
@pytest.mark.parametrize("name", KERNEL)
def test_kernel_interfaces_are_blocked(name, kernel_answers):
    assert kernel_answers[name] == f"{name} [Errno 1] Operation not permitted"


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if attack.works], ids=lambda attack: attack.name)
def test_code_escapes_unconfined(attack: Attack, canaries, tmp_path):
    """Run in a temporary folder with everything that an unconfined child process would inherit."""
    process = subprocess.run(
        [sys.executable, "-c", canaries.fill(attack.code)],
        capture_output=True, cwd=tmp_path, close_fds=False, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert canaries.is_reached_soon(process.stdout.decode(), process.stderr.decode()), process.stderr


@needs_confinement
def test_no_process_outlives_the_call():
    """All descendants seen during a run are gone after it, however it ended."""
    this_process, observed, stop = psutil.Process(), set(), threading.Event()
    before = set(this_process.children(recursive=True))  # cells of long-running programs, such as provers

    def watch_children():
        while not stop.is_set():
            for child in set(this_process.children(recursive=True)) - before:
                with contextlib.suppress(psutil.Error):
                    if any("cell.py" in word or "code.py" in word for word in child.cmdline()):
                        observed.add(child)
            time.sleep(0.005)

    watcher = threading.Thread(target=watch_children)
    watcher.start()
    for code, reason in (
        ("import time; time.sleep(9)", "timeout"),
        ("while True: print('x' * 999)", "output"),
        ("import threading as t\nt.Thread(target=t.Event().wait, daemon=True).start()\nt.Event().wait(.2)", ""),
        ("import os, time; time.sleep(.2); os.kill(os.getpid(), 9)", "killed"),
    ):
        assert run_python(code, seconds=0.5).reason == reason
        assert [child for child in list(observed) if child.is_running() and child.status() != "zombie"] == []
    stop.set()
    watcher.join()
    assert len(observed) >= 6  # supervisors, inits and confined processes


@needs_confinement
def test_no_process_outlives_a_killed_caller(tmp_path):
    """A killed caller cannot clean up, so the kernel must."""
    caller = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from simulators.confine.code import run_python; run_python('while True: pass', seconds=60)",
        ],
        cwd=PROJECT,
    )
    descendants: list[psutil.Process] = []
    for _ in range(500):
        descendants = psutil.Process(caller.pid).children(recursive=True)
        if any("/code.py" in read_command(child) for child in descendants) and len(descendants) == 3:
            break
        time.sleep(0.02)
    assert len(descendants) == 3
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    assert psutil.wait_procs(descendants, timeout=10)[1] == []


def read_command(process):
    """Return the process's command line, or [] if it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.fixture(scope="module")
def shop():
    return Database(SCRIPT, Limits(seconds=1.0, steps=2_000_000))


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.sql[:40])
def test_sql_cannot_escape(query, shop, canaries, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = sqlite3.connect(tmp_path / "other.db")
    other.executescript(f"CREATE TABLE canary(secret); INSERT INTO canary VALUES ('{canaries.token}');")
    other.close()
    before, files = list(shop.connection.iterdump()), set(tmp_path.iterdir())
    answer = shop.query(canaries.fill(query.sql).replace("@DIR@", str(tmp_path)), write=query.write)
    assert canaries.find_reached(answer) == set()
    assert query.expected in answer and (answer.startswith("Error: ") or not query.error)
    assert len(answer) < 2_000
    assert list(shop.connection.iterdump()) == before
    assert set(tmp_path.iterdir()) == files
    assert shop.query("SELECT 1 AS alive") == '{"columns":["alive"],"rows":[[1]]}'


@pytest.mark.parametrize("query", [query for query in QUERIES if query.works], ids=lambda query: query.sql[:40])
def test_sql_escapes_unconfined(query, canaries, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = sqlite3.connect(tmp_path / "other.db")
    other.executescript(f"CREATE TABLE canary(secret); INSERT INTO canary VALUES ('{canaries.token}');")
    other.close()
    unconfined = sqlite3.connect(":memory:", isolation_level=None)
    unconfined.executescript(SCRIPT)
    before, files = list(unconfined.iterdump()), set(tmp_path.iterdir())
    sql = canaries.fill(query.sql).replace("@DIR@", str(tmp_path))
    result = str(unconfined.execute(sql).fetchmany(20))
    temporary = unconfined.execute("SELECT count(*) FROM sqlite_temp_master").fetchone()[0]
    effects = [canaries.token in result, "ESCAPED" in result, len(result) > 1_000_000, set(tmp_path.iterdir()) != files]
    assert any([*effects, list(unconfined.iterdump()) != before, temporary, result not in ("[]", "[(None,)]")])
