"""Types shared by games, players and the arena: messages, views, acts, deals and the Game protocol.

A game shows a seat a `View`, and the seat answers with an `Act`. Optional abilities are in `games.abilities`. This
module imports no other module of Arena.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

REFEREE = "referee"
"""Sender of the game's own messages."""
TOOL = "tool"
"""Sender of a tool's result, which only the calling seat receives."""
ILLEGAL = "illegal"
"""Name of the reward part for illegal acts, in every game."""
MAX_PIXELS = 2**16
"""Maximum width and height of an image in pixels."""
MAX_MATCHES, MAX_TURNS, MAX_BRANCHES = 10**9, 2**15, 64
"""Limits of the log format: iterations, and deals per iteration; turns and attempts of a match; depth of branches."""

# -- messages ---------------------------------------------------------------------------------------------------------


Text = str
"""Text part of a message."""


@dataclass(frozen=True)
class Image:
    """Image part of a message, identified by its content's hash; `games.abilities.Pictures` provides the bytes.

    Raises ValueError unless `hash` is a SHA-256 in 64 hex digits, `media` is a type such as image/png, and `width` and
    `height` are 1 to `MAX_PIXELS` pixels. Strict fields keep the placeholder text from forging words.
    """

    hash: str
    media: str
    width: int
    height: int

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{64}", self.hash):
            raise ValueError(f"an image's hash is a SHA-256 in 64 hex digits, not {self.hash[:80]!r}")
        if not re.fullmatch(r"image/[a-z0-9.+-]{1,32}", self.media):
            raise ValueError(f"an image's media type is one like image/png, not {self.media[:80]!r}")
        if not (1 <= self.width <= MAX_PIXELS and 1 <= self.height <= MAX_PIXELS):
            raise ValueError(f"an image is 1 to {MAX_PIXELS} pixels wide and high, not {self.width}x{self.height}")

    @property
    def text(self) -> str:
        """Placeholder for readers without vision, such as [image png 64x48 1a2b3c4d]."""
        return f"[image {self.media[6:]} {self.width}x{self.height} {self.hash[:8]}]"


ContentPart = Text | Image


class Message(NamedTuple):
    """Text and images from a seat or the referee. The sender is a separate field, so that text cannot forge it."""

    sender: str
    parts: tuple[ContentPart, ...]

    @classmethod
    def of(cls, sender: str, text: str, images: Sequence[Image] = ()) -> Self:
        """Create a message from a text and the images after it. An empty text is left out if there are images."""
        if not images:
            return cls(sender, (text,))
        return cls(sender, (text, *images) if text else tuple(images))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return self, because messages are immutable and cloned games share them."""
        return self

    @property
    def text(self) -> str:
        """The whole message as one text, with a placeholder for each image."""
        parts = self.parts
        if len(parts) == 1 and isinstance(parts[0], Text):
            return parts[0]
        return " ".join([part if isinstance(part, Text) else part.text for part in parts if part])

    @property
    def images(self) -> tuple[Image, ...]:
        """Images of the message, in order."""
        return tuple(part for part in self.parts if isinstance(part, Image))

    def to_plain(self) -> dict[str, Any]:
        """Return `sender` and `text` (with placeholders for images) as a dict, as in observations and logs."""
        return {"sender": self.sender, "text": self.text}


class View(NamedTuple):
    """Everything that a seat may know when it is to move."""

    seat: str
    turn: int
    """Index of the act in the match, from 0."""
    messages: tuple[Message, ...]
    """New messages since the seat last acted, oldest first."""
    rules: str
    public: Mapping[str, Any]
    private: Mapping[str, Any]
    legal: tuple[str, ...] | None
    """Legal acts, or None if they cannot be listed."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Definitions of the seat's tools in OpenAI's format, for models with a native tool format."""

    @classmethod
    def of(cls, game: Game, seat: str, turn: int = 0) -> Self:
        """Return the current view of the seat to move, from the game's infos and messages."""
        info = game.infos[seat]
        legal = info.get("legal")
        return cls(
            seat=seat,
            turn=turn,
            messages=game.messages(seat),
            rules=info.get("rules", ""),
            public=info.get("public", {}),
            private=info.get("private", {}),
            legal=None if legal is None else tuple(legal),
            tools=tuple(info.get("tools", ())),
        )


TurnSource = Literal["policy", "replaced", "patch", "demonstration", "summary", "voted", "request"]
"""Origin of a turn.

- `policy`: the seat's policy
- `patch`: an expert, whose act is played instead of the policy's
- `replaced`: the policy's own act, which a patch replaced
- `demonstration`: another player, for the policy to imitate
- `summary`: the policy, which summarises its past
- `request`: the policy, which answers a request of the seat's agent program
- `voted`: a vote over several samples of the policy, or a search
"""
UNREAD: tuple[TurnSource, ...] = ("summary", "replaced", "request")
"""Sources of turns whose text is not passed to the game."""


class Act(NamedTuple):
    """A player's answer to a view."""

    action: str
    """Act that the game parses."""
    raw: str
    """Whole text exactly as written."""
    public: str
    """Talk that the other seats read."""
    private: str
    """Text that no other seat reads, such as reasoning."""
    finish: Literal["stop", "length", "script"]
    """Why the reply ended: at a stop token, at the token limit ("length"), or "script" if it was not sampled."""
    tokens: int = 0
    source: TurnSource = "policy"
    excused: bool = False
    """Whether an illegal act is not penalised, because the reply was cut at its token limit."""


PERSON = "person"
"""Ending reason that makes a match fail: the player of a simulated person deviated from the person's record."""
CUT = ("context", "stopped")
"""Ending reasons of matches truncated by Arena: the mover's context is full, or a rollout part stopped the match."""


