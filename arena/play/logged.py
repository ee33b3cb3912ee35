"""Source of matches from another run's log, for learning without play.

Tokens and behaviour log-probabilities are the other run's. The gate between sampler and trainer therefore skips them,
and a loss's `correction` weights them by the ratio of the current policy to that run's.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from arena.errors import ConfigError
from arena.parts.chance import generator
from arena.play.settings import SourceSpec, TableSpec
from arena.play.source import PlayedMatches
from arena.play.watchers import Watcher
from arena.records import MatchRecord, Seating, collect_pictures, list_images
from arena.store.losses import select_complete
from arena.store.matchlog import MatchBatch
from arena.store.reader import LogReader, RunReader
from arena.store.run import RunFolder
from games.contracts import MatchId


@dataclass(frozen=True)
class LogSource:
    """Source of matches that reads finished ones from another run's log, by iteration or in random order.

    It starts again after the log's last iteration.
    """

    run: RunFolder
    spec: SourceSpec
    """Settings, with `iterations` set."""
    tables: Sequence[TableSpec]
    learners: Mapping[str, int]
    """Context length in tokens by trained policy."""
    watcher: Watcher
    seed: int = 0
    """The run's seed, for random order."""

    async def matches(self, k: int) -> PlayedMatches:
        """Assign the logged matches for iteration `k` to this run's policies, write them to its log, and return them.

        Leaves out matches of incomplete deals and of games that this run does not play. Raises ConfigError if a context
        is longer than the learner's maximum.
        """
        self.watcher.phase(k, f"reading {self.spec.log}")
        log, iteration = self._log, (k - 1) % self._iterations + 1
        found = self._draw(k) if self.spec.shuffle else self._select_usable(log.read(iteration))
        logged_records = [MatchRecord.from_json(row, log.blobs.get) for row in found]
        records = [self._adopt(k, number, record) for number, record in enumerate(logged_records)]
        records = [
            replace(
                r,
                pictures=collect_pictures(r.streams) | {i.hash: log.blobs.get(i.hash) for i in list_images(r.turns)},
            )
            for r in records
        ]
        batch = MatchBatch(self.run.log)
        for record in records:
            batch.add(record)
            self.watcher.match(record)
        batch.flush()
        return PlayedMatches(records, [])

    async def close(self) -> None:
        """Do nothing: no match is in progress."""

    @cached_property
    def _log(self) -> LogReader:
        assert self.spec.log is not None
        return RunReader(Path(self.spec.log)).log

    @property
    def _iterations(self) -> int:
        assert self.spec.iterations is not None
        return self.spec.iterations

    def _select_usable(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows of an iteration that belong to complete deals of this run's games."""
        games = [table.game.name for table in self.tables]
        return [row for row in select_complete(rows) if row["game"] in games]

    @cached_property
    def _deals(self) -> list[tuple[int, list[str]]]:
        """Iteration and match ids of each deal of the log. Raises ConfigError for fewer deals than iterations."""
        deals = defaultdict[tuple[Any, ...], list[str]](list)
        for iteration in range(1, self._iterations + 1):
            for row in self._select_usable(self._log.table(iteration, ["id", "game", "seed", "status"]).to_pylist()):
                deals[iteration, row["game"], row["seed"]].append(row["id"])
        if len(deals) < self._iterations:
            raise ConfigError(
                f"source.shuffle: {self.spec.log} has {len(deals)} complete deals of this run's games in "
                f"{self._iterations} iterations: set source.iterations, or shuffle to false"
            )
        return [(iteration, ids) for (iteration, *_), ids in deals.items()]

    def _draw(self, k: int) -> list[dict[str, Any]]:
        """Return the rows of iteration `k`'s deals, drawn at random without replacement in each pass over the log."""
        epoch, place = divmod(k - 1, self._iterations)
        order = generator(self.seed, epoch, "log").permutation(len(self._deals))
        seats_by_match = defaultdict[int, set[str]](set)
        for number in np.array_split(order, self._iterations)[place].tolist():
            iteration, ids = self._deals[number]
            seats_by_match[iteration] |= {*ids}
        return [
            row
            for iteration in sorted(seats_by_match)
            for row in self._log.read(iteration, ids=seats_by_match[iteration])
        ]

    def _adopt(self, k: int, number: int, record: MatchRecord) -> MatchRecord:
        seats = {seat: self._adopt_seating(record.game, seat, seating) for seat, seating in record.seats.items()}
        for seat, seating in seats.items():
            longest = max(map(len, record.streams.get(seat, ())), default=0)
            if seating.trained and longest > (context := self.learners[seating.policy]):
                raise ConfigError(
                    f"source.log: {seat} of match {record.id} in {self.spec.log} has a context of {longest:,} tokens, "
                    f"and '{seating.policy}' holds {context:,}: name another log"
                )
        return replace(record, identity=MatchId(k, number), seats=seats, stage="train", source="replayed")

    def _adopt_seating(self, game: str, seat: str, seating: Seating) -> Seating:
        """Return the seating with this run's trained policy if a model played; else as not trained. Versions stay."""
        policy = next((t.seats[seat].policy for t in self.tables if t.game.name == game and seat in t.seats), "")
        if seating.kind != "model" or policy not in self.learners:
            return replace(seating, trained=False)
        return replace(seating, policy=policy, trained=True)


MIN_EFFECTIVE_SHARE = 0.05
"""Effective share of a log's tokens below which `find_sparse_updates` reports an update."""


def find_sparse_updates(updates: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Return a note for each policy whose update rests on few of the log's tokens. `updates` has metrics by policy.

    This happens if the log's policy rarely took the acts that are learned: then few tokens have most of the weight
    (advantages or importance ratios).
    """
    return {
        name: f"policy '{name}': {100 * share:.1g} % of the log's tokens carry its update (effective sample size), "
        "because the log's policy rarely took the acts that are learned"
        for name, metrics in updates.items()
        if (share := metrics.get("effective", 1.0)) < MIN_EFFECTIVE_SHARE
    }
