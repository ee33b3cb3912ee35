"""Failures of matches: the kind of cause, the place in the code, and how to reach it again."""

from __future__ import annotations

import logging
import sysconfig
import traceback
from collections import Counter
from collections.abc import Sequence
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
    PatternError,
    RoleError,
    ScriptedPolicyError,
    WeightsError,
)
from agents.players.human import HumanLeft
from arena.errors import BugError, WorkerLost
from arena.plain import truncate_middle, without_secrets
from arena.records import Failure, Kind, MatchRecord
from games.contracts import Deal, Game

LONGEST = 8000
"""Characters of a traceback, and of an act, that are kept."""
CAUSE = 120
"""Characters of a reason in a line of figures."""

Place = tuple[FrameType, int]
"""A frame and the number of its line."""

_LOG = logging.getLogger(__name__)
_ROOT = Path(games.__file__).resolve().parents[1]
_ROOMS = tuple(f"{_ROOT / room}/" for room in ("arena", "agents", "games", "simulators"))
_ADAPTERS, _ENGINES = f"{_ROOT / 'games' / 'adapters'}/", f"{_ROOT / 'agents' / 'engines'}/"
_LIBRARIES = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "purelib", "platlib"))
_OUTSIDE = (EndpointError, EngineError, HumanLeft, WorkerLost)
_OF_FILES = (RoleError, PatternError, ChatError, ScriptedPolicyError, WeightsError)
"""Errors in a role's or a model's own files, reported in one line."""


class LimitReached(Exception):
    """A match used up its turns, tokens or seconds."""


class OutcomeError(ValueError):
    """A payoff, reward or figure that no log can hold; one of the game's `methods` gave it."""

    def __init__(self, text: str, methods: Sequence[str]) -> None:
        super().__init__(text)
        self.methods = methods


def failure_of(error: Exception, game: Game, draws: Sequence[int], seat: str, act: str | None) -> Failure:
    """Describe an exception that ended a match of `game` at a turn of `seat`.

    WeightsError and EnginesLost go on: with weights that cannot be used, or no engine, every match would end alike.
    """
    if isinstance(error, WeightsError | EnginesLost):
        raise error
    frames = list(traceback.walk_tb(error.__traceback__))
    if isinstance(error, OutcomeError):
        kind: Kind = "bug" if _is_our_game(type(game)) else "game"
        where = _definition(type(game), error.methods)
    else:
        kind, at = _kind(error, frames, type(game))
        where = _place(at)
    trace = "".join(traceback.TracebackException.from_exception(error, limit=-60).format())
    kept = None if act is None else truncate_middle(act, LONGEST)
    told = truncate_middle(without_secrets(trace), LONGEST)
    return Failure(kind, tuple(draws), type(error).__name__, where, told, seat, kept)


def reason_of(error: Exception) -> str:
    """The exception in one line: its type and message."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 somebody's exception may fail at telling what it is, too
        return f"{type(error).__name__}: (no text: it raises another exception)"


def failed(record: MatchRecord, kind: Kind, draws: Sequence[int], why: str) -> MatchRecord:
    """Return the finished match as a failed one, for a reason that shows only afterwards; the failure is logged."""
    failure = Failure(kind, tuple(draws))
    record = replace(record, status="failed", reason=why, payoffs={}, report={}, failure=failure)
    log_failure(record)
    return record


def log_failure(record: MatchRecord) -> None:
    """Log a match that failed, with its traceback under ARENA_DEBUG, or that was cut off."""
    if record.failure:
        where = f", at {record.failure.where}" if record.failure.where else ""
        _LOG.warning("match %s failed (%s): %s%s", record.id, record.failure.kind, record.reason, where)
        _LOG.debug("%s", record.failure.trace)
    elif record.reason:
        _LOG.info("match %s was cut off: %s", record.id, record.reason)


def stop_at_a_bug(record: MatchRecord) -> None:
    """Raise BugError where Arena's own code failed: the match would only fail again."""
    if record.failure and record.failure.kind == "bug":
        raise BugError(f"a bug of Arena ended match {record.id}: {with_place(record)}", record)


def by_a_death(record: MatchRecord) -> bool:
    """Return True if a match failed because an engine's process died: that says nothing about the match."""
    return record.failure is not None and record.failure.error == EngineDied.__name__


def may_depend_on_play(record: MatchRecord) -> bool:
    """Return True if a match failed by its game or a limit: which matches do may depend on what was played."""
    return record.failure is not None and record.failure.kind in ("game", "limit")


