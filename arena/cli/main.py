"""Run the command line; every expected failure is one line and an exit code."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

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
    BugError,
    ConfigError,
    DivergedError,
    GateError,
    Interrupted,
    OutOfMemory,
    PlayError,
    RanksLost,
    StoreError,
    debugging,
)

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
"""Errors whose text is one line for the user; the command ends with exit code 2."""
STOPPED = (PlayError, BugError, GateError, DivergedError, OutOfMemory, RanksLost, EnginesLost)
"""Errors that end a run on its way; exit code 1."""

LONGEST = 1000
"""Characters of a complaint, whatever name or value it repeats."""


def run_cli() -> int:
    """Run the command line and turn every expected failure into one line and an exit code."""
    try:
        with _tracing(), _terminable() as terminated:
            app(standalone_mode=True)
    except STOPPED as error:
        return _complain(f"the run stopped: {error}", 1)
    except BAD_INPUT as error:
        return _complain(str(error), 2)
    except (Interrupted, KeyboardInterrupt) as stop:
        return _stopped(str(stop) or "interrupted", terminated)
    except SystemExit as end:
        if end.code != 128 + signal.SIGINT:
            raise
        return _stopped("interrupted", terminated)  # of a KeyboardInterrupt typer says nothing
    except ModuleNotFoundError as error:
        from arena.fits.installed import complaint

        if debugging() or not (line := complaint(error.name or "")):
            raise
        return _complain(line, 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return _complain(f"{str(error.filename)[:80]}…: no file can have so long a name", 2)
    return 0


@contextmanager
def _tracing() -> Iterator[None]:
    """Print tracebacks of failed matches, and of what ends the command, on stderr where ARENA_DEBUG is set."""
    if not debugging():
        yield
        return
    import logging
    import traceback

    from arena.plain import printable_lines, without_secrets
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
            print("\n".join(printable_lines(without_secrets(trace))), file=sys.stderr)
        raise
    finally:
        failures.removeHandler(handler)
        failures.setLevel(level)


@contextmanager
def _terminable() -> Iterator[list[int]]:
    """SIGTERM does what Ctrl-C does; the list is no longer empty once it came."""
    came: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if callable(signal.getsignal(signal.SIGINT)):
            signal.raise_signal(signal.SIGINT)  # what waits just now has to be interrupted
        else:
            raise KeyboardInterrupt  # it is ignored in the background of a shell

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)


def _stopped(words: str, terminated: Sequence[int]) -> int:
    if terminated:
        return _complain(words.replace("interrupted", "ended by SIGTERM", 1), 128 + signal.SIGTERM)
    return _complain(words, 128 + signal.SIGINT)


def _complain(line: str, code: int) -> int:
    from arena.plain import printable

    shown = printable(line)
    note(shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…")
    return code
