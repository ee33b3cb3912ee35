"""Joining: a contender takes a seat in a match that has begun, as if it had played from the deal on.

The contender has seen and said what was seen and said there: a model reads it in its own chat frame, with the same ids
where they are its own, an endpoint as text, a person in one piece. A scripted policy is asked at every turn and
overruled: one that goes by the game's state is right from there on; one with a memory of its own acts remembers what it
would have done.
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
from agents.players.model import ChatPlayer, recalled, spoken
from agents.role import Role
from agents.stream import Stream
from arena.errors import ConfigError
from arena.play.contenders import Contender
from arena.play.failures import LimitReached
from arena.play.match import MatchPlan, SeatedPlayer
from arena.play.texts import view_of
from arena.records import MatchRecord, Seating, Turn, is_excused, place_of
from games.contracts import UNREAD, Act, Game, Message, View


@dataclass(frozen=True)
class Parting:
    """The point where forks leave a match: before turn `turn` (from 0), or after `act` in its place."""

    match: MatchRecord
    turn: int
    act: str = ""

    @property
    def mover(self) -> str:
        """The seat to move."""
        return self.match.turns[self.turn].seat

    def past(self, seat: str) -> list[Turn]:
        """The turns that the seat has taken when it is free to play, the act that is put in its mouth among them."""
        turns = list(self.match.turns[: self.turn])
        if self.act:
            turns.append(_put(self.match.turns[self.turn], self.act))
        return [turn for turn in turns if turn.seat == seat]


def _put(turn: Turn, act: str) -> Turn:
    """The turn with another act, of no role."""
    public = act.partition("|")[2].strip()
    return turn._replace(
        role="", raw=act, action=act, public=public, private="", finish="script", tokens=0, version=0, source="patch"
    )


def strayed(parting: Parting, game: Game) -> str:
    """The first difference between what seats see and what the log has, in one line; "" for none up to the fork."""
    record = parting.match
    then, now = record.rules, game.rules_version
    which = f" (rules {then} then, {now} now)" if then not in (0, now) else ""
    game.reset(seed=record.seed)
    for turn in record.turns[: parting.turn + 1]:
        if turn.source in UNREAD:
            continue
        _skip_dead(game)
        if not game.agents:
            return f"the game now ends before turn {turn.index + 1}{which}"
        seat = game.agent_selection
        if seat != turn.seat:
            return f"turn {turn.index + 1} is now {seat}'s, not {turn.seat}'s{which}"
        if _said(view_of(game, seat).messages) != _said(turn.messages):
            return f"at turn {turn.index + 1} {seat} now sees something else than it did{which}"
        if turn.index < parting.turn:
            game.step(turn.action)
    return ""


def _said(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Return who said what, as a log keeps it."""
    return [(message.sender, message.text) for message in messages]


def _skip_dead(game: Game) -> None:
    while game.agents and (game.terminations[game.agent_selection] or game.truncations[game.agent_selection]):
        game.step(None)


@dataclass(frozen=True)
class Joining:
    """A contender that takes a seat of a match which has begun."""

    contender: Contender
    parting: Parting

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """Make its player, which has seen and said what the seat has."""
        past = self.parting.past(seat)
        player = self.contender.player(seat, plan, game, seed)
        sums_up = isinstance(player, ChatPlayer) and player.role.memory.kind == "summary"
        roles = {turn.role for turn in past if turn.role}
        roles -= {player.role.role} if isinstance(player, ChatPlayer) else set()
        if roles and (sums_up or any(turn.source == "summary" for turn in past)):
            raise ConfigError(
                f"{self.name} cannot go on at {seat} of {self.parting.match.id}: where a summary stands in the past, "
                f"the role that wrote it, {min(roles)}, has to go on"
            )
        if isinstance(player, ChatPlayer):
            said = {turn.index: _reply(self.parting.match, turn, player.role, player.frame) for turn in past}
            player.write = recalled(said, player.write)
        elif isinstance(player, EndpointPlayer):
            player.said = {turn.index: Answer(_text(turn, player.role), "stop", turn.tokens) for turn in past}
        return _Joined(player, {turn.index: turn for turn in past})

    def leave(self, player: SeatedPlayer) -> None:
        """As the contender would."""
        assert isinstance(player, _Joined)
        self.contender.leave(player.player)

    @property
    def name(self) -> str:
        """The contender's."""
        return self.contender.name

    def check(self, name: str, game: Game, seat: str) -> None:
        """As the contender does."""
        self.contender.check(name, game, seat)

    def seating(self, game: str, seat: str) -> Seating:
        """The contender's."""
        return self.contender.seating(game, seat)


class _Joined:
    """A player whose first turns are given."""

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
        """Return the act taken at this turn, or the player's; a person reads at once what they had no turn to read."""
        turn = self.past.get(view.turn)
        if turn is None:
            act = await self.player.act(view._replace(messages=(*self._unread, *view.messages)))
            self._unread, self.version = (), self.player.version
            return act
        if isinstance(self.player, Human):
            self._unread += view.messages if turn.source not in UNREAD else ()
        elif turn.source != "replaced":  # as if the player had written what was put in its place
            try:
                await self.player.act(view)
            except ContextFull as full:
                raise LimitReached(f"{view.seat} has no room for the match so far: {full}") from None
        self.version = turn.version
        act = Act(turn.action, turn.raw, turn.public, turn.private, turn.finish, turn.tokens, turn.source)  # type: ignore[arg-type]
        return act._replace(excused=is_excused(turn))


def _reply(match: MatchRecord, turn: Turn, role: Role, frame: ChatFrame) -> Completion:
    """A turn's ids as they were sampled, where they mean the same text in this frame; else its text encoded again."""
    stream, begin, end = place_of(match.streams.get(turn.seat, ()), turn.index)
    ids, finish = tuple(stream.ids[begin:end]), "length" if turn.finish == "length" else "stop"
    if turn.role == role.role and ids and frame.knows(ids) and frame.decode(ids) == turn.raw:
        return Completion(ids, tuple(stream.logprobs[begin:end]), finish, turn.version)  # type: ignore[arg-type]
    return spoken(frame, _text(turn, role))


def _text(turn: Turn, role: Role) -> str:
    """Return what was written at a turn, as this role would have written it."""
    return turn.raw if turn.role == role.role else role.write(turn.action)
