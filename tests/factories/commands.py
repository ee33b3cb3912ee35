"""The command line in this process, and the arguments of a run of seconds."""

import io
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest

from arena.cli import main as cli

ITERATIONS = 3
SETTINGS = (
    "play.matches=4", "game.options.max_turns=4", "game.options.illegal=retry", "policies.shared.imitate.matches=24",
    "policies.shared.imitate.epochs=4", "policies.shared.imitate.minibatches=3", "policies.shared.imitate.lr=6e-3",
    "learn.minibatches=2",
)  # fmt: skip
TINY = ["run", "selfplay", "--recipe", "negotiation-nano", "--iterations", str(ITERATIONS), "--json"]
TINY += [part for setting in SETTINGS for part in ("--set", setting)]
NO_IMITATION = ["--set", "policies.shared.imitate=null"]


@dataclass(frozen=True)
class CommandResult:
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


def arena(*arguments: object) -> CommandResult:
    """The command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["arena", *map(str, arguments)])
        try:
            code = cli.run_cli()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return CommandResult(code, out.getvalue(), err.getvalue())


@contextmanager
def limit_file_size(size: int) -> Iterator[None]:
    """Limit the size in bytes of files that this process writes, so that writes fail as on a full disk."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def get_refusal(*arguments: object) -> str:
    """The one line with which a command that must fail does so, with exit code 2."""
    told = arena(*arguments)
    assert told.code == 2, told
    assert told.out == ""
    return told.line
