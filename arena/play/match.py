"""One match: a coroutine that walks a game from its deal to its end and keeps the record."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from math import isfinite
from numbers import Real
from time import monotonic
from typing import Any, Protocol

from agents.errors import ContextFull
from agents.player import Player
from agents.stream import Stream
from arena.plain import clean_text, finite, plain
from arena.play.branches import Branch
from arena.play.failures import LimitReached, OutcomeError, failure_of, log_failure, reason_of
from arena.play.steps import Steps, current, in_time
from arena.play.texts import clean_act, view_of
from arena.records import MatchRecord, MatchSource, Seating, Turn, images
from arena.store.blobs import verified
from games.abilities import Blocks, Pictures, Situated, Stoppable
from games.contracts import ILLEGAL, MOST_TURNS, UNREAD, Act, Game, MatchId, View


@dataclass(frozen=True)
class Limits:
    """Limits of a match, beyond which it fails; None is no limit, of turns that of the log (`MOST_TURNS`)."""

    turns: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    turn_seconds: float | None = None


class SeatedPlayer(Player, Protocol):
    """A player with its token record."""

    @property
    def streams(self) -> Sequence[Stream]: ...

    @property
    def stream_keys(self) -> Sequence[str]: ...

    @property
    def version(self) -> int: ...


@dataclass(frozen=True)
class MatchPlan:
    """Everything that is decided before a match begins."""

    identity: MatchId
    game: str
    options: dict[str, Any]
    seed: int
    seats: dict[str, Seating]
    draws: tuple[int, ...] = ()
    """Tells its chance from that of other matches of the same deal."""
    branch: Branch | None = None
    """Branch that this match is: it repeats another match until it parts from it."""
    group: int = -1
    """Number, in its iteration, of the group of matches that share its seed; -1 where it is in none."""
    stage: str = ""
    """Purpose of the match, such as `train`."""
    source: MatchSource = "played"
    capped: str = ""
    """Option of the game that is not the table's, but lower: see `arena.play.adaptive`."""

    @cached_property
    def id(self) -> str:
        """The printed identity."""
        return str(self.identity)

    @property
    def iteration(self) -> int:
        """The iteration that plays it."""
        return self.identity.iteration

    @property
    def attempt(self) -> int:
        """0, or how often it is played again."""
        return self.identity.attempt


MATCH = "match"
"""Reward of 1 for an act that is the expert's, where acts are patched."""


class Rules(Protocol):
    """Rules of play for one match; see `arena.play.control`."""

    def expected(self, view: View) -> str | None:
        """The expert's act for a learner that is to move; None where nothing is patched."""

    def agree(self, act: str, expected: str) -> bool:
        """Return True if an act is the expert's."""

    def may_patch(self) -> bool:
        """Count a patch; False where no further one is allowed."""

    def why_stop(self, act: Act, seat: str, valid: bool) -> str:
        """Why the match stops after this act, in words; "" where it goes on."""


OnTurn = Callable[[MatchPlan, Turn], None]
"""Called with a turn as soon as it is taken; what it earns, a dict that may still grow, is whole when the match is."""


@dataclass
class _Now:
    """Progress of a match: which seat moves, and its act."""

    versions: dict[str, int]
    """Version of who took each seat's latest turn."""
    seat: str = ""
    """Whose move it is."""
    act: str | None = None
    """Act that the game was just given, and has not taken yet."""
    cut: str = ""
    """Why the match was cut off, in words; "" if it was not."""


class _Turns:
    """The turns so far, and what each seat earns while its latest turn is open."""

    def __init__(self, plan: MatchPlan, on_turn: OnTurn | None) -> None:
        self.plan, self.seats, self.on_turn = plan, plan.seats, on_turn
        self.taken: list[Turn] = []
        self.movers: set[str] = set()
        self.earning: dict[str, dict[str, float]] = {seat: {} for seat in plan.seats}
        """Rewards of each seat's latest turn; those that arrive before its first wait for it here."""

    def open(self, view: View, act: Act, version: int, valid: bool, seconds: float, situation: str) -> None:
        """A seat's new turn: all that the seat earns until its next one is that turn's."""
        seat, seating = view.seat, self.seats[view.seat]
        if seat in self.movers:
            self.earning[seat] = {}
        self.movers.add(seat)
        turn = Turn(
            view.turn, seat, seating.role, seating.policy, version, view.messages, act.raw, act.public, act.private,
            act.action, valid, self.earning[seat], act.finish, act.tokens, seconds, situation, act.source,
        )  # fmt: skip
        self.taken.append(turn)
        if self.on_turn:
            self.on_turn(self.plan, turn)

    def earn(self, game: Game, excused: str = "") -> None:
        """Add what the game just paid each seat to the seat's latest turn, without the penalty of the excused seat.

        Raises OutcomeError for a reward that is not finite.
        """
        infos = game.infos
        for seat in self.seats:
            earning = self.earning[seat]
            for name, value in infos[seat]["rewards"].items():
                if seat == excused and name == ILLEGAL:
                    continue
                label = f"the reward '{name}' of {seat}"
                total = earning.get(name, 0.0) + _loggable(value, label, "step")
                earning[name] = _loggable(total, label, "step")

    def mark(self, seat: str) -> None:
        """Add that the seat's latest act was the expert's, unless its game has said so."""
        self.earning[seat].setdefault(MATCH, 1.0)


