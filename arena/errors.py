"""Errors that end a command with a one-line message. This module imports no other of Arena, so it is quick to load."""

import os
from typing import Any

DEBUG = "ARENA_DEBUG"
_OFF = ("", "0", "false", "no", "off")


def is_debugging() -> bool:
    """Return True if tracebacks should be shown: ARENA_DEBUG is set and not 0, false, no or off."""
    return os.environ.get(DEBUG, "").strip().lower() not in _OFF


class _OneLine(Exception):
    """Base of errors whose message is one line."""

    def __init__(self, message: str) -> None:
        """Create the error, with line breaks in the message replaced by spaces."""
        super().__init__(" ".join(message.splitlines()))


class ConfigError(_OneLine):
    """Raised for invalid settings or arguments. The message says what is wrong, where, and how to fix it."""


class PlayError(_OneLine):
    """Raised if too many matches fail. The message says why."""


class BugError(_OneLine):
    """Raised if Arena's own code failed in a match, which is not retried. The message says what failed and where."""

    def __init__(self, message: str, record: Any = None) -> None:
        """Create the error; `record` is the `MatchRecord` of the failed match."""
        super().__init__(message)
        self.record = record


class RanksLost(_OneLine):
    """Raised if a trainer process died or hung. The message says which rank, in which step, and why."""


class Interrupted(Exception):
    """Raised if the user interrupts a run. The message says how to resume."""


class StoreError(_OneLine):
    """Raised for a damaged or invalid run folder. The message says what to do."""


class GateError(Exception):
    """Raised if sampler and trainer disagree on log-probabilities of the same tokens. The message has the numbers."""


class DivergedError(Exception):
    """Raised for non-finite numbers in an update. The message says of which policy, where, and what to try."""


class WorkerLost(_OneLine):
    """Raised if a worker process or machine is lost. The message says which."""


class OutOfMemory(_OneLine):
    """Raised if the accelerator has too little memory. The message says which settings need less."""
