"""A model's Python code: allowed operations, reported outcomes, and refusal without a cell. See test_escapes.py."""

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
needs_confinement = pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle())


@needs_confinement
@pytest.mark.parametrize(
    ("program", "output"),
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
def test_allowed_programs_run(program, output):
    outcome = run_python(program, stdin="héllo", seconds=20)
    assert (outcome.stdout, outcome.stderr) == (output, "")


@needs_confinement
def test_failure_shows_the_traceback():
    outcome = run_python("def half(n):\n    return n / 0\n\nprint('before')\nhalf(1)\n", seconds=20)
    assert (outcome.stdout, outcome.reason) == ("before\n", "")
    assert 'File "/code.py", line 2, in half' in outcome.stderr
    assert outcome.observation().endswith("ZeroDivisionError: division by zero")
    assert run_python("if", seconds=20).stderr.endswith("SyntaxError: invalid syntax\n")
    assert run_python("", seconds=20).observation() == "[no output]"


@needs_confinement
def test_output_reveals_no_host_paths():
    outcome = run_python(
        "import sys, os, json; print(sys.path, sys.executable, os.environ, json.__file__); json.loads('{')"
    )
    assert str(Path.home()) not in outcome.stdout + outcome.stderr
    assert "/python/lib" in outcome.stderr


@needs_confinement
def test_output_is_reproducible():
    """Hashes and addresses are fixed; the time and random numbers are not."""
    program = "print({'b', 'a', 'c'}, hash('x'), object())"
    assert len({run_python(program, seconds=20).stdout for _ in range(5)}) == 1


@needs_confinement
def test_stop_reasons():
    assert run_python("while True: pass", seconds=0.5).reason == "timeout"
    assert run_python("import time; time.sleep(60)", seconds=0.1).reason == "timeout"
    assert run_python("bytes(10 ** 12)", seconds=20).reason == "memory"
    assert run_python("import os; os.kill(os.getpid(), 11)", seconds=20).reason == "killed"
    flood = run_python("while True: print('é' * 99)", seconds=20, output_bytes=1_001)
    assert flood.reason == "output" and len(flood.stdout.encode()) <= 1_003
    mixed = run_python("import sys; print('a' * 60); print('b' * 60, file=sys.stderr)", seconds=20, output_bytes=100)
    assert mixed.reason == "output" and len(mixed.stdout + mixed.stderr) == 100
    assert run_python("x" * 200_000).reason == "refused"
    assert run_python("print('\ud800')").observation().endswith("(lone surrogates)\n[refused]")


@needs_confinement
def test_slow_output_does_not_extend_the_time_limit():
    """Output in small pieces does not extend the time limit."""
    trickle = "import time\nwhile True: print('.', end='', flush=True); time.sleep(0.005)"
    outcome = run_python(trickle, seconds=0.2)
    assert outcome.reason == "timeout" and outcome.stdout.startswith("..")


@needs_confinement
def test_runs_share_no_files():
    run_python("open('left', 'w').write('x'); import os; os.mkdir('d')", seconds=20)
    assert run_python("import os; print(os.listdir('.'), os.listdir('/scratch'))", seconds=20).stdout == "[] []\n"


@needs_confinement
def test_parallel_runs():
    outcomes: dict[int, Outcome] = {}
    runs = [
        threading.Thread(target=lambda n=n: outcomes.update({n: run_python(f"print({n} ** 2)", seconds=20)}))
        for n in range(8)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert [outcomes[n].stdout for n in range(8)] == [f"{n**2}\n" for n in range(8)]


@needs_confinement
def test_no_descriptor_is_left_open():
    run_python("1")
    before = len(os.listdir("/proc/self/fd"))
    for program in ("1", "1 / 0", "while True: print('x' * 999)"):
        run_python(program)
    assert len(os.listdir("/proc/self/fd")) == before


@needs_confinement
def test_runs_do_not_depend_on_the_callers_settings(tmp_path):
    """Run under a strict umask, with blocked signals, in another folder."""
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
    process = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, cwd=PROJECT, env={**os.environ, "FOLDER": str(tmp_path)},
    )  # fmt: skip
    assert process.stdout.split() == ["42", "timeout", "True"]


@pytest.mark.parametrize("limits", [{"seconds": 0}, {"seconds": float("nan")}, {"memory_mb": 3}, {"output_bytes": -1}])
@needs_confinement
def test_refuses_invalid_limits(limits):
    with pytest.raises(ValueError, match="seconds must be positive"):
        run_python("1", **limits)


@needs_confinement
@settings(max_examples=10, deadline=None)
@given(st.text(max_size=60))
def test_any_text_gives_an_outcome(text):
    assert isinstance(run_python(text, seconds=1, output_bytes=1_000), Outcome)


CALLER = "from simulators.confine.code import run_python, find_obstacle; print(run_python('print(6 * 7)').stdout)"


@pytest.mark.skipif(
    os.name != "posix" or os.getuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare"
)
@pytest.mark.parametrize(
    ("system", "message"),
    [
        ("echo 0 > /proc/sys/user/max_user_namespaces; exec", "set: sysctl user.max_user_namespaces"),
        ("exec", "a trial had access to threads; run as an ordinary user"),
    ],
)
def test_code_does_not_run_without_a_cell(system, message):
    """Where cells cannot be built or do not confine, the error names the reason and the code does not run."""
    process = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", f'{system} "$@"', "sh", sys.executable, "-c", CALLER],
        capture_output=True, text=True, cwd=PROJECT,
    )  # fmt: skip
    last = process.stderr.strip().splitlines()[-1]
    assert "ConfineError: generated code cannot be confined here: " in last and message in last
    assert "42" not in process.stdout


