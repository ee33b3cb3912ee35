"""Branches: matches that repeat another match up to some turn and continue freely from there.

A match is a function of its deal and the replies in it. So a branch plays the same deal and repeats every earlier reply
with its token ids and behaviour log-probabilities; no game state is copied. The match id names the branch:
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
            reason = record.reason or "check that its game is deterministic"
            return f"it ended before turn {self.turn}, its branch point from {self.match.id}: {reason}"
        for turn, repeated in zip(self.match.turns[: self.turn + 1], record.turns, strict=False):
            original: list[Any] = [turn.seat, _context_ids(self.match, turn)]
            new: list[Any] = [repeated.seat, _context_ids(record, repeated)]
            if turn.source not in UNREAD and repeated.source not in UNREAD:  # unread turns need no messages
                original, new = [*original, turn.messages], [*new, repeated.messages]
            if turn.index < self.turn:
                original, new = [*original, turn.raw, turn.action], [*new, repeated.raw, repeated.action]
            if original != new:
                return (
                    f"turn {turn.index} differs from that of {self.match.id} despite equal deal and replies: "
                    "check that its game is deterministic"
                )
        return ""


def _context_ids(record: MatchRecord, turn: Turn) -> list[int]:
    """Return the token ids before the turn's reply in its stream; [] if the seat has no stream."""
    streams = record.streams.get(turn.seat)
    if not streams:
        return []
    stream, begin, _ = find_reply(streams, turn.index)
    return stream.ids[:begin]