def is_repeated(failed: MatchRecord, again: MatchRecord) -> bool:
    """Return True if a replay went as the failed attempt did, as far as that went."""
    if not again.turns:
        return True  # its turns are not kept
    turns = [(turn.seat, turn.raw) for turn in failed.turns]
    same = turns == [(turn.seat, turn.raw) for turn in again.turns[: len(turns)]]
    act = failed.failure.act if failed.failure else None
    return same and (act is None or act in [turn.action for turn in again.turns[len(turns) : len(turns) + 1]])


def cause_of(record: MatchRecord) -> str:
    """Return a failure's cause in few words: `RuntimeError at race.py:21`, or the reason if no code is to be blamed."""
    file, _, line = (record.failure.where if record.failure else "").rpartition(", line ")
    if record.failure and file:
        return f"{record.failure.error} at {Path(file).name}:{line}"
    return truncate_middle(record.reason, CAUSE)


def failure_figures(attempts: Sequence[MatchRecord]) -> dict[str, int | str]:
    """Count failed attempts and the matches given up after them, with the commonest cause if there is one."""
    counts: dict[str, int | str] = {
        "failed": len(attempts),
        "given_up": sum(bool(each.failure and each.failure.given_up) for each in attempts),
    }
    return counts | ({"failure": Counter(map(cause_of, attempts)).most_common(1)[0][0]} if attempts else {})


def with_place(record: MatchRecord) -> str:
    """Return why a match failed, and in which line of which file."""
    place = record.failure.where if record.failure and record.failure.kind in ("game", "bug") else ""
    return f"{record.reason} ({place})" if place else record.reason


def replay_failed(game: str, options: dict[str, Any], seed: int, acts: Sequence[str]) -> Game:
    """The game as it stood when a match failed, its deal and acts played again; or it raises what it raised then."""
    made = games.deal(Deal(game, options, seed))
    for act in (*acts, None):
        while made.agents and (made.terminations[made.agent_selection] or made.truncations[made.agent_selection]):
            made.step(None)
        if not made.agents:
            made.payoffs()
            made.report()
            break
        made.observe(made.agent_selection)
        if act is not None:
            made.step(act)
    return made


def _kind(error: Exception, frames: list[Place], game: type) -> tuple[Kind, Place | None]:
    """Blame a failure by the exception's type and the files that it came through; and name the place to look at.

    A library's fault is that of who called it; one that came through somebody's own file is that file's, wherever it
    ended; and a game that is not ours may have handed anything to anybody.
    """
    if isinstance(error, LimitReached | MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "limit", None
    if isinstance(error, _OUTSIDE) or (frames and _package(frames[-1][0]) == "vllm"):
        return "endpoint", None
    ours = [at for at in frames if _is_ours(at[0])]
    theirs = [at for at in frames if _is_theirs(at[0])]
    if theirs:
        return "game", theirs[-1]
    at = ours[-1] if ours else None
    engine = at is not None and at[0].f_code.co_filename.startswith(_ENGINES)
    wrapped = at is not None and at[0].f_code.co_filename.startswith(_ADAPTERS)
    strange = wrapped or (not engine and not _is_our_game(game))
    return ("game" if strange or isinstance(error, _OF_FILES) else "bug"), at


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_ROOMS)


def _is_theirs(frame: FrameType) -> bool:
    """Return True if somebody wrote the code's file beside Arena; one in an installed package is a library's."""
    file = frame.f_code.co_filename
    library = file.startswith(("<", *_LIBRARIES)) or "/site-packages/" in file or "/dist-packages/" in file
    return not _is_ours(frame) and not library


def _is_our_game(game: type) -> bool:
    """Return True if the game's rules are ours; those of a wrapped game of another library are not."""
    return game.__module__.split(".")[0] in ("games", "simulators") and not game.__module__.startswith("games.adapters")


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).split(".")[0]


def _definition(game: type, methods: Sequence[str]) -> str:
    """Return file and line of the method that is nearest to the game's own class; "" if it has no source."""
    for owner in game.__mro__:
        for name in methods:
            code = getattr(vars(owner).get(name), "__code__", None)
            if code is not None:
                return f"{code.co_filename.removeprefix(f'{_ROOT}/')}, line {code.co_firstlineno}"
    return ""


def _place(at: Place | None) -> str:
    """`games/base.py, line 120`, or the whole path of somebody's own file."""
    if at is None:
        return ""
    file = at[0].f_code.co_filename
    return f"{file.removeprefix(f'{_ROOT}/')}, line {at[1]}"