@needs_confinement
def test_failing_filter_raises(monkeypatch):
    monkeypatch.setattr(cells, "build_filter", lambda machine: b"\xff" * 8)
    with pytest.raises(ConfineError, match="install the filter: Invalid argument"):
        run_python("print(1)")


@needs_confinement
@pytest.mark.parametrize(
    ("script", "seconds", "message"),
    [("import os; os.kill(os.getpid(), 9)", 20, r"ended by signal 9 \(Killed\) before it started"),
     ("import time; time.sleep(9)", 0.2, "did not start in 0.2 s")],
)  # fmt: skip
def test_failing_cell_is_not_remembered(monkeypatch, tmp_path, script, seconds, message):
    cell = tmp_path / "cell.py"
    cell.write_text(script)
    with monkeypatch.context() as patch:
        patch.setattr(cells, "CELL", cell)
        patch.setattr(cells, "START_SECONDS", seconds)
        code._try_escape.cache_clear()
        with pytest.raises(ConfineError, match=message):
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


def read_call_numbers(header: str, *options: str) -> dict[str, int]:
    """Return the system call numbers of a C header."""
    process = subprocess.run(
        ["cc", "-E", "-dM", *options, "-x", "c", "-"], input=f"#include <{header}>", capture_output=True, text=True
    )
    if process.returncode:
        pytest.skip("no C preprocessor with Linux's headers")
    values: dict[str, str] = dict(re.findall(r"#define (__NR\w*) (\S+)", process.stdout))
    return {
        key[5:]: int(values.get(value, value)) for key, value in values.items() if values.get(value, value).isdigit()
    }


SPECIAL = {"clone": CLONE, "clone3": CLONE3, "prlimit64": PRLIMIT64, "ioctl": IOCTL, "socketpair": SOCKETPAIR}


@pytest.mark.skipif(platform.machine() != "x86_64" or not shutil.which("cc"), reason="needs x86_64 and a C compiler")
def test_call_numbers_match_the_kernel_headers():
    options = [f"-D__ARCH_WANT_{name}" for name in ("RENAMEAT", "NEW_STAT", "SET_GET_RLIMIT", "SYS_CLONE3")]
    tables = read_call_numbers("asm/unistd_64.h"), read_call_numbers("asm-generic/unistd.h", *options)
    for name, pair in {**ALLOWED, **SPECIAL}.items():
        assert (name, *pair) == (name, *(table.get(name, -1) for table in tables))


@pytest.mark.parametrize("calls", [ALLOWED, COMPUTING], ids=["cell", "sql"])
@pytest.mark.parametrize(("machine", "column", "audit"), [("x86_64", 0, 0xC000003E), ("aarch64", 1, 0xC00000B7)])
def test_filter_allows_only_its_list(calls, machine, column, audit):
    """Interpret the filter program for all numbers up to 1,000 and those of x32, on both machines."""
    program = build_filter(machine, calls)
    instructions = [struct.unpack("=HBBI", program[offset : offset + 8]) for offset in range(0, len(program), 8)]

    def evaluate(number: int, *arguments: int, arch: int = audit) -> int:
        data = {0: number, 4: arch} | {16 + 8 * n: value & 0xFFFFFFFF for n, value in enumerate(arguments)}
        offset, register = 0, 0
        while True:
            operation, jump_if_equal, jump_otherwise, value = instructions[offset]
            offset += 1
            if operation == 0x20:
                register = data.get(value, 0)
            elif operation == 0x54:
                register &= value
            elif operation == 0x15:
                offset += jump_if_equal if register == value else jump_otherwise
            else:
                return value

    allow, deny = 0x7FFF0000, 0x00050000 | errno.EPERM
    allowed_numbers = {pair[column] for pair in calls.values()}
    special_numbers = {pair[column] for pair in SPECIAL.values()}
    for number in {*range(1_000), *(0x40000000 + n for n in range(600))} - special_numbers:
        assert evaluate(number) == (allow if number in allowed_numbers else deny)
    assert evaluate(0, arch=0x40000003) == 0x80000000  # 32-bit calls kill
    assert evaluate(PRLIMIT64[column], 0) == allow and evaluate(PRLIMIT64[column], 1) == deny
    if calls is ALLOWED:
        assert evaluate(CLONE[column], 0x3D0F00) == allow  # a thread
        for flags in (17, 0x4111, 0x10000000, 0x10010000, 0x20010000 | 0x3D0F00, 0x10080):
            assert evaluate(CLONE[column], flags) == deny
        assert evaluate(CLONE3[column]) == 0x00050000 | errno.ENOSYS
        assert evaluate(SOCKETPAIR[column], 1) == allow and evaluate(SOCKETPAIR[column], 2) == deny
        assert evaluate(IOCTL[column], 0, 0x5401) == allow and evaluate(IOCTL[column], 0, 0x5412) == deny
    else:
        assert all(evaluate(pair[column], 1) == deny for name, pair in SPECIAL.items() if name != "prlimit64")
