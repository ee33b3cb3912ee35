"""Failures of matches: their kind, the code at fault, and replay of the game up to the failure."""

from __future__ import annotations

import logging
import sysconfig
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import games
from agents.errors import (
    ChatError,
    EndpointError,
    EngineDied,
    EngineError,
    EnginesLost,
    HarnessError,
    PatternError,
    RoleError,
    ScriptedPolicyError,
    WeightsError,
)
from agents.players.human import HumanLeft
from arena.errors import BugError, ConfigError, WorkerLost
from arena.plain import remove_secrets, truncate_middle
from arena.play.making import skip_ended_seats
from arena.records import Failure, Kind, MatchRecord
from games.contracts import Deal, Game

MAX_CHARACTERS = 8000
"""Maximum characters recorded of a traceback and of an act."""
MAX_CAUSE = 120
"""Maximum characters of a failure's cause in the metrics."""

PERSON_FAULT = "the player of the simulated person did not keep to its record"

CodePosition = tuple[FrameType, int]
"""Stack frame and line number."""

_LOG = logging.getLogger(__name__)
_ROOT = Path(games.__file__).resolve().parents[1]
_PACKAGES = tuple(f"{_ROOT / name}/" for name in ("arena", "agents", "games", "simulators"))
_ADAPTERS, _ENGINES = f"{_ROOT / 'games' / 'adapters'}/", f"{_ROOT / 'agents' / 'engines'}/"
_LIBRARIES = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "purelib", "platlib"))
_OUTSIDE_ERRORS = (EndpointError, EngineError, HumanLeft, WorkerLost)
_FILE_ERRORS = (RoleError, PatternError, ChatError, ScriptedPolicyError, WeightsError)
"""Errors in files of the user, such as a role or a model, which are no bugs of Arena."""


class LimitReached(Exception):
    """Raised if a match exceeds a limit, such as its turns, tokens, seconds or context length."""


class OutcomeError(ValueError):
    """Raised if a game returns a payoff, reward or report that cannot be logged. `methods` are the methods at fault."""

    def __init__(self, text: str, methods: Sequence[str]) -> None:
        super().__init__(text)
        self.methods = methods


def describe_failure(error: Exception, game: Game, draws: Sequence[int], seat: str, act: str | None) -> Failure:
    """Return the log entry for an exception that ended a match of `game` at a turn of `seat`.

    `draws` are the plan's. `act` is the act passed to the game, if its step did not return. Reraises WeightsError,
    EnginesLost and ConfigError (of a user's rollout part), because they would fail every match.
    """
    if isinstance(error, WeightsError | EnginesLost | ConfigError):
        raise error
    frames = list(traceback.walk_tb(error.__traceback__))
    if isinstance(error, OutcomeError):
        kind: Kind = "bug" if _is_our_game(type(game)) else "game"
        location = _find_definition(type(game), error.methods)
    else:
        kind, at = _classify(error, frames, type(game))
        location = _format_position(at)
    trace = "".join(traceback.TracebackException.from_exception(error, limit=-60).format())
    act = None if act is None else truncate_middle(act, MAX_CHARACTERS)
    trace = truncate_middle(remove_secrets(trace), MAX_CHARACTERS)
    return Failure(
        kind=kind, draws=tuple(draws), error=type(error).__name__, where=location, trace=trace, seat=seat, act=act
    )


def describe_error(error: Exception) -> str:
    """Return an exception as one line: `Type: message`."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 the exception's own __str__ may fail
        return f"{type(error).__name__}: (no text: it raises another exception)"


def describe_person_failure(report: Mapping[str, float | bool | str], draws: Sequence[int]) -> tuple[str, Failure]:
    """Return reason and failure of a match whose simulated person departed from its record, from the match's report."""
    counts = [f"{name}: {count}" for name, count in report.items() if name.startswith("person_")]
    return PERSON_FAULT, Failure(kind="person", draws=tuple(draws), trace="\n".join(counts))


def mark_failed(record: MatchRecord, kind: Kind, draws: Sequence[int], reason: str) -> MatchRecord:
    """Return a finished match as a failed one, with `kind` and `reason` instead of payoffs and report. Logs it."""
    failure = Failure(kind=kind, draws=tuple(draws))
    record = replace(record, status="failed", reason=reason, payoffs={}, report={}, failure=failure)
    log_failure(record)
    return record


def log_failure(record: MatchRecord) -> None:
    """Log a failed match as a warning, and a truncated one as information. Its traceback is logged at level DEBUG."""
    if record.failure:
        location = f", at {record.failure.where}" if record.failure.where else ""
        _LOG.warning("match %s failed (%s): %s%s", record.id, record.failure.kind, record.reason, location)
        _LOG.debug("%s", record.failure.trace)
    elif record.reason:
        _LOG.info("match %s was cut off: %s", record.id, record.reason)


def raise_bug(record: MatchRecord) -> None:
    """Raise BugError if a bug of Arena made the match fail, because a retry would fail again."""
    if record.failure and record.failure.kind == "bug":
        raise BugError(f"a bug of Arena ended match {record.id}: {describe_reason(record)}", record)


def is_engine_death(record: MatchRecord) -> bool:
    """Return True if a match failed because an engine's process died, which the match did not cause."""
    return record.failure is not None and record.failure.error == EngineDied.__name__


