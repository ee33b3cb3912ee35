"""Errors that end a command with one line. This module is light, so that catching them loads nothing else."""

import os
from typing import Any

DEBUG = "ARENA_DEBUG"
_OFF = ("", "0", "false", "no", "off")


def debugging() -> bool:
    """Return True if tracebacks should be shown: ARENA_DEBUG is set and not 0, false, no or off."""
    return os.environ.get(DEBUG, "").strip().lower() not in _OFF


class _OneLine(Exception):
    """An error whose message is one line."""

    def __init__(self, message: str) -> None:
        """Replace line breaks in the message by spaces."""
        super().__init__(" ".join(message.splitlines()))


class ConfigError(_OneLine):
    """Invalid settings or arguments. The message says what is wrong, where, and how to fix it."""


class PlayError(_OneLine):
    """Too many failed matches. The message says why."""


class BugError(_OneLine):
    """Failure of Arena's own code in a match, which is not retried. The message says what failed and where."""

    def __init__(self, message: str, record: Any = None) -> None:
        """Create the error; `record` is the `MatchRecord` of the failed match."""
        super().__init__(message)
        self.record = record


class RanksLost(_OneLine):
    """Death or hang of a trainer rank. The message says which rank, in which step, and why."""


class Interrupted(Exception):
    """Interruption of a run by the user. The message says how to resume."""


class StoreError(_OneLine):
    """Damaged or invalid run folder. The message says what to do."""


class GateError(Exception):
    """Different log-probabilities of sampler and trainer for the same tokens. The message has the numbers."""


class DivergedError(Exception):
    """Non-finite numbers in an update. The message says whose, where, and what to try."""


class WorkerLost(_OneLine):
    """Loss of a worker process or machine. The message says which."""


class OutOfMemory(_OneLine):
    """Too little memory on the accelerator. The message says which settings reduce the need."""
