"""Branches: matches that repeat another match up to some turn and continue freely from there.

A match is a function of its deal and the replies in it. So a branch deals again and forces every earlier reply, with
its token ids and behaviour log-probabilities. Nothing needs to be cloned. The match id names the branch:
`0001-0003-b4` repeats match `0001-0003` until turn 4, its first new turn. A branch may have branches.
"""

from dataclasses import dataclass
from typing import Any, Literal

from agents.engines.base import Completion
from arena.records import MatchRecord, Turn, find_reply
from games.contracts import UNREAD, MatchId


@dataclass(frozen=True)
class Branch:
    """Branch point: the new match repeats the turns of `match` before index `turn`, and then continues freely."""

    match: MatchRecord
    turn: int

    @property
    def identity(self) -> MatchId:
        """Identity of the new match: that of the parent match, with this branch turn added."""
        return self.match.identity.branch(self.turn)

    def turns(self, seat: str) -> list[Turn]:
        """Return the seat's turns of the parent match before the branch point."""
        return [turn for turn in self.match.turns[: self.turn] if turn.seat == seat]

    def replies(self, seat: str) -> dict[int, Completion]:
        """Return the seat's replies before the branch point (ids, log-probabilities, entropies), by turn index."""
        completions = {}
        for turn in self.turns(seat):
            stream, begin, end = find_reply(self.match.streams[seat], turn.index)
            sampled = tuple(stream.ids[begin:end]), tuple(stream.logprobs[begin:end])
            finish: Literal["stop", "length"] = "length" if turn.finish == "length" else "stop"
            entropy = tuple(stream.entropy[begin:end]) if stream.entropy else None
            completions[turn.index] = Completion(*sampled, finish, turn.version, entropy)
        return completions

    def find_difference(self, record: MatchRecord) -> str:
        """Compare a match with its parent, and return the first difference in one line; "" if there is none.

        Seat, messages and context ids are compared up to the branch turn, replies and acts before it. A match that
        ended before its branch turn differs.
        """
        if len(record.turns) <= self.turn:
            reason = record.reason or "see its game"
            return f"it ended before turn {self.turn}, its branch point from {self.match.id}: {reason}"
        for turn, again in zip(self.match.turns[: self.turn + 1], record.turns, strict=False):
            own: list[Any] = [turn.seat, _context_ids(self.match, turn)]
            new: list[Any] = [again.seat, _context_ids(record, again)]
            if turn.source not in UNREAD and again.source not in UNREAD:  # others have no messages
                own, new = [*own, turn.messages], [*new, again.messages]
            if turn.index < self.turn:
                own, new = [*own, turn.raw, turn.action], [*new, again.raw, again.action]
            if own != new:
                return (
                    f"turn {turn.index} differs from that of {self.match.id} after equal deal and replies: see its game"
                )
        return ""


def _context_ids(record: MatchRecord, turn: Turn) -> list[int]:
    """Return the token ids before the turn's reply in its stream; [] if the seat has no stream."""
    streams = record.streams.get(turn.seat)
    if not streams:
        return []
    stream, begin, _ = find_reply(streams, turn.index)
    return stream.ids[:begin]
