"""Agent programs as processes: reading of acts, several matches per process, and no process left behind."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agents.errors import HarnessError
from agents.harness import keeper
from agents.harness.command import make_paths_absolute, parse_command
from agents.harness.program import Program, parse_act

SLEEP = "import time; time.sleep(600)"


def play_program(code: str, *observations: dict[str, Any]) -> list[str]:
    """Return the acts of a program with this code."""

    async def play() -> list[str]:
        program = Program([sys.executable, "-c", code], {"SECRET": "s"})
        try:
            return [await program.act(one) for one in observations or ({},)]
        finally:
            if ending := program.close():
                await ending

    return asyncio.run(play())


@pytest.mark.parametrize(
    ("code", "act"),
    [
        ("print('two\\nlines  ')", "two\nlines"),
        ("print('log'); print('{\"act\": \"B 3\"}'); print('more')", "B 3"),
        ('import sys; sys.stdout.write(\'{"act": "é"}\')', "é"),
        ("print({'act': 1}); print('{\"act\": 1}')", "{'act': 1}\n{\"act\": 1}"),
        ("import os; print(os.environ['SECRET'], '127.0.0.1' in os.environ['NO_PROXY'])", "s True"),
        ("print(input())", '{"seed": 3}'),
    ],
)
def test_act_is_a_json_line_or_the_full_output(code: str, act: str) -> None:
    assert play_program(code, {"seed": 3}) == [act]


def test_a_program_plays_on_while_it_answers_by_lines_and_is_started_again_otherwise() -> None:
    code = "import os, json\nfor _ in range(3): print(json.dumps({'act': input() + str(os.getpid())}), flush=True)"
    first = play_program(code, {"n": 0}, {"n": 1}, {"n": 2}, {"n": 3})
    assert [act[: len('{"n": 0}')] for act in first] == ['{"n": 0}', '{"n": 1}', '{"n": 2}', '{"n": 3}']
    processes = [act.partition("}")[2] for act in first]
    assert processes[0] == processes[1] == processes[2] != processes[3]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; print('x'); sys.exit('no idea')", "status 1: no idea"),
        ("import os; os.kill(os.getpid(), 11)", "signal 11"),
        ("", "without an act"),
        ("import os; os.write(1, b'\\xff')", "UTF-8"),
        ("while True: print('x' * 10_000)", "more than 1,000,000 bytes"),
        ("while True: print('x')", "more than 1,000,000 bytes"),
    ],
)
def test_failed_program_is_reported_in_one_line(code: str, words: str) -> None:
    with pytest.raises(HarnessError, match=words) as error:
        play_program(code)
    assert "\n" not in str(error.value)


def test_a_program_that_cannot_be_started() -> None:
    with pytest.raises(HarnessError, match="cannot be started: /nowhere: No such file"):
        asyncio.run(Program(["/nowhere"], {}).act({}))


def test_refuses_lines_without_an_act() -> None:
    for line in (b"", b"{", b"[]", b'{"act": null}', b'{"acts": "x"}', b"\xff{", b"{" * 10_000, b'{"act":' * 5000):
        assert parse_act(line) is None


def wait_until_gone(pid: int) -> bool:
    """Whether a process ends within a few seconds."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if not os.path.exists(f"/proc/{pid}"):
            return True
        time.sleep(0.02)
    return False


def write_child_code(pid_file: Path) -> str:
    """Return code that starts children: in its group, in a new session, and one whose parent has ended."""
    return f"""
import os, subprocess, sys
for session in (False, True):
    child = subprocess.Popen([sys.executable, "-S", "-c", {SLEEP!r}], start_new_session=session)
    print(child.pid, file=open({str(pid_file)!r}, "a"))
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), file=open({str(pid_file)!r}, "a"), flush=True)
        {SLEEP}
    os._exit(0)
os.wait()
print(os.getpid(), file=open({str(pid_file)!r}, "a"))
while len(open({str(pid_file)!r}).readlines()) < 4: pass
"""


@pytest.mark.parametrize("end", ["print('done')", SLEEP, "os.abort()"])
def test_no_process_outlives_a_program(tmp_path: Path, end: str) -> None:
    pid_file = tmp_path / "pids"

    async def play() -> None:
        program = Program([sys.executable, "-c", write_child_code(pid_file) + end], {})
        task = asyncio.create_task(program.act({}))
        await asyncio.wait([task], timeout=0.1)
        while not pid_file.exists() or len(pid_file.read_text().splitlines()) < 4:
            await asyncio.sleep(0.02)
        if end == SLEEP:
            task.cancel()
        await asyncio.wait([task])
        if ending := program.close():
            await ending

    asyncio.run(play())
    pids = [int(line) for line in pid_file.read_text().split()]
    assert len(pids) == 4 and all(map(wait_until_gone, pids))


def test_killed_caller_leaves_no_process(tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    words = [sys.executable, "-c", write_child_code(pid_file) + SLEEP]
    code = f"""
import asyncio
from agents.harness.program import Program
asyncio.run(Program({words!r}, {{}}).act({{}}))
"""
    caller = subprocess.Popen([sys.executable, "-c", code])
    while not pid_file.exists() or len(pid_file.read_text().splitlines()) < 4:
        time.sleep(0.02)
    caller.kill()
    caller.wait()
    assert all(wait_until_gone(int(line)) for line in pid_file.read_text().split())


def test_supervisor_of_another_caller_starts_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "made"
    subprocess.run([sys.executable, keeper.__file__, "1", "touch", str(marker)], check=True)
    assert not marker.exists()


def test_parses_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my agent.py").touch()
    python = sys.executable
    placed = make_paths_absolute(f"{python} 'my agent.py' --n 3")
    assert placed == f"{python} '{tmp_path}/my agent.py' --n 3" and make_paths_absolute(placed) == placed
    assert parse_command(placed) == [python, f"{tmp_path}/my agent.py", "--n", "3"]
    assert make_paths_absolute("http://x/y") == "http://x/y" and make_paths_absolute("a 'b") == "a 'b"
    refused = {"a 'b": "quotation", "": "empty", "nonesuch x": "no program", f"{python} no.py": "no file"}
    for bad, words in refused.items():
        with pytest.raises(HarnessError, match=words):
            parse_command(bad)
