"""Joining: a contender takes over a seat in a match that has begun, as if it had played from the deal on.

The contender gets the seat's history: a model in its own chat frame, with the logged ids if they are its own, an
endpoint as text, a person as one message. A scripted policy is asked at every past turn, but the logged acts are
played. If it depends on the game's state only, it plays correctly from the fork on. If it remembers its own acts, it
remembers those that it would have chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.chat import ChatFrame
from agents.engines.base import Completion
from agents.errors import ContextFull
from agents.players.completions import Answer
from agents.players.endpoint import EndpointPlayer
from agents.players.human import Human
from agents.players.model import ChatPlayer
from agents.players.writers import make_replay_writer, script_completion
from agents.role import Role
from agents.stream import Stream
from arena.errors import ConfigError
from arena.play.contenders import Contender
from arena.play.failures import LimitReached
from arena.play.making import skip_ended_seats
from arena.play.match import MatchPlan, SeatedPlayer
from arena.play.texts import view_of
from arena.records import MatchRecord, Seating, Turn, find_reply, is_excused
from games.contracts import UNREAD, Act, Game, Message, View


@dataclass(frozen=True)
class ForkPoint:
    """Fork point in a match: before its turn `turn` (from 0), or after `act` in place of that turn's act."""

    match: MatchRecord
    turn: int
    act: str = ""

    @property
    def mover(self) -> str:
        """Seat that took the turn at the fork point."""
        return self.match.turns[self.turn].seat

    def past_turns(self, seat: str) -> list[Turn]:
        """Return the seat's turns before it plays freely, including the replaced act if the seat took it."""
        turns = list(self.match.turns[: self.turn])
        if self.act:
            turns.append(_replace_act(self.match.turns[self.turn], self.act))
        return [turn for turn in turns if turn.seat == seat]


def _replace_act(turn: Turn, act: str) -> Turn:
    """Return the turn with another act, as a patch that no role wrote and no model sampled."""
    public = act.partition("|")[2].strip()
    return turn._replace(
        role="", raw=act, action=act, public=public, private="", finish="script", tokens=0, version=0, source="patch"
    )


def find_difference(fork: ForkPoint, game: Game) -> str:
    """Replay the match up to the fork point, and return the first difference from the log in one line; "" if none.

    Compares the seats to move and their messages. `game` is reset, and left at the fork point.
    """
    record = fork.match
    logged, current = record.rules, game.rules_version
    rules = f" (rules {logged} then, {current} now)" if logged not in (0, current) else ""
    game.reset(seed=record.seed)
    for turn in record.turns[: fork.turn + 1]:
        if turn.source in UNREAD:
            continue
        skip_ended_seats(game)
        if not game.agents:
            return f"the game now ends before turn {turn.index + 1}{rules}"
        seat = game.agent_selection
        if seat != turn.seat:
            return f"turn {turn.index + 1} is now {seat}'s, not {turn.seat}'s{rules}"
        if _message_texts(view_of(game, seat).messages) != _message_texts(turn.messages):
            return f"at turn {turn.index + 1} {seat} now sees something else than it did{rules}"
        if turn.index < fork.turn:
            game.step(turn.action)
    return ""


def _message_texts(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(message.sender, message.text) for message in messages]


