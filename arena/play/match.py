"""Play of one match: a coroutine that plays a game from its deal to its end and returns the record."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from time import monotonic
from typing import Any, Protocol

from agents.errors import ContextFull
from agents.player import Player
from agents.stream import Stream
from arena.errors import ConfigError
from arena.plain import clean_text
from arena.play.branches import Branch
from arena.play.control import CONTINUE, Continue, Decision, MatchControl, Stop
from arena.play.failures import LimitReached, describe_error, describe_failure, describe_person_failure, log_failure
from arena.play.steps import RunStep, get_run_step, limit_time
from arena.play.texts import clean_act, view_of
from arena.play.turns import TurnRecorder, require_loggable
from arena.records import MatchRecord, MatchSource, Seating, Turn, collect_pictures, list_images
from arena.store.blobs import verify_blob
from games.abilities import Pictures, Situations, Stoppable
from games.contracts import MAX_TURNS, PERSON, UNREAD, Act, Game, GameFull, MatchId, View
from games.pictures import check_picture

PLACE_SECONDS = 0.2
"""Time between attempts at the deal of a game that is full."""
MAX_PLACE_SECONDS = 3600.0
"""Time after which a match that got no place fails."""


@dataclass(frozen=True)
class Limits:
    """Limits beyond which a match fails. None is no limit, except that a match has at most MAX_TURNS turns."""

    turns: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    turn_seconds: float | None = None


class SeatedPlayer(Player, Protocol):
    """Player at a seat, with its token streams, their keys in the engine, and the version of its policy."""

    @property
    def streams(self) -> Sequence[Stream]: ...

    @property
    def stream_keys(self) -> Sequence[str]: ...

    @property
    def version(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class MatchPlan:
    """Plan of a match, fixed before it begins: identity, game, options, seed, seatings, and its origin."""

    identity: MatchId
    game: str
    options: dict[str, Any]
    seed: int
    seats: dict[str, Seating]
    draws: tuple[int, ...] = ()
    """Numbers that give the match other random draws than the other matches of the same deal."""
    branch: Branch | None = None
    """Set if the match repeats another match up to some turn."""
    group: int = -1
    """Number, in its iteration, of the group of matches with its seed; -1 if it has no group."""
    stage: str = ""
    """Purpose of the match, such as `train`."""
    source: MatchSource = "played"
    capped: str = ""
    """Option of the game that a rollout part set to another value than the table's; "" if none."""

    @cached_property
    def id(self) -> str:
        """Printed identity, such as 0001-0003-b4."""
        return str(self.identity)

    @property
    def iteration(self) -> int:
        """Iteration of the run that plays the match."""
        return self.identity.iteration

    @property
    def attempt(self) -> int:
        """Number of earlier failed attempts at the match."""
        return self.identity.attempt


Control = Callable[[MatchPlan, Game], Sequence[MatchControl]]
"""Function that returns the controls of a match; the game is not yet reset."""
OnTurn = Callable[[MatchPlan, Turn], None]
"""Callback for each new turn with its rewards so far. The turn may get further rewards later."""


