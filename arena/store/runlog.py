"""The run's log of events, `run.log`: one line per event with its time, never on the terminal."""

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path

from arena.errors import is_debugging
from arena.plain import printable_lines, remove_secrets
from arena.store.files import explain_errors, require_regular_file

RUN_LOG = "run.log"
MAX_BYTES = 2_000_000
"""Maximum bytes of the file. A full file becomes run.log.1."""
PACKAGES = ("arena", "agents", "games", "simulators")


class PlainLines(logging.Formatter):
    """Log formatter that removes secrets and control characters, and indents all lines of a record but the first."""

    def __init__(self, line_format: str, secret_variables: Collection[str] = ()) -> None:
        super().__init__(line_format)
        self.secret_variables = secret_variables

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's text as printable lines. Values of `secret_variables` and similar secrets are removed."""
        first, *rest = printable_lines(remove_secrets(super().format(record), self.secret_variables)) or [""]
        return "\n".join([first, *(f"    {line}" for line in rest)])


class _QuietHandler(RotatingFileHandler):
    """File handler that drops log records that it cannot write, so that a full disk does not stop the run here."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore a failed write. The files that the run needs report a full disk."""


@contextmanager
def write_run_log(run: Path, secret_variables: Collection[str] = ()) -> Iterator[None]:
    """Write all log records of Arena's packages in this block to the run's `run.log`, and nowhere else.

    Values of the environment variables `secret_variables` are never written. Raises StoreError if the file cannot be
    opened.
    """
    path = run / RUN_LOG
    for file in (path, path.with_name(f"{RUN_LOG}.1")):
        require_regular_file(file)
    with explain_errors(path):
        handler = _QuietHandler(path, maxBytes=MAX_BYTES, backupCount=1, encoding="utf-8", errors="replace")
    handler.setFormatter(PlainLines("%(asctime)s %(levelname)s %(name)s: %(message)s", secret_variables))
    loggers = [logging.getLogger(name) for name in PACKAGES]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG if is_debugging() else logging.INFO)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
        with suppress(OSError):
            handler.close()
