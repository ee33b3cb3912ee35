"""Errors that end a command with one line; in a light module, so that catching them loads nothing else."""

import os
from typing import Any

DEBUG = "ARENA_DEBUG"
_OFF = ("", "0", "false", "no", "off")


def debugging() -> bool:
    """Return True if the user wants to see tracebacks: ARENA_DEBUG=1, or any other value that does not say no."""
    return os.environ.get(DEBUG, "").strip().lower() not in _OFF


class _OneLine(Exception):
    """An error whose message is one line."""

    def __init__(self, message: str) -> None:
        """A line's end becomes a blank."""
        super().__init__(" ".join(message.splitlines()))


class ConfigError(_OneLine):
    """An experiment that cannot be run; the message is one line that says what, where and how to fix it."""


class PlayError(_OneLine):
    """Matches kept failing; the message says why in one line."""


class BugError(_OneLine):
    """Arena's own code failed in a match: playing it again would hide that. The message says what and where."""

    def __init__(self, message: str, record: Any = None) -> None:
        """`record` is the match's `MatchRecord`."""
        super().__init__(message)
        self.record = record


class RanksLost(_OneLine):
    """A rank of the trainers died or hung; the message says which, in what, and why."""


class Interrupted(Exception):
    """Somebody stopped the run; the message says how to go on."""


class StoreError(_OneLine):
    """Something is wrong with a run folder; the message is one line that says what to do."""


class GateError(Exception):
    """Sampler and trainer disagree on the same tokens; the message has the numbers."""


class DivergedError(Exception):
    """An update went to numbers that are not finite; the message says whose, where, and what to try."""


class WorkerLost(_OneLine):
    """A process or a machine that computed for this one is gone; the message says which."""


class OutOfMemory(_OneLine):
    """The accelerator's memory was not enough; the message says what makes a run need less."""
