"""A model's Python: what it may do works, how it ended is said, and no cell means no run. Attacks: test_escapes.py."""

import errno
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulators.confine import ConfineError, cells, code
from simulators.confine.code import Outcome, find_obstacle, run_python
from simulators.confine.syscalls import ALLOWED, CLONE, CLONE3, COMPUTING, IOCTL, PRLIMIT64, SOCKETPAIR, build_filter

PROJECT = Path(__file__).parents[2]
confined = pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle())


@confined
@pytest.mark.parametrize(
    ("program", "printed"),
    [
        ("print(6 * 7)", "42\n"),
        ("import sys; print(sys.stdin.read(), sys.argv[1:])", "héllo []\n"),
        ("print('ü', '\u4e2d')", "ü 中\n"),
        ("open('a', 'w').write('x' * 9); print(open('a').read(), __import__('os').getcwd())", "xxxxxxxxx /scratch\n"),
        ("import tempfile as t\nwith t.NamedTemporaryFile() as f: f.write(b'x'); print(len(f.name) > 9)", "True\n"),
        ("from fractions import Fraction as F; print(sum(F(1, n) for n in range(1, 5)))", "25/12\n"),
        ("from concurrent.futures import ThreadPoolExecutor as P\nprint(list(P(4).map(abs, [-1, 2])))", "[1, 2]\n"),
        ("import asyncio\nasync def f():\n  await asyncio.sleep(0); print('a')\nasyncio.run(f())", "a\n"),
        ("import sqlite3 as s; c = s.connect('x.db'); print(c.execute('select 1').fetchall())", "[(1,)]\n"),
        ("import ssl, lzma, bz2, zlib, decimal, ctypes, hashlib, json, re, statistics; print('all')", "all\n"),
        (
            "from signal import *\nsignal(SIGALRM, lambda *_: print('rang'))\nsetitimer(ITIMER_REAL, 0.01)\npause()",
            "rang\n",
        ),
        ("if __name__ == '__main__': print('main')", "main\n"),
    ],
)
def test_what_runs(program, printed):
    outcome = run_python(program, stdin="héllo", seconds=20)
    assert (outcome.stdout, outcome.stderr) == (printed, "")


@confined
def test_a_failure_is_told_by_its_traceback():
    outcome = run_python("def half(n):\n    return n / 0\n\nprint('before')\nhalf(1)\n", seconds=20)
    assert (outcome.stdout, outcome.reason) == ("before\n", "")
    assert 'File "/code.py", line 2, in half' in outcome.stderr
    assert outcome.observation().endswith("ZeroDivisionError: division by zero")
    assert run_python("if", seconds=20).stderr.endswith("SyntaxError: invalid syntax\n")
    assert run_python("", seconds=20).observation() == "[no output]"


@confined
def test_nothing_of_this_machine_is_named():
    seen = run_python(
        "import sys, os, json; print(sys.path, sys.executable, os.environ, json.__file__); json.loads('{')"
    )
    assert str(Path.home()) not in seen.stdout + seen.stderr
    assert "/python/lib" in seen.stderr


@confined
def test_the_same_code_gives_the_same_output():
    """Hashes and addresses do not depend on chance; the time and random numbers do."""
    program = "print({'b', 'a', 'c'}, hash('x'), object())"
    assert len({run_python(program, seconds=20).stdout for _ in range(5)}) == 1


@confined
def test_why_it_was_stopped():
    assert run_python("while True: pass", seconds=0.5).reason == "timeout"
    assert run_python("import time; time.sleep(60)", seconds=0.1).reason == "timeout"
    assert run_python("bytes(10 ** 12)", seconds=20).reason == "memory"
    assert run_python("import os; os.kill(os.getpid(), 11)", seconds=20).reason == "killed"
    flood = run_python("while True: print('é' * 99)", seconds=20, output_bytes=1_001)
    assert flood.reason == "output" and len(flood.stdout.encode()) <= 1_003
    both = run_python("import sys; print('a' * 60); print('b' * 60, file=sys.stderr)", seconds=20, output_bytes=100)
    assert both.reason == "output" and len(both.stdout + both.stderr) == 100
    assert run_python("x" * 200_000).reason == "refused"
    assert run_python("print('\ud800')").observation().endswith("(lone surrogates)\n[refused]")


