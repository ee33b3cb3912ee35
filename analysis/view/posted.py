"""Models of what the page posts; they refuse every other shape before anybody works with it."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from arena.errors import ConfigError

Act = Annotated[str, Field(max_length=4000, pattern=r"^[^\x00]*$")]
Kind = TypeVar("Kind", bound="Posted")


class Posted(BaseModel):
    """Base of what is posted: values have the types that the page sends."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


class NotePost(Posted):
    """A note on a match, or on one of its turns (from 0)."""

    match: str
    turn: Annotated[int, Field(ge=0)] | None = None
    text: str


class NoteRemoval(Posted):
    """The id of a note that is taken back."""

    remove: str


class SqlPost(Posted):
    """A SELECT over some runs."""

    runs: list[str]
    query: str


class ForkPost(Posted):
    """Forks of a match at a turn (from 0): with another act, or somebody else at a seat."""

    turn: Annotated[int, Field(ge=0)]
    n: Annotated[int, Field(ge=1, le=1000)] = 20
    act: Act = ""
    seat: str = ""
    who: str = ""


class ControlPost(Posted):
    """Command to a run."""

    do: Literal["stop", "resume"]


class NewMatchPost(Posted):
    """A game of two from its deal: a person at one place, `who` at the other."""

    game: str
    place: Annotated[int, Field(ge=0, le=1)]
    who: str


class PlayOnPost(Posted):
    """A seat of a logged match, from a turn (from 0) on."""

    run: str
    match: str
    turn: Annotated[int, Field(ge=0)]
    seat: str


class ActPost(Posted):
    """A person's act, and talk with it."""

    act: Act
    talk: Annotated[str, Field(max_length=1000)] = ""


class EndPost(Posted):
    """The end of a person's match: at once, or soon, unless the page asks for it again."""

    soon: bool = False


def read(kind: type[Kind], body: object) -> Kind:
    """Return the body as a model of this kind. Raises ConfigError with one line for the first thing wrong with it."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        worst = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, worst["loc"]))
        raise ConfigError(f"{place}: {worst['msg']}") from None