async def play_match(
    plan: MatchPlan,
    game: Game,
    players: Mapping[str, SeatedPlayer],
    limits: Limits,
    keep_turns: bool = True,
    on_turn: OnTurn | None = None,
    rules: Rules | None = None,
) -> MatchRecord:
    """Play one match to its end. A match that cannot be finished is returned as failed, with its reason.

    `game` is not yet reset. Model trouble, limits and faults of the game itself end this match alone; they never raise
    into the caller. Without `keep_turns` the record holds the outcome alone, no turns and no streams. `on_turn` is
    called with each turn as it is taken. `rules` patch learners' acts and stop the match.
    """
    started, clock, now, reason, failure = datetime.now(UTC), monotonic(), _Now({}), "", None
    turns = _Turns(plan, on_turn) if keep_turns or on_turn else None
    outcome: tuple[dict[str, float], dict[str, float | bool | str]] = {}, {}
    pictures: dict[str, bytes] = {}
    try:
        await _Walk(plan, game, players, limits, clock, now, turns, rules).play()
        if turns and isinstance(game, Pictures):
            pictures = {name: verified(name, game.picture(name)) for name in images(turns.taken)}
        outcome = _outcome(game)
    except Exception as error:  # noqa: BLE001 a fault of one game or player must not end the others
        reason = str(error) if isinstance(error, LimitReached) else reason_of(error)
        failure = failure_of(error, game, plan.draws, now.seat, now.act)
    record = MatchRecord(
        identity=plan.identity,
        game=plan.game,
        options=plan.options,
        seed=plan.seed,
        seats=_as_played(plan.seats, now.versions),
        status="failed" if failure else "finished",
        reason=reason or now.cut,
        payoffs=outcome[0],
        report=outcome[1],
        turns=tuple(turns.taken) if turns and keep_turns else (),
        streams={seat: tuple(player.streams) for seat, player in players.items()} if keep_turns else {},
        started=started.isoformat(timespec="milliseconds"),
        seconds=monotonic() - clock,
        rules=game.rules_version,
        group=plan.group,
        stage=plan.stage,
        source=plan.source,
        pictures=pictures,
        failure=failure,
    )
    log_failure(record)
    return record


def _outcome(game: Game) -> tuple[dict[str, float], dict[str, float | bool | str]]:
    """Return payoffs and report. Raises OutcomeError for what no log can hold."""
    payoffs, report = dict(game.payoffs()), dict(game.report())
    for seat, value in payoffs.items():
        _loggable(value, f"the payoff of {seat}", "payoffs")
    for name, figure in report.items():
        _loggable(figure, f"the report's '{name}'", "report", "figures")
    return payoffs, report


def _loggable(value: Any, label: str, *methods: str) -> Any:
    """Return the value, which one of the game's `methods` gave. Raises OutcomeError unless a log can hold it."""
    if type(value) is float and isfinite(value):
        return value
    try:
        finite(value, label) if isinstance(value, Real) else plain(value, label)
    except (ValueError, TypeError) as error:
        raise OutcomeError(str(error), methods) from None
    return value


def _as_played(seats: dict[str, Seating], versions: Mapping[str, int]) -> dict[str, Seating]:
    """The seats with the versions that took their latest turns, of those that took any."""
    newer = {seat: version for seat, version in versions.items() if version != seats[seat].version}
    return seats | {seat: replace(seats[seat], version=version) for seat, version in newer.items()} if newer else seats


