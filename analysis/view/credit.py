"""Advantages of a match under any estimator, by the code of `arena credit`, in the background and once each."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

from analysis.view.given import Given, Rows
from analysis.view.index import STRONG, Index
from arena.errors import ConfigError
from arena.plain import printable

LONGEST, KEPT = 300, 64
"""Characters that name an estimator at most, and iterations whose answers are kept."""
SOON = 0.3
"""Seconds that a request waits for an answer before it says that there is none yet."""


class Judges:
    """Answers by run, iteration and estimator, while the iteration's files are as they were."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self._pool = ThreadPoolExecutor(1, "credit")
        self._lock = Lock()
        self._found: dict[Any, Future[Rows]] = {}

    def advantages(self, index: Index, match: str, iteration: int, estimator: str) -> dict[str, Any]:
        """Advantages and rewards by turn, or `waiting`; ConfigError in one line where it cannot be known."""
        if self.given.judged is None:
            raise ConfigError("advantages cannot be computed here: open the page with arena view")
        if not estimator or len(estimator) > LONGEST:
            raise ConfigError(f"'{printable(estimator[:64])}' is no estimator (arena list estimators)")
        key = (index.reader.path, iteration, index.stamp(iteration), estimator)
        with self._lock:
            if key not in self._found:
                while len(self._found) >= KEPT:
                    self._found.pop(next(iter(self._found))).cancel()
                self._found[key] = self._pool.submit(self.given.judged, index.reader.path, estimator, iteration)
            future = self._found[key]
        try:
            rows = future.result(SOON)
        except TimeoutError:
            return {"waiting": True}
        own = [row for row in rows if row["match"] == match]
        names = [name for name in (own or rows)[0] if name not in ("match", "turn", "reward")]
        sizes = sorted(abs(row[names[0]]) for row in rows if row[names[0]] is not None)
        return {
            "name": names[0],
            "scale": sizes[int(STRONG * (len(sizes) - 1))] if sizes else 0.0,
            "turns": {row["turn"]: [row["reward"], row[names[0]]] for row in own},
        }

    def close(self) -> None:
        """End what waits."""
        self._pool.shutdown(wait=False, cancel_futures=True)