class Deal(NamedTuple):
    """Game name, options and seed, which define the start of a match.

    Equal deals and acts give equal matches, as long as the game's `rules_version` is unchanged.
    """

    game: str
    options: Mapping[str, Any]
    seed: int


# -- games ------------------------------------------------------------------------------------------------------------


class Game(Protocol):
    """Match of a text game: a PettingZoo AECEnv with text observations and actions, and facts about the game.

    `messages(seat)` returns the seat's new messages, typed; `observe(seat)` returns the same in PettingZoo's spaces.
    `infos[seat]` holds the last step's named `rewards` and whether the seat's last act was `valid`. For the seat to
    move it also holds `rules`, `public` and `private` facts, `legal`, the list of its acts or None, and `tools`, the
    definitions of its tools, if there are any.
    """

    name: ClassVar[str]
    title: str
    rules_version: ClassVar[int]
    reward_parts: Mapping[str, str]
    theory: ClassVar[Mapping[str, float]]
    perfect_information: bool
    cooperative: bool
    rivals: bool
    players: Mapping[str, Callable[[Any, int], Callable[[View], str]]]
    talk: bool
    ended: str

    possible_agents: list[str]
    agents: list[str]
    agent_selection: str
    terminations: dict[str, bool]
    truncations: dict[str, bool]
    infos: dict[str, dict[str, Any]]

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None: ...
    def messages(self, seat: str) -> tuple[Message, ...]: ...
    def observe(self, agent: str) -> Mapping[str, Any]: ...
    def step(self, action: str | None) -> None: ...
    def legal(self, seat: str) -> Sequence[str] | None: ...
    def hides_nothing(self) -> bool: ...
    def clone(self) -> Self: ...
    def payoffs(self) -> dict[str, float]: ...
    def report(self) -> dict[str, float | bool | str]: ...
    def render(self) -> str: ...
    def close(self) -> None: ...


class GameFull(Exception):
    """Raised by `reset` while other matches take all places that the game has. The match is dealt again later."""


# -- match ids --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MatchId:
    """Id of a match within a run; `str` formats it, and `parse` reads it back.

    Examples: 0001-0003 (iteration 1, deal 3), 0001-0003-r2 (its second repetition after failures), 0001-0003-b4 (its
    branch at turn 4), 0001-0003-b4-r1-b6 (a branch of that branch's first repetition). Raises ValueError for numbers
    outside the log's limits, for a branch turn without a parent or the reverse, and for a parent of another deal.
    """

    iteration: int
    """Iteration that played the match. Outside a run, the index of the lineup."""
    deal: int
    """Index of the match among the deals of its iteration, from 0."""
    attempt: int = 0
    """Number of repetitions after failures."""
    parent: MatchId | None = None
    """Match that this one branches from, or None."""
    turn: int = -1
    """Index of the first turn that differs from the parent's; -1 without a parent."""

    def __post_init__(self) -> None:
        is_loggable = 0 <= self.iteration < MAX_MATCHES and 0 <= self.deal < MAX_MATCHES
        if not (is_loggable and 0 <= self.attempt < MAX_TURNS and -1 <= self.turn < MAX_TURNS):
            limits = f"iteration and deal below {MAX_MATCHES}, attempt and turn below {MAX_TURNS}"
            raise ValueError(f"a match's numbers are 0 or more, {limits}, not {self!r}")
        if self.parent and len(self.parent.lineage()) > MAX_BRANCHES:
            raise ValueError(f"branches can be nested at most {MAX_BRANCHES} deep")
        if (self.parent is None) != (self.turn == -1):
            raise ValueError("a match has a parent and the turn at which it differs from it, or neither")
        if self.parent and (self.parent.iteration, self.parent.deal) != (self.iteration, self.deal):
            raise ValueError(f"a branch must have the iteration and deal of its parent, {self.parent}")

    def __str__(self) -> str:
        head = f"{self.iteration:04d}-{self.deal:04d}" if self.parent is None else f"{self.parent}-b{self.turn}"
        return f"{head}-r{self.attempt}" if self.attempt else head

    @classmethod
    def parse(cls, text: str) -> MatchId:
        """Parse an id formatted by `str`. Raises ValueError for any other text."""
        if not _PRINTED.fullmatch(text):
            raise ValueError(f"{text[:80]!r} is no match id: write one like 0001-0003 or 0001-0003-b4")
        iteration, deal, *rest = text.split("-")
        match = cls(int(iteration), int(deal))
        for part in rest:
            number = int(part[1:])
            match = replace(match, attempt=number) if part[0] == "r" else match.branch(number)
        return match

    def branch(self, turn: int) -> MatchId:
        """Return the id of the branch that differs from this match from turn `turn` on."""
        return MatchId(self.iteration, self.deal, parent=self, turn=turn)

    def lineage(self) -> list[MatchId]:
        """Return the match's ancestors, the original match first, and the match itself last."""
        return [*(self.parent.lineage() if self.parent else ()), self]

    @property
    def first_attempt(self) -> MatchId:
        """Id of the first attempt at this match."""
        return replace(self, attempt=0) if self.attempt else self


_NUMBER = r"(?:\d{4}|[1-9]\d{4,8})"
_ATTEMPT = r"(?:-r[1-9]\d{0,8})?"
_PRINTED = re.compile(rf"{_NUMBER}-{_NUMBER}{_ATTEMPT}(?:-b(?:0|[1-9]\d{{0,8}}){_ATTEMPT}){{0,64}}", re.ASCII)
