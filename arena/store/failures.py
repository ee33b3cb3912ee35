"""failures.jsonl: why matches of a run failed, where in which code, and how to play each of them again."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from arena.plain import plain, truncate_middle, without_secrets
from arena.records import Failure, MatchRecord
from arena.store.files import remove, require_own, write_atomic
from arena.store.lines import LineWriter, LogError, read_lines, to_line
from games.contracts import UNREAD

FAILURES = "failures.jsonl"
FIRST = 20
"""Failures of an iteration that are kept; the others are counted."""
LARGEST = 16_000_000
"""Bytes of the file from which on failures are counted only."""
REASON, ACTS = 2000, 20_000
"""Characters of a reason, and of all acts of a match, that are kept."""


class SeatedPolicy(BaseModel):
    """The role and policy at a seat."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    role: str
    policy: str
    version: int


class FailedMatch(BaseModel):
    """One attempt at a match that failed."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    match: str
    iteration: int
    attempt: int
    game: str
    options: dict[str, Any]
    seed: int
    """Seed of the deal."""
    draws: list[int]
    """Tells its chance from that of other matches of the same deal."""
    seats: dict[str, SeatedPolicy]
    kind: Literal["limit", "endpoint", "game", "bug"]
    reason: str
    error: str
    """The exception's type, "" where there was none."""
    where: str
    """File and line in the code that is to be looked at."""
    trace: str
    seat: str
    """Whose move it was."""
    act: str | None
    """Act that the game had been given and did not take."""
    given_up: bool = False
    """Whether the match was not played again."""
    when: str
    """The match began then, ISO 8601."""
    seconds: float
    again: str
    """Lines of Python that bring the game to the same place."""


class _More(BaseModel):
    """So many other failures of an iteration."""

    iteration: int
    more: int


class FailureLog:
    """The failed matches of a run, the first of every iteration in full."""

    def __init__(self, run: Path) -> None:
        """The file in the run's folder need not exist yet."""
        self.path = run / FAILURES
        self.secret_variables: Collection[str] = ()
        """Environment variables whose values are never written, besides those that are called KEY, TOKEN and such."""
        self._more: Counter[int] = Counter()

    def add(self, record: MatchRecord) -> None:
        """Write a failed match, or count it where its iteration has enough of them; StoreError from the disk."""
        with self._writer() as writer:
            kept = sum(row.get("iteration") == record.iteration and "match" in row for row in writer.rows)
            if kept < FIRST and writer.size < LARGEST:
                writer.append(plain(self._row(record), "failure", gaps=True))
            else:
                self._more[record.iteration] += 1

    def flush(self) -> None:
        """Write how many more there were since the last time."""
        if self._more:
            with self._writer() as writer:
                writer.write(to_line({"iteration": k, "more": more}) for k, more in sorted(self._more.items()))
            self._more.clear()

    def holds(self, match: str) -> bool:
        """Return True if a match of this id is kept."""
        return any(failed.match == match for failed in read_failures(self.path.parent)[0])

    def discard_after(self, iteration: int) -> None:
        """Drop the failures of later iterations, which are played again."""
        self._more.clear()
        rows = _rows(self.path)
        kept = [row for row in rows if row["iteration"] <= iteration]
        if rows and not kept:
            remove(self.path)
        elif len(kept) < len(rows):
            write_atomic(self.path, "".join(f"{to_line(row)}\n" for row in kept))

    def _writer(self) -> LineWriter:
        try:
            return LineWriter(self.path)
        except LogError as error:
            raise _mended(error) from None

    def _row(self, record: MatchRecord) -> dict[str, Any]:
        failure = record.failure or Failure("game")
        seats = {seat: {"role": s.role, "policy": s.policy, "version": s.version} for seat, s in record.seats.items()}
        texts = {"reason": truncate_middle(record.reason, REASON), "trace": failure.trace}
        return {
            "match": record.id, "iteration": record.iteration, "attempt": record.attempt, "game": record.game,
            "options": record.options, "seed": record.seed, "draws": list(failure.draws), "seats": seats,
            "kind": failure.kind, "error": failure.error, "where": failure.where, "seat": failure.seat,
            "act": failure.act, "given_up": failure.given_up, "when": record.started, "seconds": record.seconds,
            "again": _replay_call(self.path.parent, record, failure.act),
        } | {name: without_secrets(text, self.secret_variables) for name, text in texts.items()}  # fmt: skip


def read_failures(run: Path) -> tuple[list[FailedMatch], dict[int, int]]:
    """The failed matches that a run kept, oldest first, and how many more each iteration had.

    None without a file; LogError for a line that is neither, StoreError for what is no file of the run's own.
    """
    path, failed, more = run / FAILURES, list[FailedMatch](), Counter[int]()
    for number, row in enumerate(_rows(path), start=1):
        try:
            if "more" in row:
                counted = _More.model_validate(row)
                more[counted.iteration] += counted.more
            else:
                failed.append(FailedMatch.model_validate(row))
        except ValidationError:
            raise _mended(LogError(f"{path}:{number}: this line is no failed match")) from None
    return failed, dict(more)


def _rows(path: Path) -> list[dict[str, Any]]:
    require_own(path)
    try:
        rows = read_lines(path)
    except LogError as error:
        raise _mended(error) from None
    for number, row in enumerate(rows, start=1):
        if not isinstance(row.get("iteration"), int):
            raise _mended(LogError(f"{path}:{number}: this line names no iteration"))
    return rows


def _mended(error: LogError) -> LogError:
    """The error with what to do: no run counts on this file."""
    return LogError(f"{str(error).removesuffix(': restore the file from a copy')}: remove the file, no run needs it")


def _replay_call(run: Path, record: MatchRecord, act: str | None) -> str:
    acts = [turn.action for turn in record.turns if turn.source not in UNREAD] + ([act] if act is not None else [])
    told = repr(acts)
    if len(told) > ACTS:
        turns = f"RunReader({str(run.absolute())!r}).match({record.id!r})['turns']"
        told = f"[turn['action'] for turn in {turns} if turn.get('source') not in ('summary', 'replaced')]"
    reader = "from arena.store.reader import RunReader\n" if len(repr(acts)) > ACTS else ""
    call = f"replay_failed({record.game!r}, {record.options!r}, seed={record.seed}, acts={told})"
    return f"from arena.play.failures import replay_failed\n{reader}{call}"
