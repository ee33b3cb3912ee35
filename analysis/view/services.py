"""Functions of `arena.cli` that are passed to the viewer, and a cache of advantages by estimator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from analysis.view.index import SCALE_QUANTILE, Index
from arena.errors import ConfigError
from arena.plain import printable

MAX_ESTIMATOR_CHARACTERS, MAX_CACHED = 300, 64
"""Maximum length of an estimator's name, and of cached results, one per run, iteration and estimator."""
WAIT_SECONDS = 0.3
"""Time that a request waits for advantages before it answers that they are not ready."""
Facts = Mapping[str, Any]
DealFacts = Callable[[str, str, int, Sequence[tuple[str, str]]], Mapping[str, Facts]]
"""Maps game, options (JSON), seed and (seat, act) pairs to the initial facts of each seat, and of all seats ("")."""
FindMarks = Callable[[str, str, int, Sequence[tuple[str, str]]], Sequence[Sequence[tuple[Any, ...]]]]
"""Maps game, options (JSON), seed and (seat, act) pairs to the marks of each act: hash, left, top, right, bottom."""
Decode = Callable[[Path, str, Sequence[int]], Sequence[str]]
"""Maps run, policy and token ids to the text of each id. A shorter list means that the tokenizer is unknown."""
Rows = list[dict[str, Any]]


class Services(NamedTuple):
    """Functions that the command passes to the viewer. The viewer hides the features of missing functions."""

    deal_facts: DealFacts | None = None
    """Returns what each seat of a match was dealt."""
    theory: Callable[[str], Mapping[str, float]] | None = None
    """Returns the theory values that a game states."""
    advantages: Callable[[Path, str, int], Rows] | None = None
    """Returns the turns of a run's iteration with their advantages under an estimator."""
    estimators: Callable[[], Sequence[Mapping[str, str]]] | None = None
    """Returns all estimators with a one-line description each."""
    decode: Decode | None = None
    """Returns the texts of tokens."""
    command: Sequence[str] = ()
    """Command line that starts `arena` as a child process; () if the viewer must not start any."""
    marks: FindMarks | None = None
    """Returns the boxes in images that acts name."""


class AdvantageCache:
    """Background computation of advantages, cached by run, iteration, estimator and state of the iteration's files."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._pool = ThreadPoolExecutor(1, "credit")
        self._lock = Lock()
        self._results: dict[Any, Future[Rows]] = {}

    def advantages(self, index: Index, match: str, iteration: int, estimator: str) -> dict[str, Any]:
        """Return `turns`, the match's (reward, advantage) by turn, or {"waiting": True} until they are computed.

        Also returns the estimator's `name`, and `scale`, the 95 % quantile of the iteration's absolute advantages.
        Raises ConfigError for an unknown estimator, or one that needs more than the log.
        """
        if self.services.advantages is None:
            raise ConfigError("advantages cannot be computed here: open the page with arena view")
        if not estimator or len(estimator) > MAX_ESTIMATOR_CHARACTERS:
            raise ConfigError(f"unknown estimator '{printable(estimator[:64])}' (arena list estimators)")
        path = index.reader.path
        key = (path, iteration, index.stamp(iteration), estimator)
        with self._lock:
            if key not in self._results:
                while len(self._results) >= MAX_CACHED:
                    self._results.pop(next(iter(self._results))).cancel()
                self._results[key] = self._pool.submit(self.services.advantages, path, estimator, iteration)
            future = self._results[key]
        try:
            rows = future.result(WAIT_SECONDS)
        except TimeoutError:
            return {"waiting": True}
        match_rows = [row for row in rows if row["match"] == match]
        names = [name for name in (match_rows or rows)[0] if name not in ("match", "turn", "reward")]
        sizes = sorted(abs(row[names[0]]) for row in rows if row[names[0]] is not None)
        return {
            "name": names[0],
            "scale": sizes[int(SCALE_QUANTILE * (len(sizes) - 1))] if sizes else 0.0,
            "turns": {row["turn"]: [row["reward"], row[names[0]]] for row in match_rows},
        }

    def close(self) -> None:
        """Cancel pending computations. Does not wait for the running one."""
        self._pool.shutdown(wait=False, cancel_futures=True)
