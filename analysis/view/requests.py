"""Schemas of request bodies, which reject any other shape."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from arena.errors import ConfigError

Act = Annotated[str, Field(max_length=4000, pattern=r"^[^\x00]*$")]
Kind = TypeVar("Kind", bound="RequestBody")


class RequestBody(BaseModel):
    """Base class of request bodies, with strict types."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


class NotePost(RequestBody):
    """A note on a match, or on one of its turns (from 0)."""

    match: str
    turn: Annotated[int, Field(ge=0)] | None = None
    text: str


class NoteRemoval(RequestBody):
    """The id of a note to remove."""

    remove: str


class SqlPost(RequestBody):
    """A SELECT over some runs."""

    runs: list[str]
    query: str


class ForkPost(RequestBody):
    """Forks of a match at a turn (from 0), with another action or another policy at a seat."""

    turn: Annotated[int, Field(ge=0)]
    n: Annotated[int, Field(ge=1, le=1000)] = 20
    act: Act = ""
    seat: str = ""
    who: str = ""


class ControlPost(RequestBody):
    """Command to a run."""

    do: Literal["stop", "resume"]


class NewMatchPost(RequestBody):
    """A new game of two seats: a human at `place`, policy `who` at the other."""

    game: str
    place: Annotated[int, Field(ge=0, le=1)]
    who: str


class PlayOnPost(RequestBody):
    """A seat of a logged match for a human to take over from a turn (from 0) on."""

    run: str
    match: str
    turn: Annotated[int, Field(ge=0)]
    seat: str


class ActPost(RequestBody):
    """A human player's action, with speech."""

    act: Act
    talk: Annotated[str, Field(max_length=1000)] = ""


class EndPost(RequestBody):
    """End of a human player's match: at once, or soon unless its page is reloaded."""

    soon: bool = False


def parse(kind: type[Kind], body: object) -> Kind:
    """Return the body as a model of this kind. Raises ConfigError with the first validation error."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        worst = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, worst["loc"]))
        raise ConfigError(f"{place}: {worst['msg']}") from None