@dataclass(frozen=True)
class JoiningContender:
    """Contender that takes over a seat of a match at a fork point, with the seat's history."""

    contender: Contender
    fork: ForkPoint

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """Create a player that first repeats the seat's past turns, and then plays freely.

        Raises ConfigError if another role took past turns and either they include a summary or the player's own role
        summarises.
        """
        past = self.fork.past_turns(seat)
        player = self.contender.player(seat, plan, game, seed)
        summarises = isinstance(player, ChatPlayer) and player.role.memory.kind == "summary"
        roles = {turn.role for turn in past if turn.role}
        roles -= {player.role.role} if isinstance(player, ChatPlayer) else set()
        if roles and (summarises or any(turn.source == "summary" for turn in past)):
            raise ConfigError(
                f"{self.name} cannot take over {seat} of {self.fork.match.id}: with summaries, only the seat's "
                f"own role {min(roles)} can continue"
            )
        if isinstance(player, ChatPlayer):
            replies = {turn.index: _encode_reply(self.fork.match, turn, player.role, player.frame) for turn in past}
            player.write = make_replay_writer(replies, player.write)
        elif isinstance(player, EndpointPlayer):
            player.recorded = {turn.index: Answer(_reply_text(turn, player.role), "stop", turn.tokens) for turn in past}
        return _JoiningPlayer(player, {turn.index: turn for turn in past})

    def release(self, player: SeatedPlayer) -> None:
        """Release the resources of the contender's player."""
        assert isinstance(player, _JoiningPlayer)
        self.contender.release(player.player)

    @property
    def name(self) -> str:
        """Name of the contender, in plans and in the log."""
        return self.contender.name

    def check(self, name: str, game: Game, seat: str) -> None:
        """Raise ConfigError if the contender cannot play this seat of `game`."""
        self.contender.check(name, game, seat)

    def seating(self, game: str, seat: str) -> Seating:
        """Return the match record's entry for the contender at this seat: role, policy name, version, kind."""
        return self.contender.seating(game, seat)


class _JoiningPlayer:
    """Player that repeats the turns in `past`, by index, and then lets `player` act."""

    def __init__(self, player: SeatedPlayer, past: Mapping[int, Turn]) -> None:
        self.player, self.past, self.version = player, past, 0
        self.waits = getattr(player, "waits", True)
        self._unread: tuple[Message, ...] = ()

    @property
    def streams(self) -> Sequence[Stream]:
        return self.player.streams

    @property
    def stream_keys(self) -> Sequence[str]:
        return self.player.stream_keys

    async def act(self, view: View) -> Act:
        """Return the past act of this turn, or else the player's act.

        At past turns a player other than a person is asked too, so that it gets the history. A person reads all earlier
        messages at its first own turn. Raises LimitReached if the history exceeds the player's context.
        """
        turn = self.past.get(view.turn)
        if turn is None:
            act = await self.player.act(view._replace(messages=(*self._unread, *view.messages)))
            self._unread, self.version = (), self.player.version
            return act
        if isinstance(self.player, Human):
            self._unread += view.messages if turn.source not in UNREAD else ()
        elif turn.source != "replaced":  # the player continues as if it had written the patch
            try:
                await self.player.act(view)
            except ContextFull as full:
                raise LimitReached(f"{view.seat} has no room for the match so far: {full}") from None
        self.version = turn.version
        return Act(
            action=turn.action,
            raw=turn.raw,
            public=turn.public,
            private=turn.private,
            finish=turn.finish,  # type: ignore[arg-type]
            tokens=turn.tokens,
            source=turn.source,
            excused=is_excused(turn),
        )


def _encode_reply(match: MatchRecord, turn: Turn, role: Role, frame: ChatFrame) -> Completion:
    """Return a past reply in this frame's tokens: the sampled ids if role and text agree, else its text encoded."""
    stream, begin, end = find_reply(match.streams.get(turn.seat, ()), turn.index)
    ids, finish = tuple(stream.ids[begin:end]), "length" if turn.finish == "length" else "stop"
    if turn.role == role.role and ids and frame.has_ids(ids) and frame.decode(ids) == turn.raw:
        return Completion(ids, tuple(stream.logprobs[begin:end]), finish, turn.version)  # type: ignore[arg-type]
    return script_completion(frame, _reply_text(turn, role))


def _reply_text(turn: Turn, role: Role) -> str:
    """Return the turn's reply, or its act in this role's reply format if another role wrote it."""
    return turn.raw if turn.role == role.role else role.write(turn.action)
