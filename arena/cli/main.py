"""Entry point of the command line. Every expected failure becomes one line on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

from agents.errors import (
    ChatError,
    EngineError,
    EnginesLost,
    PatternError,
    RoleError,
    ScriptedPolicyError,
    WeightsError,
)
from arena.cli.app import app
from arena.cli.console import note
from arena.errors import (
    DEBUG,
    BugError,
    ConfigError,
    DivergedError,
    GateError,
    Interrupted,
    OutOfMemory,
    PlayError,
    RanksLost,
    StoreError,
    is_debugging,
)
from games.adapters import loading

BAD_INPUT = (
    ConfigError,
    StoreError,
    RoleError,
    PatternError,
    ScriptedPolicyError,
    WeightsError,
    ChatError,
    EngineError,
)
"""Errors in the user's input: exit code 2."""
STOPPED = (PlayError, BugError, GateError, DivergedError, OutOfMemory, RanksLost, EnginesLost)
"""Errors that end a run: exit code 1."""

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors of a full disk or a closed terminal."""
MAX_MESSAGE = 1000
"""Characters of an error message, which may repeat a long value."""


def run_cli() -> int:
    """Run the command line and return its exit code. Prints expected failures as one line on stderr.

    The code is 0 after success, 1 if a run stopped, 2 for bad input, and 128 plus the signal's number if interrupted.
    """
    try:
        with _print_tracebacks(), _handle_termination() as signals:
            _run_command()
    except STOPPED as error:
        return _complain(f"the run stopped: {error}", 1)
    except BAD_INPUT as error:
        return _complain(str(error), 2)
    except (Interrupted, KeyboardInterrupt) as stop:
        return _complain_interrupted(str(stop) or "interrupted", signals)
    except SystemExit as end:
        if end.code == 128 + signal.SIGINT:
            return _complain_interrupted("interrupted", signals)  # typer exits silently on KeyboardInterrupt
        if not (line := loading.describe_foreign_error(end)):
            raise
        return _complain(line, 2)
    except BrokenPipeError:
        _redirect_to_devnull(sys.stdout)
        return 0
    except Exception as error:
        if is_debugging() or not (failure := _explain_external_error(error)):
            raise
        return _complain(*failure)
    return 0


def _run_command() -> None:
    """Run the command-line app, flush stdout, and raise the SystemExit with which the app ended.

    Raises OSError if the output cannot be written.
    """
    try:
        app(standalone_mode=True)
    except SystemExit:
        if sys.stdout:  # None if it is closed
            sys.stdout.flush()
        raise


def _explain_external_error(error: Exception) -> tuple[str, int] | None:
    """Return message and exit code for an error caused outside of Arena's code; None for other errors."""
    if isinstance(error, ModuleNotFoundError):
        from arena.fits.installed import explain_missing

        if line := explain_missing(error.name or ""):
            return line, 2
    if _has_too_many_files(error):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"too many files are open: ulimit -n allows this process {limit}: raise it, as by ulimit -n 4096", 1
    if isinstance(error, OSError) and error.errno in UNWRITABLE:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            try:
                stream.flush()
            except OSError:
                _redirect_to_devnull(stream)
        return f"{error.filename or 'the output'} cannot be written: {error.strerror}", 1
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"{str(error.filename)[:80]}…: this file name is too long", 2
    line = loading.describe_foreign_error(error)
    return (f"{line} ({DEBUG}=1 shows the traceback)", 2) if line else None


def _has_too_many_files(error: BaseException | None) -> bool:
    """Return True if the error or one of its causes says that too many files are open."""
    for _ in range(20):  # user code can build a cyclic chain
        if error is None:
            break
        if getattr(error, "errno", None) == errno.EMFILE or "too many open files" in loading.error_line(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


def _redirect_to_devnull(stream: TextIO) -> None:
    """Redirect a stream to /dev/null, so that the flush at exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def _print_tracebacks() -> Iterator[None]:
    """Print tracebacks of failed matches and expected errors on stderr if ARENA_DEBUG is set."""
    if not is_debugging():
        yield
        return
    import logging
    import traceback

    from arena.plain import printable_lines, remove_secrets
    from arena.store.runlog import PlainLines

    handler, failures = logging.StreamHandler(sys.stderr), logging.getLogger("arena.play.failures")
    handler.setFormatter(PlainLines("arena: %(message)s"))
    failures.addHandler(handler)
    level = failures.level
    failures.setLevel(logging.DEBUG)
    try:
        yield
    except Exception as error:
        if isinstance(error, (*BAD_INPUT, *STOPPED, Interrupted)):
            trace = "".join(traceback.TracebackException.from_exception(error).format())
            print("\n".join(printable_lines(remove_secrets(trace))), file=sys.stderr)
        raise
    finally:
        failures.removeHandler(handler)
        failures.setLevel(level)


@contextmanager
def _handle_termination() -> Iterator[list[signal.Signals]]:
    """Handle SIGTERM and SIGHUP like Ctrl-C; yield the list of received signals. Ignored signals stay ignored."""
    received: list[signal.Signals] = []

    def end(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number))
        if callable(signal.getsignal(signal.SIGINT)):
            signal.raise_signal(signal.SIGINT)  # interrupts a blocking call
        else:
            raise KeyboardInterrupt  # background jobs of a shell ignore SIGINT

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    ends = (signal.SIGTERM, signal.SIGHUP)  # nohup ignores SIGHUP
    before = {number: signal.signal(number, end) for number in ends if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _complain_interrupted(message: str, signals: Sequence[signal.Signals]) -> int:
    """Print the message of an interrupted command and return its exit code, 128 plus the signal's number."""
    if signals:
        return _complain(message.replace("interrupted", f"ended by {signals[0].name}", 1), 128 + signals[0])
    return _complain(message, 128 + signal.SIGINT)


def _complain(line: str, code: int) -> int:
    """Print an error message, shortened to `MAX_MESSAGE` characters, and return the exit code `code`."""
    from arena.plain import printable

    text = printable(line)
    try:
        note(text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…")
    except OSError:  # a full disk or a closed terminal: only the exit code remains
        _redirect_to_devnull(sys.stderr)
    return code
