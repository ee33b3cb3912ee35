"""Immutable records of matches, with seats, turns, streams and payoffs, and their conversion to rows of the log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from pydantic_core import to_json

from agents.player import PREFIXES
from agents.stream import Context, ImageReader, Stream
from arena.errors import StoreError
from arena.plain import clean_text, require_finite, to_plain
from arena.rows import (
    identity_from_row,
    identity_to_row,
    message_from_row,
    message_to_row,
    require_source,
    stream_from_row,
    stream_to_row,
)
from games.contracts import ILLEGAL, Image, MatchId, Message, TurnSource

if TYPE_CHECKING:
    from agents.policy import Policy

Status = Literal["finished", "failed"]
MatchSource = Literal["played", "branched", "patched", "replayed", "recalled", "demonstration"]
"""Origin of a match. played: from its deal; branched: off another match; patched: branched, with a replaced turn;
replayed: read from another run's log; recalled: by experience replay (only of trajectories, as the log keeps the
original); demonstration: imitated, and not logged."""

POLICY_SOURCES: tuple[TurnSource, ...] = ("policy", "replaced", "summary", "request")
"""Sources of turns that the policy itself wrote and learns from by reward."""


class RecordError(StoreError, ValueError):
    """Raised for a match record that cannot be written to a log or read from one."""


class Turn(NamedTuple):
    """Turn of a player in a match: the messages it read, its reply (`raw`), the parsed act, and its rewards.

    `rewards` are named and unweighted, and include those that arrived before the seat's next turn. They never change
    later. Credit fills `reward` (their weighted sum) and `advantage`, which are stored in a separate file.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used
    seat: str
    role: str
    policy: str
    version: int
    messages: tuple[Message, ...]
    raw: str
    public: str
    private: str
    action: str
    valid: bool
    rewards: Mapping[str, float]
    finish: str
    tokens: int
    seconds: float
    situation: str = ""
    """The game's name for the situation. No seat sees it."""
    source: TurnSource = "policy"
    """Origin of the turn's reply."""
    reward: float = 0.0
    advantage: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """Turns and token streams of a seat in a match: the unit of credit and learning."""

    match: str
    """Printed id of the match."""
    game: str
    seat: str
    role: str
    policy: str
    version: int
    trained: bool
    turns: tuple[Turn, ...]
    streams: tuple[Stream, ...]
    seed: int = 0
    """Seed of the deal, shared by the matches of a group."""
    source: MatchSource = "played"
    """Origin. `replayed` and `recalled` trajectories were sampled by other weights than the current ones."""
    report: Mapping[str, float | bool | str] = field(default_factory=dict)
    """The game's report on the finished match. No seat sees it."""
    payoff: float | None = None
    """The seat's payoff; None if the game gives it none."""
    match_turns: tuple[Turn, ...] = field(default=(), compare=False, repr=False)
    """Turns of all seats of the match, in order."""
    parent: str = ""
    """Printed id of the parent match if this is a branch, else ""."""
    parent_turn: int = -1
    """Index of the first turn that differs from the parent match; -1 without a parent."""

    def contexts(self) -> dict[int, Context]:
        """Return the tokens before the first sampled token of each turn, by turn index."""
        prefixes: dict[int, Context] = {}
        for stream in self.streams:
            positions = np.flatnonzero(stream.mask)
            turns, firsts = np.unique(np.asarray(stream.turns, np.int64)[positions], return_index=True)
            starts = zip(turns.tolist(), positions[firsts].tolist(), strict=True)
            prefixes |= {turn: stream.before(position) for turn, position in starts}
        return prefixes

    def observed_ids(self) -> dict[int, list[int]]:
        """Return the ids between a turn's first sampled token and the sampled token before it, by turn index."""
        new: dict[int, list[int]] = {}
        for stream in self.streams:
            begin = 0
            for position in np.flatnonzero(stream.mask).tolist():
                if stream.turns[position] not in new:
                    new[stream.turns[position]] = stream.ids[begin:position]
                begin = position + 1
        return new

    def credited(self, rewards: Sequence[float], advantages: Sequence[float]) -> Trajectory:
        """Return a copy with the turns' rewards and advantages set. Raises ValueError if their numbers differ."""
        triples = zip(self.turns, rewards, advantages, strict=True)
        turns = (turn._replace(reward=float(r), advantage=float(a)) for turn, r, a in triples)
        return replace(self, turns=tuple(turns))


