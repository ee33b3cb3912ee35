"""One match: a coroutine that walks a game from its deal to its end and keeps the record."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Protocol

from agents.players.base import Act, View
from agents.players.model import BrainPlayer
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
    """Turns so far, what each seat earns while its latest turn is open, and how much was played."""

    seats: Iterable[str]
    turns: list[Turn] = field(default_factory=list)
    count: int = 0
    tokens: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    """Of each seat's latest turn."""

    def __post_init__(self) -> None:
        # Rewards that arrive before a seat's first turn wait here and become that turn's.
        self.earning: dict[str, dict[str, float]] = {seat: {} for seat in self.seats}
        self.moved: set[str] = set()

    def open_turn(self, seat: str) -> dict[str, float]:
        """The rewards of the seat's new turn, to which all that the seat earns until its next one is added."""
        if seat in self.moved:
            self.earning[seat] = {}
        self.moved.add(seat)
        return self.earning[seat]

    def reward(self, seat: str, parts: Mapping[str, float]) -> None:
        """Add reward parts to the seat's latest turn."""
        earning = self.earning[seat]
        for name, value in parts.items():
            earning[name] = earning.get(name, 0.0) + value


async def play_match(
    plan: MatchPlan, game: Any, players: Mapping[str, SeatedPlayer], limits: Limits, keep_turns: bool = True
) -> MatchRecord:
    """Play one match to its end. A match that cannot be finished is returned as failed, with its reason.

    `game` is a text AEC environment (design: Game contract), not yet reset. Model trouble, limits and
    faults of the game itself end this match alone; they never raise into the caller. Without `keep_turns`
    the record holds the outcome alone, no turns and no streams.
    """
    started, clock = datetime.now(UTC), monotonic()
    tally, reason = _Tally(plan.seats), ""
    outcome: tuple[dict[str, float], dict[str, float | bool | str]] = {}, {}
    try:
        await _walk(plan, game, players, limits, tally, clock, keep_turns)
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
        seats={s: _as_played(seating, tally.versions.get(s)) for s, seating in plan.seats.items()},
        status="failed" if reason else "finished",
        reason=reason,
        payoffs=outcome[0],
        report=outcome[1],
        turns=tuple(tally.turns),
        streams={seat: tuple(player.streams) for seat, player in players.items()} if keep_turns else {},
        attempt=plan.attempt,
        started=started.isoformat(timespec="milliseconds"),
        seconds=monotonic() - clock,
    )


def _as_played(seating: Seating, version: int | None) -> Seating:
    """The seating with the version that took the seat's latest turn, if it took any."""
    return seating if version in (None, seating.version) else replace(seating, version=version)


async def _walk(
    plan: MatchPlan,
    game: Any,
    players: Mapping[str, SeatedPlayer],
    limits: Limits,
    tally: _Tally,
    clock: float,
    keep_turns: bool,
) -> None:
    game.reset(seed=plan.seed)
    for seat in game.agent_iter():
        observation, _, terminated, truncated, info = game.last()
        if terminated or truncated:
            game.step(None)
            continue
        begun = monotonic()
        _check(limits, tally, begun - clock)
        view = _view(seat, tally.count, observation, info)
        player = players[seat]
        act = await _timed(player, view, limits.turn_seconds)
        game.step(act.action)
        tally.count += 1
        tally.tokens += act.tokens
        tally.versions[seat] = player.version
        rewards = tally.open_turn(seat)
        if keep_turns:
            valid = bool(game.infos[seat].get("valid"))
            turn = _turn(plan.seats[seat], view, act, player.version, valid, rewards, monotonic() - begun)
            tally.turns.append(turn)
        for other in plan.seats:
            if parts := game.infos[other]["rewards"]:
                tally.reward(other, parts)


async def _timed(player: SeatedPlayer, view: View, seconds: float | None) -> Act:
    """The player's act; LimitReached when it takes longer than `seconds`."""
    if seconds is None or isinstance(player, BrainPlayer):  # a brain never waits: nothing could interrupt it
        return await player.act(view)
    try:
        async with asyncio.timeout(seconds) as watch:
            return await player.act(view)
    except TimeoutError:
        if watch.expired():
            raise LimitReached(f"turn time limit: {view.seat} took over {seconds:g} s") from None
        raise


def _check(limits: Limits, tally: _Tally, seconds: float) -> None:
    if limits.turns is not None and tally.count >= limits.turns:
        raise LimitReached(f"turn limit: {tally.count} turns taken")
    if limits.tokens is not None and tally.tokens >= limits.tokens:
        raise LimitReached(f"token limit: {tally.tokens} tokens written of {limits.tokens}")
    if limits.seconds is not None and seconds >= limits.seconds:
        raise LimitReached(f"time limit: {seconds:.1f} s of {limits.seconds:g} s")


def _view(seat: str, turn: int, observation: Mapping[str, Any], info: Mapping[str, Any]) -> View:
    legal = info.get("legal")
    return View(
        seat=seat,
        turn=turn,
        messages=tuple(observation["messages"]),
        rules=info.get("rules", ""),
        public=info.get("public", {}),
        private=info.get("private", {}),
        legal=None if legal is None else tuple(legal),
    )


def _turn(
    seating: Seating, view: View, act: Act, version: int, valid: bool, rewards: dict[str, float], seconds: float
) -> Turn:
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
        valid=valid,
        rewards=rewards,
        finish=act.finish,
        tokens=act.tokens,
        seconds=seconds,
    )
