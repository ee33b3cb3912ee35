"""What a player is to everybody else: it gets a View when it is to move and answers with an Act."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, NotRequired, Protocol, TypedDict, runtime_checkable

PREFIXES = ("endpoint:", "endpoint@")
"""What a model behind an OpenAI-compatible endpoint begins with: endpoint:MODEL, or endpoint@SERVER:MODEL."""


TurnSource = Literal["policy", "patch", "summary", "tool", "demonstration"]
"""Who writes a turn: whoever sits there, somebody who puts another act in its place, whoever sums up, a tool, or
somebody who shows how to play."""


class Image(TypedDict):
    """An image in a message, by the hash of its content; the bytes lie elsewhere."""

    place: int
    """Characters of the message's text that stand before it."""
    hash: str
    """SHA-256 in 64 hex digits."""
    media: str
    width: int
    height: int


class Message(TypedDict):
    """One public line: a seat's name (or "referee") and what it said, kept apart so that nobody is forged."""

    sender: str
    text: str
    images: NotRequired[list[Image]]


class View(NamedTuple):
    """All a player may know when it is to move; `turn` is the index of this act in the match, from 0."""

    seat: str
    turn: int
    messages: tuple[Message, ...]
    rules: str
    public: Mapping[str, Any]
    private: Mapping[str, Any]
    legal: tuple[str, ...] | None


class Act(NamedTuple):
    """What a player answers: `action` is read by the game, `public` heard by others, `private` by nobody."""

    action: str
    raw: str
    public: str
    private: str
    finish: Literal["stop", "length", "script"]
    tokens: int = 0
    source: TurnSource = "policy"


class Brain(Protocol):
    """A scripted policy without weights, at one seat for one match."""

    def act(self, view: View) -> str:
        """The action text that the game reads."""
        ...


@runtime_checkable
class Chances(Protocol):
    """A brain without memory: what it does next hangs on what it sees now, and on chance."""

    def chances(self, view: View) -> Mapping[str, float]:
        """How likely each of its acts is; they sum to 1."""
        ...


class Player(Protocol):
    """Anybody who can sit at a seat for one match."""

    async def act(self, view: View) -> Act:
        """Answers one view with one act; never raises for what the view's text contains.

        Who never waits for anything may say so, `waits = False`: then nobody watches the clock, which takes time too.
        """
        ...
