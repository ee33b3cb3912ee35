"""Matches that another run has played: a source for learning without playing.

The tokens, and the log-probabilities with which they were sampled, are those of the other run; so the gate between
sampler and trainer leaves them out, and a loss's `correction` weighs how far the present policy is from that one.
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
    """Iteration by iteration the finished matches of a log, from its first on, and from the first again at its end."""

    run: RunFolder
    spec: SourceSpec
    """With its `iterations`."""
    tables: Sequence[TableSpec]
    learners: Mapping[str, int]
    """By trained policy, the tokens that its model holds."""
    watcher: Watcher

    async def matches(self, k: int) -> Played:
        """The matches as they were played, at the seats of this run's policies; they stand in its own log, too."""
        assert self.spec.iterations is not None
        self.watcher.phase(k, f"reading {self.spec.log}")
        theirs = RunReader(Path(self.spec.log)).log
        rows = theirs.read((k - 1) % self.spec.iterations + 1)
        games = [table.game.name for table in self.tables]
        found = [row for row in complete(rows) if row["game"] in games]
        records = [self._taken_over(k, number, MatchRecord.from_json(row)) for number, row in enumerate(found)]
        records = [replace(r, pictures={name: theirs.blobs.get(name) for name in images(r.turns)}) for r in records]
        log = MatchBatch(self.run.log)
        for record in records:
            log.add(record)
            self.watcher.match(record)
        log.flush()
        return Played(records, [])

    async def close(self) -> None:
        """Do nothing: nothing is being played."""

    def _taken_over(self, k: int, number: int, record: MatchRecord) -> MatchRecord:
        seats = {seat: self._seated(record.game, seat, seating) for seat, seating in record.seats.items()}
        for seat, seating in seats.items():
            longest = max(map(len, record.streams.get(seat, ())), default=0)
            if seating.trained and longest > (holds := self.learners[seating.policy]):
                raise ConfigError(
                    f"source.log: {seat} of match {record.id} in {self.spec.log} has a context of {longest:,} tokens, "
                    f"and '{seating.policy}' holds {holds:,}: name another log"
                )
        return replace(record, identity=MatchId(k, number), seats=seats, stage="train", source="replayed")

    def _seated(self, game: str, seat: str, seating: Seating) -> Seating:
        """A model's turns are those of the policy that sits there in this run, if it learns; the version is theirs."""
        own = next((t.seats[seat].policy for t in self.tables if t.game.name == game and seat in t.seats), "")
        if seating.kind != "model" or own not in self.learners:
            return replace(seating, trained=False)
        return replace(seating, policy=own, trained=True)