@dataclass(frozen=True)
class Seating:
    """The player at a seat: a role, and the policy (weights, scripted, endpoint or human) behind it."""

    role: str
    policy: str
    version: int
    trained: bool
    kind: Literal["model", "brain", "endpoint", "human"]
    instruction: str = ""
    """Text appended to the role's system prompt in this match, "" if none (`arena.play.parts.instructions`)."""

    def row(self) -> dict[str, Any]:
        """Return the fields as plain values for the log. An empty instruction is omitted."""
        return {name: value for name, value in vars(self).items() if name != "instruction" or value}

    @staticmethod
    def of(role: str, name: str, policy: Policy | None) -> Seating:
        """Return the seating of a policy or, if it is None, of the endpoint or scripted policy called `name`."""
        if policy is None:
            return Seating(role, name, 0, False, "endpoint" if name.startswith(PREFIXES) else "brain")
        return Seating(role, name, policy.version, policy.trained, "model")


Kind = Literal["limit", "endpoint", "game", "person", "bug"]
"""Cause of a failure. limit: turns, tokens, seconds or memory are used up; endpoint: a server, worker or human is
unavailable; game: a fault in the file of a game or player, or in another library's game; person: the player of a
simulated person contradicted the person's record; bug: a fault in Arena's own code."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Cause and place of a match's failure, with the information to reproduce it."""

    kind: Kind
    draws: tuple[int, ...] = ()
    """Random draws in the match's plan."""
    error: str = ""
    """Type of the exception; "" if there was none."""
    where: str = ""
    """File and line of the faulty code, "" if unknown."""
    trace: str = ""
    """Traceback, truncated and without secrets. A model's text in it is not sanitised."""
    seat: str = ""
    """Seat to move; "" before the first and after the last turn."""
    act: str | None = None
    """Act that the game was processing; None if there was none."""
    given_up: bool = False
    """True if the match is not retried after this attempt."""


