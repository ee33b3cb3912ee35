"""One match: a coroutine that walks a game from its deal to its end and keeps the record."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Protocol

from agents.players.base import Act, Message, View
from agents.stream import Stream
from arena.records import MatchRecord, Seating, Turn


class LimitReached(Exception):
    """A match used up its turns, tokens or seconds."""


@dataclass(frozen=True)
class Limits:
    """What a match may use before it is called off; None is no limit."""

    turns: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    turn_seconds: float | None = None


class SeatedPlayer(Protocol):
    """A player with its token record."""

    streams: list[Stream]
    stream_keys: list[str]
    version: int

    async def act(self, view: View) -> Act: ...


@dataclass(frozen=True)
class MatchPlan:
    """What is settled before a match begins."""

    id: str
    iteration: int
    game: str
    options: dict[str, Any]
    seed: int
    seats: dict[str, Seating]
    attempt: int = 0


@dataclass
class _Tally:
    """Turns so far, and the rewards that arrived for seats that had not moved yet."""

    turns: list[Turn] = field(default_factory=list)
    early: dict[str, dict[str, float]] = field(default_factory=dict)
    tokens: int = 0

    def reward(self, seat: str, parts: Mapping[str, float]) -> None:
        """Add reward parts to the seat's latest turn, or keep them for its first."""
        if not parts:
            return
        for i in range(len(self.turns) - 1, -1, -1):
            if self.turns[i].seat == seat:
                self.turns[i] = replace(self.turns[i], rewards=_sum(self.turns[i].rewards, parts))
                return
        self.early[seat] = _sum(self.early.get(seat, {}), parts)


def _sum(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    return {name: a.get(name, 0.0) + b.get(name, 0.0) for name in {**a, **b}}


async def play_match(plan: MatchPlan, game: Any, players: Mapping[str, SeatedPlayer], limits: Limits) -> MatchRecord:
    """Play one match to its end. A match that cannot be finished is returned as failed, with its reason.

    `game` is a text AEC environment (design: Game contract), not yet reset. Model trouble, limits and
    faults of the game itself end this match alone; they never raise into the caller.
    """
    started, clock = datetime.now(UTC), monotonic()
    tally, reason = _Tally(), ""
    outcome: tuple[dict[str, float], dict[str, float | bool | str]] = {}, {}
    try:
        await _walk(plan, game, players, limits, tally, clock)
        outcome = dict(game.payoffs()), dict(game.report())
    except LimitReached as limit:
        reason = str(limit)
    except Exception as error:  # noqa: BLE001 a fault of one game or player must not end the others
        reason = f"{type(error).__name__}: {error}"
    return MatchRecord(
        id=plan.id,
        iteration=plan.iteration,
        game=plan.game,
        options=plan.options,
        seed=plan.seed,
        seats={s: _as_played(s, seating, tally.turns) for s, seating in plan.seats.items()},
        status="failed" if reason else "finished",
        reason=reason,
        payoffs=outcome[0],
        report=outcome[1],
        turns=tuple(tally.turns),
        streams={seat: tuple(player.streams) for seat, player in players.items()},
        attempt=plan.attempt,
        started=started.isoformat(timespec="milliseconds"),
        seconds=monotonic() - clock,
    )


def _as_played(seat: str, seating: Seating, turns: list[Turn]) -> Seating:
    """The seating with the version that took the seat's latest turn, if it took any."""
    return next((replace(seating, version=turn.version) for turn in reversed(turns) if turn.seat == seat), seating)


async def _walk(
    plan: MatchPlan,
    game: Any,
    players: Mapping[str, SeatedPlayer],
    limits: Limits,
    tally: _Tally,
    clock: float,
) -> None:
    game.reset(seed=plan.seed)
    for seat in game.agent_iter():
        observation, _, terminated, truncated, info = game.last()
        if terminated or truncated:
            game.step(None)
            continue
        _check(limits, tally, monotonic() - clock)
        view = _view(seat, len(tally.turns), observation, info)
        begun = monotonic()
        try:
            async with asyncio.timeout(limits.turn_seconds) as watch:
                act = await players[seat].act(view)
        except TimeoutError:
            if watch.expired():
                raise LimitReached(f"turn time limit: {seat} took over {limits.turn_seconds:g} s") from None
            raise
        game.step(act.action)
        tally.tokens += act.tokens
        tally.turns.append(_turn(plan.seats[seat], view, act, players[seat].version, game.infos[seat], begun))
        tally.reward(seat, tally.early.pop(seat, {}))
        for other in plan.seats:
            tally.reward(other, game.infos[other]["rewards"])


def _check(limits: Limits, tally: _Tally, seconds: float) -> None:
    if limits.turns is not None and len(tally.turns) >= limits.turns:
        raise LimitReached(f"turn limit: {len(tally.turns)} turns taken")
    if limits.tokens is not None and tally.tokens >= limits.tokens:
        raise LimitReached(f"token limit: {tally.tokens} tokens written of {limits.tokens}")
    if limits.seconds is not None and seconds >= limits.seconds:
        raise LimitReached(f"time limit: {seconds:.1f} s of {limits.seconds:g} s")


def _view(seat: str, turn: int, observation: Mapping[str, Any], info: Mapping[str, Any]) -> View:
    legal = info.get("legal")
    return View(
        seat=seat,
        turn=turn,
        messages=tuple(Message(sender=m["sender"], text=m["text"]) for m in observation["messages"]),
        rules=info.get("rules", ""),
        public=info.get("public", {}),
        private=info.get("private", {}),
        legal=None if legal is None else tuple(legal),
    )


def _turn(seating: Seating, view: View, act: Act, version: int, info: Mapping[str, Any], begun: float) -> Turn:
    return Turn(
        index=view.turn,
        seat=view.seat,
        role=seating.role,
        policy=seating.policy,
        version=version,
        messages=view.messages,
        raw=act.raw,
        public=act.public,
        private=act.private,
        action=act.action,
        valid=bool(info.get("valid")),
        rewards={},
        finish=act.finish,
        tokens=act.tokens,
        seconds=monotonic() - begun,
    )