def is_final(record: MatchRecord) -> bool:
    """Return True if a retry cannot help, as after failures of kind `person`: the players would say the same again."""
    return record.failure is not None and record.failure.kind == "person"


def may_depend_on_play(record: MatchRecord) -> bool:
    """Return True for a failure of kind `game` or `limit`, which other acts might avoid."""
    return record.failure is not None and record.failure.kind in ("game", "limit")


def is_repeated(failed: MatchRecord, retry: MatchRecord) -> bool:
    """Return True if a retry repeats the failed attempt's turns and act in progress, or if it recorded no turns."""
    if not retry.turns:
        return True  # the record has no turns to compare
    turns = [(turn.seat, turn.raw) for turn in failed.turns]
    same = turns == [(turn.seat, turn.raw) for turn in retry.turns[: len(turns)]]
    act = failed.failure.act if failed.failure else None
    return same and (act is None or act in [turn.action for turn in retry.turns[len(turns) : len(turns) + 1]])


def describe_cause(record: MatchRecord) -> str:
    """Return a failure's cause, such as `RuntimeError at race.py:21`, or the shortened reason if it has no code."""
    file, _, line = (record.failure.where if record.failure else "").rpartition(", line ")
    if record.failure and file:
        return f"{record.failure.error} at {Path(file).name}:{line}"
    return truncate_middle(record.reason, MAX_CAUSE)


def count_failures(attempts: Sequence[MatchRecord]) -> dict[str, int | str]:
    """Return metrics of failed attempts: `failed` (attempts), `given_up` (matches), `failure` (most common cause)."""
    counts: dict[str, int | str] = {
        "failed": len(attempts),
        "given_up": sum(bool(each.failure and each.failure.given_up) for each in attempts),
    }
    return counts | ({"failure": Counter(map(describe_cause, attempts)).most_common(1)[0][0]} if attempts else {})


def describe_reason(record: MatchRecord) -> str:
    """Return a match's reason, followed by file and line in parentheses if its game or Arena's code failed."""
    place = record.failure.where if record.failure and record.failure.kind in ("game", "bug") else ""
    return f"{record.reason} ({place})" if place else record.reason


def replay_failed(game: str, options: dict[str, Any], seed: int, acts: Sequence[str]) -> Game:
    """Replay a failed match's deal and acts, and return the game in the state before the failure.

    The game's exception is raised again. Observations before each act, and payoffs and report at the end, are computed
    too, because these may have failed.
    """
    replay = games.start_match(Deal(game, options, seed))
    for act in (*acts, None):
        skip_ended_seats(replay)
        if not replay.agents:
            replay.payoffs()
            replay.report()
            break
        replay.observe(replay.agent_selection)
        if act is not None:
            replay.step(act)
    return replay


def _classify(error: Exception, frames: list[CodePosition], game: type) -> tuple[Kind, CodePosition | None]:
    """Return a failure's kind and the frame at fault, from the exception's type and the files in its traceback.

    An exception in a library is attributed to its caller, and one that passed through a user's file to that file. With
    a user's game, exceptions in Arena's own code are attributed to the game, whose values may be wrong. The frame is
    None for limits, endpoints and agent programs.
    """
    if isinstance(error, LimitReached | MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "limit", None
    if isinstance(error, _OUTSIDE_ERRORS):
        return "endpoint", None
    if isinstance(error, HarnessError):
        return "game", None
    in_arena = [position for position in frames if _is_arena_code(position[0])]
    in_user_code = [position for position in frames if _is_user_code(position[0])]
    if in_user_code:
        return "game", in_user_code[-1]
    position = in_arena[-1] if in_arena else None
    is_in_engine = position is not None and position[0].f_code.co_filename.startswith(_ENGINES)
    is_in_adapter = position is not None and position[0].f_code.co_filename.startswith(_ADAPTERS)
    is_foreign = is_in_adapter or (not is_in_engine and not _is_our_game(game))
    return ("game" if is_foreign or isinstance(error, _FILE_ERRORS) else "bug"), position


def _is_arena_code(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_PACKAGES)


def _is_user_code(frame: FrameType) -> bool:
    """Return True if the frame runs a user's file, neither Arena's nor an installed package's."""
    file = frame.f_code.co_filename
    is_library = file.startswith(("<", *_LIBRARIES)) or "/site-packages/" in file or "/dist-packages/" in file
    return not _is_arena_code(frame) and not is_library


def _is_our_game(game: type) -> bool:
    """Return True if Arena implements the game's rules, False for users' games and adapters of other libraries."""
    return game.__module__.split(".")[0] in ("games", "simulators") and not game.__module__.startswith("games.adapters")


def _find_definition(game: type, methods: Sequence[str]) -> str:
    """Return file and line of the first of these methods that the game's class or a base class defines in Python.

    Returns "" if there is none.
    """
    for owner in game.__mro__:
        for name in methods:
            code = getattr(vars(owner).get(name), "__code__", None)
            if code is not None:
                return f"{code.co_filename.removeprefix(f'{_ROOT}/')}, line {code.co_firstlineno}"
    return ""


def _format_position(position: CodePosition | None) -> str:
    """Return a position as text, such as `games/base.py, line 120`; "" for None. Paths outside Arena are absolute."""
    if position is None:
        return ""
    file = position[0].f_code.co_filename
    return f"{file.removeprefix(f'{_ROOT}/')}, line {position[1]}"
