"""Log of failed matches, `failures.jsonl`: reason, line of code, and Python code that reproduces each failure."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from arena.plain import remove_secrets, to_plain, truncate_middle
from arena.records import Failure, MatchRecord
from arena.store.files import remove, require_regular_file, write_atomic
from arena.store.lines import LineWriter, LogError, read_lines, to_line
from games.contracts import UNREAD

FAILURES = "failures.jsonl"
MAX_DETAILED = 20
"""Failures of an iteration that are logged in full. Further ones are counted."""
MAX_BYTES = 16_000_000
"""Bytes of the file beyond which failures are only counted."""
MAX_REASON, MAX_ACTS = 2000, 20_000
"""Maximum logged characters of a reason, and of all acts of a match."""


class SeatedPolicy(BaseModel):
    """Role, policy and policy version of the player at a seat."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    role: str
    policy: str
    version: int


class FailedMatch(BaseModel):
    """Entry of the failure log: one failed attempt at a match, its reason, and code that reproduces it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    match: str
    iteration: int
    attempt: int
    game: str
    options: dict[str, Any]
    seed: int
    """Seed of the deal."""
    draws: list[int]
    """Seed numbers that distinguish its random draws from those of other matches of the deal."""
    seats: dict[str, SeatedPolicy]
    kind: Literal["limit", "endpoint", "game", "person", "bug"]
    reason: str
    error: str
    """Type of the exception; "" if there was none."""
    where: str
    """File and line of the code that failed."""
    trace: str
    seat: str
    """Seat to move."""
    act: str | None
    """Act that the game was processing; null if none."""
    given_up: bool = False
    """Whether the match was not played again."""
    when: str
    """Start time of the match, ISO 8601."""
    seconds: float
    again: str
    """Python code that brings the game to the same state."""


class _FurtherFailures(BaseModel):
    """Entry of the failure log that counts further failures of an iteration, which were not logged in full."""

    iteration: int
    more: int


class FailureLog:
    """Writer of a run's `failures.jsonl`: up to `MAX_DETAILED` failures per iteration in full, others as a count."""

    def __init__(self, run: Path) -> None:
        """Use the file in the run folder `run`. The file need not exist."""
        self.path = run / FAILURES
        self.secret_variables: Collection[str] = ()
        """Environment variables whose values are never written, in addition to names like KEY and TOKEN."""
        self._further: Counter[int] = Counter()

    def add(self, record: MatchRecord) -> None:
        """Log a failed match in full, or only count it if its iteration has `MAX_DETAILED` entries or the file is full.

        Counts are written by `flush`. Raises StoreError if the disk fails or the file is damaged.
        """
        with self._open() as writer:
            logged = sum(row.get("iteration") == record.iteration and "match" in row for row in writer.rows)
            if logged < MAX_DETAILED and writer.size < MAX_BYTES:
                writer.append(to_plain(self._row(record), "failure", gaps=True))
            else:
                self._further[record.iteration] += 1

    def flush(self) -> None:
        """Write the numbers of failures that were only counted since the last flush, one line per iteration."""
        if self._further:
            with self._open() as writer:
                writer.write(to_line({"iteration": k, "more": more}) for k, more in sorted(self._further.items()))
            self._further.clear()

    def contains(self, match: str) -> bool:
        """Return True if a match with this id is logged in full."""
        return any(failed.match == match for failed in read_failures(self.path.parent)[0])

    def discard_after(self, iteration: int) -> None:
        """Remove the entries of later iterations, which will be played again, and forget counts not yet written."""
        self._further.clear()
        rows = _read_rows(self.path)
        earlier = [row for row in rows if row["iteration"] <= iteration]
        if rows and not earlier:
            remove(self.path)
        elif len(earlier) < len(rows):
            write_atomic(self.path, "".join(f"{to_line(row)}\n" for row in earlier))

    def _open(self) -> LineWriter:
        try:
            return LineWriter(self.path)
        except LogError as error:
            raise _add_advice(error) from None

    def _row(self, record: MatchRecord) -> dict[str, Any]:
        failure = record.failure or Failure(kind="game")
        seats = {seat: {"role": s.role, "policy": s.policy, "version": s.version} for seat, s in record.seats.items()}
        texts = {"reason": truncate_middle(record.reason, MAX_REASON), "trace": failure.trace}
        return {
            "match": record.id, "iteration": record.iteration, "attempt": record.attempt, "game": record.game,
            "options": record.options, "seed": record.seed, "draws": list(failure.draws), "seats": seats,
            "kind": failure.kind, "error": failure.error, "where": failure.where, "seat": failure.seat,
            "act": failure.act, "given_up": failure.given_up, "when": record.started, "seconds": record.seconds,
            "again": _replay_call(self.path.parent, record, failure.act),
        } | {name: remove_secrets(text, self.secret_variables) for name, text in texts.items()}  # fmt: skip


def read_failures(run: Path) -> tuple[list[FailedMatch], dict[int, int]]:
    """Return a run's failures logged in full, oldest first, and the number of further failures by iteration.

    Both are empty if the file is missing. Raises LogError for a damaged line and StoreError if the file is a link.
    """
    path, failed, more = run / FAILURES, list[FailedMatch](), Counter[int]()
    for number, row in enumerate(_read_rows(path), start=1):
        try:
            if "more" in row:
                further = _FurtherFailures.model_validate(row)
                more[further.iteration] += further.more
            else:
                failed.append(FailedMatch.model_validate(row))
        except ValidationError:
            raise _add_advice(LogError(f"{path}:{number}: this line is not a failed match")) from None
    return failed, dict(more)


def _read_rows(path: Path) -> list[dict[str, Any]]:
    require_regular_file(path)
    try:
        rows = read_lines(path)
    except LogError as error:
        raise _add_advice(error) from None
    for number, row in enumerate(rows, start=1):
        if not isinstance(row.get("iteration"), int):
            raise _add_advice(LogError(f"{path}:{number}: this line names no iteration"))
    return rows


def _add_advice(error: LogError) -> LogError:
    """Return the LogError with the advice to remove the file, which no run needs."""
    return LogError(f"{str(error).removesuffix(': restore the file from a copy')}: remove the file, no run needs it")


def _replay_call(run: Path, record: MatchRecord, act: str | None) -> str:
    acts = [turn.action for turn in record.turns if turn.source not in UNREAD] + ([act] if act is not None else [])
    acts_code = repr(acts)
    if len(acts_code) > MAX_ACTS:
        turns = f"RunReader({str(run.absolute())!r}).match({record.id!r})['turns']"
        acts_code = f"[turn['action'] for turn in {turns} if turn.get('source') not in ('summary', 'replaced')]"
    reader = "from arena.store.reader import RunReader\n" if len(repr(acts)) > MAX_ACTS else ""
    call = f"replay_failed({record.game!r}, {record.options!r}, seed={record.seed}, acts={acts_code})"
    return f"from arena.play.failures import replay_failed\n{reader}{call}"
