"""Branched play: a match played again up to one of its turns, and freely from there on.

A match is a function of its deal and the replies in it. So going back to a turn is dealing again and forcing every
reply before it, token ids and behaviour log-probabilities as they were; nothing needs to be cloned. The match id says
what was done, here and in the log: `0001-0003-b4` is match `0001-0003` again until turn 4, which is the first new one.
The match may be a branch itself.
"""

from dataclasses import dataclass
from typing import Literal

from agents.engines.base import Completion
from arena.records import MatchRecord, Turn, place_of
from games.contracts import MatchId


@dataclass(frozen=True)
class Branch:
    """Point where a new match parts from one that was played: at `turn`, before which all is the same."""

    match: MatchRecord
    turn: int

    @property
    def identity(self) -> MatchId:
        """Id of the new match."""
        return self.match.identity.branch(self.turn)

    def turns(self, seat: str) -> list[Turn]:
        """The seat's acts before the branch."""
        return [turn for turn in self.match.turns[: self.turn] if turn.seat == seat]

    def replies(self, seat: str) -> dict[int, Completion]:
        """A model's replies at the seat before the branch, by turn, as they were sampled."""
        completions = {}
        for turn in self.turns(seat):
            stream, begin, end = place_of(self.match.streams[seat], turn.index)
            sampled = tuple(stream.ids[begin:end]), tuple(stream.logprobs[begin:end])
            finish: Literal["stop", "length"] = "length" if turn.finish == "length" else "stop"
            entropy = tuple(stream.entropy[begin:end]) if stream.entropy else None
            completions[turn.index] = Completion(*sampled, finish, turn.version, entropy)
        return completions

    def strayed(self, record: MatchRecord) -> str:
        """The first difference of a match from this branch, in one line; "" if all is the same until they part."""
        if len(record.turns) <= self.turn:
            why = record.reason or "see its game"
            return f"it ended before turn {self.turn}, where it was to part from {self.match.id}: {why}"
        for turn, again in zip(self.match.turns[: self.turn + 1], record.turns, strict=False):
            own = [turn.seat, turn.messages, _seen(self.match, turn)]
            new = [again.seat, again.messages, _seen(record, again)]
            if turn.index < self.turn:
                own, new = [*own, turn.raw, turn.action], [*new, again.raw, again.action]
            if own != new:
                return f"turn {turn.index} is not that of {self.match.id}, though deal and replies are: see its game"
        return ""


def _seen(record: MatchRecord, turn: Turn) -> list[int]:
    """All ids that stood before the reply; none for who has no stream."""
    streams = record.streams.get(turn.seat)
    if not streams:
        return []
    stream, begin, _ = place_of(streams, turn.index)
    return stream.ids[:begin]
