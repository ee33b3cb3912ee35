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
    """Request to add a note to a match, or to one of its turns (from 0)."""

    match: str
    turn: Annotated[int, Field(ge=0)] | None = None
    text: str


class NoteRemoval(RequestBody):
    """Request to remove the note with this id."""

    remove: str


class SqlPost(RequestBody):
    """Request to run a SELECT over the runs with these names."""

    runs: list[str]
    query: str


class ForkPost(RequestBody):
    """Request to fork a match `n` times at a turn (from 0), with the action `act` or the policy `who` at `seat`."""

    turn: Annotated[int, Field(ge=0)]
    n: Annotated[int, Field(ge=1, le=1000)] = 20
    act: Act = ""
    seat: str = ""
    who: str = ""


class ControlPost(RequestBody):
    """Request to stop or resume a run."""

    do: Literal["stop", "resume"]


class NewMatchPost(RequestBody):
    """Request to start a game of two seats: a human at seat number `place`, a policy or run `who` at the other."""

    game: str
    place: Annotated[int, Field(ge=0, le=1)]
    who: str


class PlayOnPost(RequestBody):
    """Request to let a human take over a seat of a logged match from a turn (from 0) on."""

    run: str
    match: str
    turn: Annotated[int, Field(ge=0)]
    seat: str


class ActPost(RequestBody):
    """Human player's action (`act`) and speech (`talk`)."""

    act: Act
    talk: Annotated[str, Field(max_length=1000)] = ""


class EndPost(RequestBody):
    """Request to end a human player's match: at once, or `soon` unless its page is reloaded."""

    soon: bool = False


def parse(kind: type[Kind], body: object) -> Kind:
    """Validate a request body, and return it as an instance of `kind`. Raises ConfigError with the first error."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first_error = error.errors(include_url=False, include_input=False)[0]
        field_path = ".".join(map(str, first_error["loc"]))
        raise ConfigError(f"{field_path}: {first_error['msg']}") from None
