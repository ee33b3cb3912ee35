"""The command line in this process, and the arguments of a run that takes seconds."""

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
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one error line of an expected failure, without `arena: `; fails the test for any other output."""
        assert self.err.startswith("arena: ") and self.err.count("\n") == 1 and self.err.endswith("\n"), self.err
        assert "Traceback" not in self.out + self.err
        return self.err.removeprefix("arena: ").rstrip("\n")


def arena(*arguments: object) -> CommandResult:
    """Run the command line in this process."""
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
    """Run a command that must fail with exit code 2, and return its one error line."""
    result = arena(*arguments)
    assert result.code == 2, result
    assert result.out == ""
    return result.line