@dataclass(frozen=True, kw_only=True)
class MatchRecord:
    """Record of one finished or failed match.

    `reason` says why it failed or was truncated. `started` is a time in ISO 8601. `seed` is in [0, 2^64).
    """

    identity: MatchId
    game: str
    options: dict[str, Any]
    seed: int
    seats: dict[str, Seating]
    status: Status
    reason: str
    payoffs: dict[str, float]
    report: dict[str, float | bool | str]
    turns: tuple[Turn, ...]
    streams: dict[str, tuple[Stream, ...]]
    started: str
    seconds: float
    rules: int = 0
    """Version of the game's rules; 0 if unknown."""
    group: int = -1
    """Number, within the iteration, of the group of matches with the same seed; -1 without a group."""
    stage: str = ""
    """Purpose of the match, such as `train`; "" if unknown."""
    source: MatchSource = "played"
    pictures: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    """Bytes of the images in messages and streams by hash. Set only right after play; the log has separate files."""
    failure: Failure | None = field(default=None, compare=False)
    """Failure of the match. Set only right after play; it is stored in failures.jsonl, not in the log."""

    @property
    def id(self) -> str:
        """Printed identity, such as `0001-0003-b4`."""
        return str(self.identity)

    @property
    def iteration(self) -> int:
        """Iteration in which the match was played."""
        return self.identity.iteration

    @property
    def attempt(self) -> int:
        """Number of earlier, failed attempts at the match."""
        return self.identity.attempt

    def to_json(self) -> dict[str, Any]:
        """Return a row of plain values for the match log, without credit.

        Lone surrogates become U+FFFD, and behaviour log-probabilities are rounded to float32, so that JSON and Parquet
        return the same row. Raises RecordError for NaN, infinities and unsupported types.
        """
        try:
            row = self._row()
            row["payoffs"] = _require_finite(self.payoffs, "payoffs")
            row["seconds"] = require_finite(self.seconds, "seconds")
            row["turns"] = [_checked_turn_to_row(turn) for turn in self.turns]
            streams = row.pop("streams")
            return {**to_plain(row, "match"), "streams": {clean_text(seat): rows for seat, rows in streams.items()}}
        except (ValueError, TypeError) as error:
            raise RecordError(f"match {self.id} cannot be stored: {error}") from None

    def to_line(self) -> str:
        """Return the row of `to_json` as JSON text. Takes a fast path if no value needs to be cleaned or refused."""
        line = "NaN"
        if all(isinstance(value, _REPORT_TYPES) for value in (*self.payoffs.values(), *self.report.values())):
            with suppress(ValueError, TypeError):
                line = to_json(self._row(), ensure_ascii=True).decode()
        return _ENCODE(self.to_json()) if "NaN" in line or "Infinity" in line else line

    def _row(self) -> dict[str, Any]:
        """Return the log's row without checking numbers. Raises ValueError for an invalid seed or seat of a stream."""
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed {self.seed} is not within 64 bits")
        if unknown := set(self.streams) - set(self.seats):
            raise ValueError(f"streams of {sorted(unknown)}, which are not seats")
        row = identity_to_row(self.identity)
        row |= {name: getattr(self, name) for name in (*_SCALARS, "payoffs", "seconds", "report")}
        row |= {name: value for name in _DEFAULTS if (value := getattr(self, name)) != _DEFAULTS[name]}
        row["seats"] = {seat: seating.row() for seat, seating in self.seats.items()}
        row["options"] = to_plain(self.options, "options")
        row["turns"] = [turn_to_row(turn) for turn in self.turns]
        row["streams"] = {seat: [stream_to_row(s, seat) for s in self.streams.get(seat, ())] for seat in self.seats}
        return row

    @classmethod
    def from_json(cls, row: Mapping[str, Any], picture: ImageReader = lambda name: b"") -> MatchRecord:
        """Restore a record from a row of `to_json`. `picture` returns an image's bytes by its hash.

        Without `picture`, streams with images cannot be used for computations. Raises RecordError for an invalid row.
        """
        try:
            by_seat = row["streams"]
            return cls(
                identity=identity_from_row(row), game=row["game"], options=dict(row["options"]), seed=row["seed"],
                seats={seat: Seating(**seating) for seat, seating in row["seats"].items()},
                status=row["status"], reason=row["reason"], payoffs=dict(row["payoffs"]), report=dict(row["report"]),
                turns=tuple([_turn_from_row(turn) for turn in row["turns"]]),
                streams={seat: tuple([stream_from_row(s, picture) for s in rows]) for seat, rows in by_seat.items()},
                started=row["started"], seconds=row["seconds"], rules=row["rules"],
                group=row.get("group", -1), stage=row.get("stage", ""),
                source=require_source(row.get("source", "played"), MatchSource),
            )  # fmt: skip
        except KeyError as missing:
            raise _make_read_error(row, f"it has no {missing}") from None
        except (ValueError, TypeError, AttributeError) as error:
            raise _make_read_error(row, error) from None


_ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_REPORT_TYPES = (str, float, int)
"""Types of values in a game's report, including bool. pydantic's `to_json` accepts more types, which cannot be read."""
_TURN_COLUMNS = Turn._fields[: Turn._fields.index("source")]
_SCALARS = ("game", "seed", "status", "reason", "started", "rules")
_DEFAULTS = {"group": -1, "stage": "", "source": "played"}
"""Fields of a record that its row omits if they have these values."""