async def play_match(
    plan: MatchPlan,
    game: Game,
    players: Mapping[str, SeatedPlayer],
    limits: Limits,
    keep_turns: bool = True,
    on_turn: OnTurn | None = None,
    controls: Sequence[MatchControl] = (),
) -> MatchRecord:
    """Play one match to its end and return its record, with status `failed` if it cannot finish.

    `game` is not yet reset. Exceptions of models, limits and the game itself fail this match and are not raised, except
    for unusable weights and the loss of all engines, which would fail every match. Without `keep_turns` the record has
    no turns and no streams. `on_turn` is called with each turn. `controls` may replace models' acts and stop the match.
    """
    started, start, reason, failure = datetime.now(UTC), monotonic(), "", None
    payoffs, report, pictures = dict[str, float](), dict[str, float | bool | str](), dict[str, bytes]()
    recorder = TurnRecorder(plan.seats, partial(on_turn, plan) if on_turn else None) if keep_turns or on_turn else None
    playthrough = _Playthrough(
        plan=plan, game=game, players=players, limits=limits, start=start, recorder=recorder, controls=controls
    )
    try:
        await playthrough.play()
        if recorder and isinstance(game, Pictures):
            pictures = _read_pictures(game, recorder.turns)
        payoffs, report = _read_outcome(game)
        if report.get("ended") == PERSON:
            reason, failure = describe_person_failure(report, plan.draws)
            payoffs, report = {}, {}
    except Exception as error:  # noqa: BLE001 a fault of one game or player must not end other matches
        reason = str(error) if isinstance(error, LimitReached) else describe_error(error)
        failure = describe_failure(error, game, plan.draws, playthrough.seat, playthrough.act)
    streams = {seat: tuple(player.streams) for seat, player in players.items()} if keep_turns else {}
    record = MatchRecord(
        identity=plan.identity, game=plan.game, options=plan.options, seed=plan.seed,
        seats=_update_versions(plan.seats, playthrough.versions),
        status="failed" if failure else "finished",
        reason=reason or playthrough.cut_reason,
        payoffs=payoffs,
        report=report,
        turns=recorder.turns if recorder and keep_turns else (),
        streams=streams,
        started=started.isoformat(timespec="milliseconds"),
        seconds=monotonic() - start,
        rules=game.rules_version, group=plan.group, stage=plan.stage, source=plan.source,
        pictures=pictures | collect_pictures(streams),
        failure=failure,
    )  # fmt: skip
    log_failure(record)
    return record


def _read_pictures(game: Pictures, turns: Sequence[Turn]) -> dict[str, bytes]:
    """Return the bytes of the images in turns by hash, checked against the game's descriptions of them."""
    pictures = {}
    for image in list_images(turns):
        pictures[image.hash] = verify_blob(image.hash, game.picture(image.hash))
        check_picture(image, pictures[image.hash])
    return pictures


def _read_outcome(game: Game) -> tuple[dict[str, float], dict[str, float | bool | str]]:
    """Return the game's payoffs by seat and its report. Raises OutcomeError for values that no log can hold."""
    payoffs, report = dict(game.payoffs()), dict(game.report())
    for seat, value in payoffs.items():
        require_loggable(value, f"the payoff of {seat}", "payoffs")
    for name, figure in report.items():
        require_loggable(figure, f"the report's '{name}'", "report", "figures")
    return payoffs, report


def _update_versions(seats: dict[str, Seating], versions: Mapping[str, int]) -> dict[str, Seating]:
    """Return the seatings with the policy version of each seat's latest turn."""
    newer = {seat: version for seat, version in versions.items() if version != seats[seat].version}
    return seats | {seat: replace(seats[seat], version=version) for seat, version in newer.items()} if newer else seats