@confined
def test_a_late_answer_is_no_answer():
    """A trickle of output does not keep the clock from running out."""
    trickle = "import time\nwhile True: print('.', end='', flush=True); time.sleep(0.005)"
    outcome = run_python(trickle, seconds=0.2)
    assert outcome.reason == "timeout" and outcome.stdout.startswith("..")


@confined
def test_each_run_starts_anew():
    run_python("open('left', 'w').write('x'); import os; os.mkdir('d')", seconds=20)
    assert run_python("import os; print(os.listdir('.'), os.listdir('/scratch'))", seconds=20).stdout == "[] []\n"


@confined
def test_many_at_once():
    got: dict[int, Outcome] = {}
    runs = [
        threading.Thread(target=lambda n=n: got.update({n: run_python(f"print({n} ** 2)", seconds=20)}))
        for n in range(8)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert [got[n].stdout for n in range(8)] == [f"{n**2}\n" for n in range(8)]


@confined
def test_no_descriptor_is_left_open():
    run_python("1")
    before = len(os.listdir("/proc/self/fd"))
    for program in ("1", "1 / 0", "while True: print('x' * 999)"):
        run_python(program)
    assert len(os.listdir("/proc/self/fd")) == before


@confined
def test_what_the_caller_has_set_does_not_matter(tmp_path):
    """A strict umask, blocked signals, a folder of its own."""
    program = """
import os, signal, time
from simulators.confine.code import run_python
os.umask(0o077)
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
os.chdir(os.environ["FOLDER"])
print(run_python("print(6 * 7)", seconds=20).stdout)
started = time.monotonic()
print(run_python("import time; time.sleep(60)", seconds=0.1).reason, time.monotonic() - started < 9)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, cwd=PROJECT, env={**os.environ, "FOLDER": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.split() == ["42", "timeout", "True"]


@pytest.mark.parametrize("wrong", [{"seconds": 0}, {"seconds": float("nan")}, {"memory_mb": 3}, {"output_bytes": -1}])
@confined
def test_limits_must_make_sense(wrong):
    with pytest.raises(ValueError, match="seconds must be positive"):
        run_python("1", **wrong)


@confined
@settings(max_examples=10, deadline=None)
@given(st.text(max_size=60))
def test_any_text_gives_an_outcome(text):
    assert isinstance(run_python(text, seconds=1, output_bytes=1_000), Outcome)


CALLER = "from simulators.confine.code import run_python, find_obstacle; print(run_python('print(6 * 7)').stdout)"


@pytest.mark.skipif(
    os.name != "posix" or os.getuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare"
)
@pytest.mark.parametrize(
    ("system", "why"),
    [
        ("echo 0 > /proc/sys/user/max_user_namespaces; exec", "set: sysctl user.max_user_namespaces"),
        ("exec", "a trial got through to threads; run as an ordinary user"),
    ],
)
def test_without_a_cell_nothing_runs(system, why):
    """In a namespace where cells cannot be built, or do not hold: the line says why, and the code does not run."""
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", f'{system} "$@"', "sh", sys.executable, "-c", CALLER],
        capture_output=True, text=True, cwd=PROJECT,
    )  # fmt: skip
    last = done.stderr.strip().splitlines()[-1]
    assert "ConfineError: generated code cannot be confined here: " in last and why in last
    assert "42" not in done.stdout


@confined
def test_a_cell_that_cannot_be_built_is_no_cell(monkeypatch):
    monkeypatch.setattr(cells, "build_filter", lambda machine: b"\xff" * 8)
    with pytest.raises(ConfineError, match="install the filter: Invalid argument"):
        run_python("print(1)")


@confined
@pytest.mark.parametrize(
    ("script", "why"),
    [("import os; os.kill(os.getpid(), 9)", r"ended by signal 9 \(Killed\) before it started"),
     ("import time; time.sleep(9)", "did not start in 0.2 s")],
)  # fmt: skip
def test_a_cell_that_dies_or_hangs_once_is_no_verdict_on_this_system(monkeypatch, tmp_path, script, why):
    cell = tmp_path / "cell.py"
    cell.write_text(script)
    with monkeypatch.context() as patch:
        patch.setattr(cells, "CELL", cell)
        patch.setattr(cells, "START_SECONDS", 0.2)
        code._try_escape.cache_clear()
        with pytest.raises(ConfineError, match=why):
            run_python("print(1)")
    assert run_python("print(1)").stdout == "1\n"


def test_other_systems_are_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    code._try_escape.cache_clear()
    try:
        with pytest.raises(ConfineError, match="needs Linux"):
            run_python("print(1)")
    finally:
        code._try_escape.cache_clear()


def numbers(header: str, *options: str) -> dict[str, int]:
    """What the C preprocessor makes of a header of system call numbers."""
    done = subprocess.run(
        ["cc", "-E", "-dM", *options, "-x", "c", "-"], input=f"#include <{header}>", capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip("no C preprocessor with Linux's headers")
    named: dict[str, str] = dict(re.findall(r"#define (__NR\w*) (\S+)", done.stdout))
    return {key[5:]: int(named.get(value, value)) for key, value in named.items() if named.get(value, value).isdigit()}


SPECIAL = {"clone": CLONE, "clone3": CLONE3, "prlimit64": PRLIMIT64, "ioctl": IOCTL, "socketpair": SOCKETPAIR}


@pytest.mark.skipif(platform.machine() != "x86_64" or not shutil.which("cc"), reason="needs x86_64 and a C compiler")
def test_the_numbers_are_the_kernels():
    wants = [f"-D__ARCH_WANT_{name}" for name in ("RENAMEAT", "NEW_STAT", "SET_GET_RLIMIT", "SYS_CLONE3")]
    tables = numbers("asm/unistd_64.h"), numbers("asm-generic/unistd.h", *wants)
    for name, pair in {**ALLOWED, **SPECIAL}.items():
        assert (name, *pair) == (name, *(table.get(name, -1) for table in tables))


@pytest.mark.parametrize("calls", [ALLOWED, COMPUTING], ids=["cell", "sql"])
@pytest.mark.parametrize(("machine", "column", "audit"), [("x86_64", 0, 0xC000003E), ("aarch64", 1, 0xC00000B7)])
def test_the_filter_allows_its_list_and_nothing_else(calls, machine, column, audit):
    """The program interpreted here, for every number up to 1,000 and x32's, on both machines."""
    program = build_filter(machine, calls)
    instructions = [struct.unpack("=HBBI", program[at : at + 8]) for at in range(0, len(program), 8)]

    def verdict(number: int, *arguments: int, arch: int = audit) -> int:
        data = {0: number, 4: arch} | {16 + 8 * n: value & 0xFFFFFFFF for n, value in enumerate(arguments)}
        at, register = 0, 0
        while True:
            operation, yes, no, value = instructions[at]
            at += 1
            if operation == 0x20:
                register = data.get(value, 0)
            elif operation == 0x54:
                register &= value
            elif operation == 0x15:
                at += yes if register == value else no
            else:
                return value

    allow, deny = 0x7FFF0000, 0x00050000 | errno.EPERM
    listed = {pair[column] for pair in calls.values()}
    special = {pair[column] for pair in SPECIAL.values()}
    for number in {*range(1_000), *(0x40000000 + n for n in range(600))} - special:
        assert verdict(number) == (allow if number in listed else deny)
    assert verdict(0, arch=0x40000003) == 0x80000000  # 32-bit calls kill
    assert verdict(PRLIMIT64[column], 0) == allow and verdict(PRLIMIT64[column], 1) == deny
    if calls is ALLOWED:
        assert verdict(CLONE[column], 0x3D0F00) == allow  # a thread
        for flags in (17, 0x4111, 0x10000000, 0x10010000, 0x20010000 | 0x3D0F00, 0x10080):
            assert verdict(CLONE[column], flags) == deny
        assert verdict(CLONE3[column]) == 0x00050000 | errno.ENOSYS
        assert verdict(SOCKETPAIR[column], 1) == allow and verdict(SOCKETPAIR[column], 2) == deny
        assert verdict(IOCTL[column], 0, 0x5401) == allow and verdict(IOCTL[column], 0, 0x5412) == deny
    else:
        assert all(verdict(pair[column], 1) == deny for name, pair in SPECIAL.items() if name != "prlimit64")