def trajectories(record: MatchRecord) -> list[Trajectory]:
    """Return a finished match's trajectories, one per seat that has a turn or a stream; [] for a failed match.

    Turns in which an expert's act replaced a policy's are left out with their rewards, so they are not learned from.
    """
    if record.status != "finished":
        return []
    candidates = [
        Trajectory(
            match=record.id,
            game=record.game,
            seat=seat,
            role=seating.role,
            policy=seating.policy,
            version=seating.version,
            trained=seating.trained,
            turns=tuple(turn for turn in record.turns if turn.seat == seat and not is_patch(turn)),
            streams=record.streams.get(seat, ()),
            seed=record.seed,
            report=record.report,
            payoff=record.payoffs.get(seat),
            match_turns=record.turns,
            source=record.source,
            parent=str(record.identity.parent or ""),
            parent_turn=record.identity.turn,
        )
        for seat, seating in record.seats.items()
    ]
    return [trajectory for trajectory in candidates if trajectory.turns or trajectory.streams]


def is_patch(turn: Turn) -> bool:
    """Return True for a turn in which an expert's act replaced that of a policy."""
    return turn.source == "patch" and turn.finish == "script"


def is_excused(turn: Turn) -> bool:
    """Return True for a reply that was cut at its token limit and has no legal act, if the role waived the penalty."""
    return turn.finish == "length" and not turn.valid and ILLEGAL not in turn.rewards


def trained_trajectories(records: Iterable[MatchRecord]) -> list[Trajectory]:
    """Return the trajectories of all trained seats that took a turn in a finished match."""
    return [t for record in records for t in trajectories(record) if t.trained and t.turns]


def _make_read_error(row: Mapping[str, Any], reason: object) -> RecordError:
    return RecordError(f"match {str(row.get('id', ''))[:80]!r} cannot be read: {reason}: restore the log from a copy")


def turn_to_row(turn: Turn) -> dict[str, Any]:
    """Return a turn as a row of the match log, without credit and without checking numbers."""
    row: dict[str, Any] = dict(zip(_TURN_COLUMNS, turn, strict=False))
    row["messages"] = [message_to_row(message) for message in turn.messages]
    if turn.source != "policy":
        row["source"] = turn.source
    return row


def _checked_turn_to_row(turn: Turn) -> dict[str, Any]:
    """Return a turn as a row. Raises ValueError, naming the turn, for numbers that are not finite."""
    row = turn_to_row(turn)
    row["rewards"] = _require_finite(turn.rewards, f"turn {turn.index}: reward")
    row["seconds"] = require_finite(turn.seconds, f"turn {turn.index}: seconds")
    return row


def _turn_from_row(row: Mapping[str, Any]) -> Turn:
    messages = tuple([message_from_row(line) for line in row["messages"]])
    if "source" in row:
        require_source(row["source"], TurnSource)
    return Turn(**{**row, "messages": messages, "rewards": dict(row["rewards"])})


def _require_finite(values: Mapping[str, float], field_name: str) -> dict[str, float]:
    return {name: require_finite(value, f"{field_name}[{name!r}]") for name, value in values.items()}


def list_images(turns: Iterable[Turn]) -> list[Image]:
    """Return the images in the turns' messages, sorted by hash."""
    images = {image for turn in turns for message in turn.messages for image in message.images}
    return sorted(images, key=lambda image: image.hash)


def collect_pictures(streams: Mapping[str, Iterable[Stream]]) -> dict[str, bytes]:
    """Return the bytes of all images in the streams by hash."""
    return {
        span.hash: span.data for seat_streams in streams.values() for stream in seat_streams for span in stream.media
    }


def find_reply(streams: Sequence[Stream], turn: int) -> tuple[Stream, int, int]:
    """Return the stream that has a turn's reply, and the reply's start and end in it; (empty stream, 0, 0) if none."""
    for stream in streams:
        if turn in stream.turns:
            start = stream.turns.index(turn)
            return stream, start, start + stream.turns.count(turn)
    return Stream(), 0, 0
