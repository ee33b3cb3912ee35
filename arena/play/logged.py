"""Source of matches from another run's log, for learning without play.

Tokens and behaviour log-probabilities are the other run's. So the gate between sampler and trainer skips them, and a
loss's `correction` weights them by the distance of the present policy from that run's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from arena.errors import ConfigError
from arena.play.settings import SourceSpec, TableSpec
from arena.play.source import Played
from arena.play.watchers import Watcher
from arena.records import MatchRecord, Seating, images
from arena.store.losses import complete
from arena.store.matchlog import MatchBatch
from arena.store.reader import RunReader
from arena.store.run import RunFolder
from games.contracts import MatchId


@dataclass(frozen=True)
class LogSource:
    """Source that reads finished matches from another run's log, iteration by iteration, and starts over at its end."""

    run: RunFolder
    spec: SourceSpec
    """Settings, with `iterations` set."""
    tables: Sequence[TableSpec]
    learners: Mapping[str, int]
    """Context length in tokens by trained policy."""
    watcher: Watcher

    async def matches(self, k: int) -> Played:
        """Return the logged matches for iteration `k`, assigned to this run's policies, and write them to its log.

        Matches of incomplete deals and of games without a table are left out. Raises ConfigError if a context is longer
        than the learner's.
        """
        assert self.spec.iterations is not None and self.spec.log is not None
        self.watcher.phase(k, f"reading {self.spec.log}")
        theirs = RunReader(Path(self.spec.log)).log
        rows = theirs.read((k - 1) % self.spec.iterations + 1)
        games = [table.game.name for table in self.tables]
        found = [row for row in complete(rows) if row["game"] in games]
        read = [MatchRecord.from_json(row, theirs.blobs.get) for row in found]
        records = [self._as_own(k, number, record) for number, record in enumerate(read)]
        records = [replace(r, pictures={name: theirs.blobs.get(name) for name in images(r.turns)}) for r in records]
        log = MatchBatch(self.run.log)
        for record in records:
            log.add(record)
            self.watcher.match(record)
        log.flush()
        return Played(records, [])

    async def close(self) -> None:
        """Do nothing: no match is in progress."""

    def _as_own(self, k: int, number: int, record: MatchRecord) -> MatchRecord:
        seats = {seat: self._own_seating(record.game, seat, seating) for seat, seating in record.seats.items()}
        for seat, seating in seats.items():
            longest = max(map(len, record.streams.get(seat, ())), default=0)
            if seating.trained and longest > (holds := self.learners[seating.policy]):
                raise ConfigError(
                    f"source.log: {seat} of match {record.id} in {self.spec.log} has a context of {longest:,} tokens, "
                    f"and '{seating.policy}' holds {holds:,}: name another log"
                )
        return replace(record, identity=MatchId(k, number), seats=seats, stage="train", source="replayed")

    def _own_seating(self, game: str, seat: str, seating: Seating) -> Seating:
        """Return the seating with this run's trained policy if a model played; else as not trained. Versions stay."""
        own = next((t.seats[seat].policy for t in self.tables if t.game.name == game and seat in t.seats), "")
        if seating.kind != "model" or own not in self.learners:
            return replace(seating, trained=False)
        return replace(seating, policy=own, trained=True)
