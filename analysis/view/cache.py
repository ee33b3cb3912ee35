"""Cache of figures that need a whole run, such as alarms, the league and the summary.

A child process computes them for a large run, so that its memory is released and the server stays responsive.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from threading import Lock
from time import monotonic
from typing import Any

from analysis.view.index import Index
from arena.process import end_with_parent

MIN_CHILD_BYTES = 30 * 10**6
"""Minimum log size in bytes for computing in a child process."""
REUSE_FACTOR = 20
"""Minimum lifetime of an answer, as a multiple of its computation time, so that viewers do not slow down a run."""


class FigureCache:
    """Cache of figures that need a whole run, such as its summary, until the run's files change."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._answers: dict[str, tuple[str, float, Any]] = {}
        self._lock = Lock()

    def get(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return `function(run_path, *arguments)`, cached by the function's name until the run's files change.

        An answer is reused for at least `REUSE_FACTOR` times its computation time. For large logs, a child process
        computes it.
        """
        with self._lock:
            index_fingerprint, name = self.index.fingerprint(), function.__name__
            fingerprint, expires, answer = self._answers.get(name, ("", 0.0, None))
            if fingerprint != index_fingerprint and monotonic() >= expires:
                start, answer = monotonic(), self._compute(function, *arguments)
                self._answers[name] = (index_fingerprint, monotonic() + REUSE_FACTOR * (monotonic() - start), answer)
            return answer

    def _compute(self, function: Callable[..., Any], *arguments: Any) -> Any:
        size = sum(path.stat().st_size for path in self.index.reader.log.folder.glob("*.parquet"))
        if size < MIN_CHILD_BYTES:
            return function(self.index.reader.path, *arguments)
        context = multiprocessing.get_context("spawn")  # the child ends with this process, even if that is killed
        with ProcessPoolExecutor(1, context, initializer=end_with_parent, initargs=(os.getpid(),)) as child:
            return child.submit(function, self.index.reader.path, *arguments).result()