@dataclass(kw_only=True)
class _Playthrough:
    """Match in progress; `play` plays it to its end."""

    plan: MatchPlan
    game: Game
    players: Mapping[str, SeatedPlayer]
    limits: Limits
    start: float
    """Start of the match by the monotonic clock."""
    recorder: TurnRecorder | None
    controls: Sequence[MatchControl]
    run_step: RunStep | None = None
    """Runs the steps of a game that may block in threads; None for other games."""
    turn_count: int = 0
    tokens: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    """Policy version of each seat's latest turn."""
    seat: str = ""
    """Seat to move."""
    act: str | None = None
    """Act passed to a step of the game that has not returned."""
    cut_reason: str = ""
    """Why the match was cut off; "" if it was not."""

    async def play(self) -> None:
        """Deal and play to the end. Raises the exceptions of game, players and limits."""
        game = self.game
        self.run_step = get_run_step(game)
        await self._deal()
        while game.agents:
            seat = self.seat = game.agent_selection
            if not (game.terminations[seat] or game.truncations[seat]):
                try:
                    await self._turn(seat)
                finally:
                    if self.recorder:
                        self.recorder.report_turns()
            elif all(game.terminations.values()) or self.cut_reason:
                return  # only the steps that AEC requires of dead agents remain, and they change nothing
            else:
                game.step(None)

    async def _deal(self) -> None:
        """Deal. While other matches take all places of the game, wait and try again."""
        deal = partial(self.game.reset, seed=self.plan.seed)
        started = self.start
        while True:
            try:
                return await self.run_step(deal, "the deal", self.limits.turn_seconds) if self.run_step else deal()
            except GameFull:
                if monotonic() - started > MAX_PLACE_SECONDS:
                    raise
                await asyncio.sleep(PLACE_SECONDS)
                self.start = monotonic()  # the time limit of the match does not include the wait

    async def _turn(self, seat: str) -> None:
        """Let the seat act, pass its act to the game, and record the turn with its rewards.

        Summaries and acts replaced by an expert's are recorded only. A rule or a full context ends the match early.
        """
        start, player, game = monotonic(), self.players[seat], self.game
        _check_limits(self.limits, self.turn_count, self.tokens, start - self.start)
        view = view_of(game, seat, self.turn_count)
        situation = game.situation(seat) if self.recorder and isinstance(game, Situations) else ""
        try:
            act = clean_act(await self._ask(player, view))
        except ContextFull as full:
            return self._cut_off("context", f"{seat}: {full}")
        if act.source in UNREAD:  # the player reads the same messages again
            return self._add_turn(view._replace(messages=()), act, True, start, "")
        decision = self._decide(view, act)
        if not isinstance(decision, Continue):
            self._add_turn(view, act._replace(source="replaced"), True, start, situation)
            if isinstance(decision, Stop):
                return self._cut_off("stopped", decision.reason)
            if not hasattr(player, "replace_reply"):
                raise ConfigError(f"play.parts: the act of {seat} cannot be replaced: no model with weights plays it")
            view, situation = view._replace(turn=self.turn_count, messages=()), ""
            act = player.replace_reply(view, clean_text(decision.act))  # a model's ChatPlayer
        self.act = act.action  # if the step fails, the failure names the act
        if self.run_step:
            step = partial(game.step, act.action)
            await self.run_step(step, f"the step of {seat}", self.limits.turn_seconds)
        else:
            game.step(act.action)
        self.act = None
        valid = bool(game.infos[seat].get("valid"))
        self._add_turn(view, act, valid, start, situation)
        if self.recorder:
            self.recorder.add_rewards(game, seat if act.excused and not valid else "")
            if isinstance(decision, Continue):
                self.recorder.add_control_rewards(seat, decision.rewards)
        reasons = [reason for control in self.controls if (reason := control.after(seat, act, valid))]
        if reasons and not _is_over(game):
            self._cut_off("stopped", reasons[0])

    def _decide(self, view: View, act: Act) -> Decision:
        """Return the first decision of a control that is not `Continue`, else `Continue` with all their rewards."""
        rewards: dict[str, float] = {}
        for control in self.controls:
            decision = control.before(view, act)
            if not isinstance(decision, Continue):
                return decision
            rewards |= decision.rewards
        return Continue(rewards) if rewards else CONTINUE

    def _ask(self, player: SeatedPlayer, view: View) -> Awaitable[Act]:
        """Ask the player for its act within the time limit. Players that never wait need no timer, which costs time."""
        act = player.act(view)
        return limit_time(act, view.seat, self.limits.turn_seconds) if getattr(player, "waits", True) else act

    def _add_turn(self, view: View, act: Act, valid: bool, start: float, situation: str) -> None:
        version = self.versions[view.seat] = self.players[view.seat].version
        self.turn_count, self.tokens = self.turn_count + 1, self.tokens + act.tokens
        if self.recorder:
            self.recorder.begin_turn(view, act, version, valid, monotonic() - start, situation)

    def _cut_off(self, kind: str, reason: str) -> None:
        """Truncate the game and record why. Raises LimitReached, which fails the match, if it is not Stoppable."""
        if not isinstance(self.game, Stoppable):
            raise LimitReached(reason)
        self.game.stop(kind)
        self.cut_reason = reason
        if self.recorder:
            self.recorder.add_rewards(self.game)


def _is_over(game: Game) -> bool:
    return not game.agents or all(game.terminations.values())


def _check_limits(limits: Limits, turns: int, tokens: int, seconds: float) -> None:
    if turns >= min(limits.turns or MAX_TURNS, MAX_TURNS):
        raise LimitReached(f"turn limit: {turns} turns taken")
    if limits.tokens is not None and tokens >= limits.tokens:
        raise LimitReached(f"token limit: {tokens} tokens written of {limits.tokens}")
    if limits.seconds is not None and seconds >= limits.seconds:
        raise LimitReached(f"time limit: {seconds:.1f} s of {limits.seconds:g} s")