@dataclass
class _Walk:
    """A match on its way to its end."""

    plan: MatchPlan
    game: Game
    players: Mapping[str, SeatedPlayer]
    limits: Limits
    clock: float
    """When the match began."""
    now: _Now
    turns: _Turns | None
    rules: Rules | None
    steps: Steps | None = None
    """How the game steps, where that may take long."""
    count: int = 0
    tokens: int = 0

    async def play(self) -> None:
        """Play to the end; `now` and `turns` are updated on the way."""
        game = self.game
        self.steps = current() if isinstance(game, Blocks) and game.blocks else None
        deal = partial(game.reset, seed=self.plan.seed)
        await self.steps.take(deal, "the deal", self.limits.turn_seconds) if self.steps else deal()
        while game.agents:
            seat = self.now.seat = game.agent_selection
            if not (game.terminations[seat] or game.truncations[seat]):
                await self._turn(seat)
            elif all(game.terminations.values()) or self.now.cut:
                return  # all that is left are the steps that AEC asks of the dead, which change nothing
            else:
                game.step(None)

    async def _turn(self, seat: str) -> None:
        """Have a seat act; a summary, and an act that is patched, are turns that the game does not read."""
        begun, player, game, now = monotonic(), self.players[seat], self.game, self.now
        _check(self.limits, self.count, self.tokens, begun - self.clock)
        view = view_of(game, seat, self.count)
        situation = game.situation(seat) if self.turns and isinstance(game, Situated) else ""
        try:
            act = clean_act(await self._answer(player, view))
        except ContextFull as full:
            return self._cut_off("context", f"{seat}: {full}")
        if act.source in UNREAD:  # the same messages are shown once more
            return self._taken(view._replace(messages=()), act, True, begun, "")
        expected = self.rules.expected(view) if self.rules else None
        expected = expected and clean_text(expected)
        if self.rules and expected is not None and not self.rules.agree(act.action, expected):
            self._taken(view, act._replace(source="replaced"), True, begun, situation)
            if not self.rules.may_patch():
                return self._cut_off("stopped", f"{seat} departs from the expert")
            view, situation = view._replace(turn=self.count, messages=()), ""
            act = player.put(view, expected)  # type: ignore[attr-defined]  # learners are ChatPlayers
        now.act = act.action  # until the game has taken it
        if self.steps:
            step = partial(game.step, act.action)
            await self.steps.take(step, f"the step of {seat}", self.limits.turn_seconds)
        else:
            game.step(act.action)
        now.act = None
        valid = bool(game.infos[seat].get("valid"))
        self._taken(view, act, valid, begun, situation)
        if self.turns:
            self.turns.earn(game, seat if act.excused and not valid else "")
            if expected is not None and act.source != "patch":
                self.turns.mark(seat)
        if self.rules and not _over(game) and (why := self.rules.why_stop(act, seat, valid)):
            self._cut_off("stopped", why)

    def _answer(self, player: SeatedPlayer, view: View) -> Awaitable[Act]:
        """The player's act, in time; who never waits is not watched, which takes time too."""
        act = player.act(view)
        return in_time(act, view.seat, self.limits.turn_seconds) if getattr(player, "waits", True) else act

    def _taken(self, view: View, act: Act, valid: bool, begun: float, situation: str) -> None:
        version = self.now.versions[view.seat] = self.players[view.seat].version
        self.count, self.tokens = self.count + 1, self.tokens + act.tokens
        if self.turns:
            self.turns.open(view, act, version, valid, monotonic() - begun, situation)

    def _cut_off(self, reason: str, why: str) -> None:
        """End the match where it stands; LimitReached, so that it fails, where its game cannot be cut off."""
        if not isinstance(self.game, Stoppable):
            raise LimitReached(why)
        self.game.stop(reason)
        self.now.cut = why
        if self.turns:
            self.turns.earn(self.game)


def _over(game: Game) -> bool:
    return not game.agents or all(game.terminations.values())


def _check(limits: Limits, turns: int, tokens: int, seconds: float) -> None:
    if turns >= min(limits.turns or MOST_TURNS, MOST_TURNS):
        raise LimitReached(f"turn limit: {turns} turns taken")
    if limits.tokens is not None and tokens >= limits.tokens:
        raise LimitReached(f"token limit: {tokens} tokens written of {limits.tokens}")
    if limits.seconds is not None and seconds >= limits.seconds:
        raise LimitReached(f"time limit: {seconds:.1f} s of {limits.seconds:g} s")
