"""A run of seconds, and the command line in forked children of one warm process: real processes that start at once."""

import hashlib
import io
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn

import pytest

from arena.cli import main as cli
from arena.store.reader import RunReader

ITERATIONS = 3
SETTINGS = (
    "play.matches=4",
    "game.options.max_turns=4",
    "game.options.illegal=retry",
    "policies.shared.imitate.matches=24",
    "policies.shared.imitate.epochs=4",
    "policies.shared.imitate.minibatches=3",
    "policies.shared.imitate.lr=6e-3",
    "learn.minibatches=2",
)
TINY = ["run", "selfplay", "--recipe", "negotiation-nano", "--iterations", str(ITERATIONS), "--json"]
TINY += [part for setting in SETTINGS for part in ("--set", setting)]
NO_IMITATION = ["--set", "policies.shared.imitate=null"]
CLOCKED = ("contents.json", "manifest.json")
"""Files of a checkpoint with hashes of logs and metrics, which have clock times in them."""
CLOCKS = ("seconds", "started", "matches_per_second", "tokens_per_second")


@dataclass(frozen=True)
class Told:
    """How a command ended: its exit code and what it said."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The single line of an expected failure, without `arena: `; fails the test for anything else."""
        assert self.err.startswith("arena: ") and self.err.count("\n") == 1 and self.err.endswith("\n"), self.err
        assert "Traceback" not in self.out + self.err
        return self.err.removeprefix("arena: ").rstrip("\n")


def arena(*arguments: str | Path) -> Told:
    """The command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["arena", *map(str, arguments)])
        try:
            code = cli.run_cli()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Told(code, out.getvalue(), err.getvalue())


def refused(*arguments: str | Path) -> str:
    """The one line with which a command that must fail does so, with exit code 2."""
    told = arena(*arguments)
    assert told.code == 2, told
    assert told.out == ""
    return told.line


# -- children ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hurt:
    """What befalls a child: SIGKILL at its n-th durable step (fsync or rename), or files of at most so many bytes."""

    kill_at_step: int = 0
    file_limit: int = 0
    count_steps: Path | None = None


_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "arena.cli.main",
        "arena.launch",
        "arena.cli.summary",
        "deepspeed.monitor.monitor",
        "games.negotiation",
        "torch._dynamo",
        "torch.distributed.nn",
        "torch.utils.tensorboard",
        "transformers.models.auto.modeling_auto",
        "transformers.models.auto.tokenization_auto",
        "transformers.models.llama.modeling_llama",
    ]
)


class Child:
    """The command line in a process of its own, which may be killed."""

    def __init__(self, folder: Path, *arguments: str | Path, hurt: Hurt | None = None) -> None:
        """Starts it; what it says is kept in files in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._said = folder / "out", folder / "err"
        self.process: BaseProcess = _CONTEXT.Process(
            target=_child, args=([str(a) for a in arguments], *self._said, hurt or Hurt())
        )
        self.process.start()
        self.begun = time.monotonic()

    def signal(self, number: int) -> None:
        """Send it a signal; nothing happens if it has ended."""
        assert self.process.pid is not None
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def until(self, what: Callable[[], bool], limit: float = 120) -> bool:
        """Wait until something is so; false if the process ended first."""
        deadline = time.monotonic() + limit
        while not what():
            if not self.process.is_alive():
                return what()
            assert time.monotonic() < deadline, "the child is stuck"
            time.sleep(0.001)
        return True

    def end(self, limit: float = 240) -> Told:
        """Wait for its end."""
        self.process.join(limit)
        if self.process.exitcode is None:
            self.process.kill()
            pytest.fail("the child is stuck")
        out, err = (file.read_text() if file.exists() else "" for file in self._said)
        return Told(self.process.exitcode, out, err)


def arena_child(folder: Path, *arguments: str | Path, hurt: Hurt | None = None) -> Told:
    """The command line in a process of its own, to its end."""
    return Child(folder, *arguments, hurt=hurt).end()


def _child(arguments: list[str], out: Path, err: Path, hurt: Hurt) -> NoReturn:
    for descriptor, path in ((1, out), (2, err)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(opened, descriptor)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    sys.argv = ["arena", *arguments]
    steps = _count_steps(hurt.kill_at_step)
    if hurt.file_limit:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hurt.file_limit, resource.RLIM_INFINITY))
    try:
        code: Any = cli.run_cli()
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    sys.stderr.flush()
    if hurt.count_steps:
        hurt.count_steps.write_text(str(steps[0]))
    os._exit(int(code or 0))


def _count_steps(kill_at: int) -> list[int]:
    """Counts what makes files durable; SIGKILL before the step of this number."""
    steps = [0]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **keywords: Any) -> Any:
            steps[0] += 1
            if steps[0] == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **keywords)

        return step

    for name in ("fsync", "replace", "unlink"):
        setattr(os, name, counted(getattr(os, name)))
    return steps


# -- what a run left ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Left:
    """All that must be the same whether or not a run was interrupted."""

    matches: list[dict[str, Any]]
    credit: list[Any]
    metrics: list[dict[str, Any]]
    files: dict[str, str]
    """SHA-256 of every file in every checkpoint, but for those that hash clock times."""


def left(run: Path) -> Left:
    """What the run left, without clock times."""
    reader = RunReader(run)
    files = sorted(p for p in (run / "checkpoints").rglob("*") if p.is_file() and p.name not in CLOCKED)
    return Left(
        [_timeless(row) for row in reader.matches()],
        [row for k in reader.iterations() for row in reader.credit(k)],
        [_timeless(row) for row in reader.metrics()],
        {str(p.relative_to(run)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files},
    )


def _timeless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _timeless(item) for key, item in value.items() if key not in CLOCKS}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def assert_same(found: Left, expected: Left) -> None:
    """Both runs left the same; says which part is not."""
    for part in ("files", "matches", "credit", "metrics"):
        assert getattr(found, part) == getattr(expected, part), part


def flip_a_byte(path: Path, seed: int = 0) -> None:
    """Damage one byte of a file, of the same length as before."""
    data = bytearray(path.read_bytes())
    data[random.Random(seed).randrange(len(data))] ^= 0x55
    path.write_bytes(data)


def json_lines(text: str) -> list[dict[str, Any]]:
    """The objects of output in JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


_unbroken: list[Path] = []


@pytest.fixture
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run that nothing interrupted, made once for all tests: look, or copy it; with `steps` and `seconds`."""
    if not _unbroken:
        folder = tmp_path_factory.mktemp("unbroken")
        child = Child(folder, *TINY, "--out", folder / "run", hurt=Hurt(count_steps=folder / "steps"))
        told = child.end()
        assert told.code == 0, told.err
        (folder / "seconds").write_text(str(time.monotonic() - child.begun))
        _unbroken.append(folder / "run")
    return _unbroken[0]
