"""The command line in forked children of one warm process, which start fast and may be killed."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn

import pytest

from arena.cli import main as cli
from tests.factories.commands import CommandResult


@dataclass(frozen=True)
class ChildFault:
    """Fault to inject into a child: SIGKILL at its n-th durable step (fsync, rename or removal)."""

    kill_at_step: int = 0
    count_steps: Path | None = None


_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "arena.cli.main", "arena.launch", "arena.cli.summary", "deepspeed.monitor.monitor", "games.negotiation",
        "torch._dynamo", "torch.distributed.nn", "torch.utils.tensorboard", "transformers.models.auto.modeling_auto",
        "transformers.models.auto.tokenization_auto", "transformers.models.llama.modeling_llama",
    ]
)  # fmt: skip


class Child:
    """The command line in a child process, which may be killed."""

    def __init__(self, folder: Path, *arguments: object, fault: ChildFault | None = None) -> None:
        """Start the child; its output goes to files in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._output_files = folder / "out", folder / "err"
        self.process: BaseProcess = _CONTEXT.Process(
            target=_run_child, args=([str(a) for a in arguments], *self._output_files, fault or ChildFault())
        )
        self.process.start()
        self.started_at = time.monotonic()

    def signal(self, number: int) -> None:
        """Send a signal, unless the child has ended."""
        assert self.process.pid is not None
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def wait_until(self, condition: Callable[[], bool], limit: float = 120) -> bool:
        """Wait until the condition holds; False if the child ended first."""
        deadline = time.monotonic() + limit
        while not condition():
            if not self.process.is_alive():
                return condition()
            assert time.monotonic() < deadline, "the child is stuck"
            time.sleep(0.001)
        return True

    def end(self, limit: float = 240) -> CommandResult:
        """Wait for the child and return its result."""
        self.process.join(limit)
        if self.process.exitcode is None:
            self.process.kill()
            pytest.fail("the child is stuck")
        out, err = (file.read_text() if file.exists() else "" for file in self._output_files)
        return CommandResult(self.process.exitcode, out, err)


def run_arena_child(folder: Path, *arguments: object, fault: ChildFault | None = None) -> CommandResult:
    """Run the command line in a child process to its end."""
    return Child(folder, *arguments, fault=fault).end()


def _run_child(arguments: list[str], out: Path, err: Path, fault: ChildFault) -> NoReturn:
    for descriptor, path in ((1, out), (2, err)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(opened, descriptor)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    sys.argv = ["arena", *arguments]
    os.fsync = lambda fd: None  # as in tests/conftest.py; it counts as a step all the same
    steps = _count_steps(fault.kill_at_step)
    try:
        code: Any = cli.run_cli()
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    sys.stderr.flush()
    if fault.count_steps:
        fault.count_steps.write_text(str(steps[0]))
    os._exit(int(code or 0))


def _count_steps(kill_at: int) -> list[int]:
    """Count the calls that make files durable, and kill this process before the `kill_at`-th one."""
    steps = [0]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            steps[0] += 1
            if steps[0] == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return step

    for name in ("fsync", "replace", "unlink"):
        setattr(os, name, counted(getattr(os, name)))
    return steps
