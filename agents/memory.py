"""Memory of a seat: all of the past, or a window of its last exchanges.

An exchange is what the seat was shown and what it answered. A stream is append-only, so forgetting means to
start a new one from the system text, the examples and the exchanges that are kept.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Memory(BaseModel):
    """A role's memory: `all`, or `window` with the number of exchanges that it holds."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    kind: Literal["all", "window"] = "all"
    turns: Annotated[int, Field(ge=0, le=10_000)] | None = None

    @model_validator(mode="after")
    def _sized(self) -> Self:
        if self.kind == "window" and self.turns is None:
            raise ValueError("window needs a size: add `turns: 4`")
        if self.kind == "all" and self.turns is not None:
            raise ValueError("memory all has no size: remove turns, or write `kind: window`")
        return self


def plan(memory: Memory, taken: int) -> int | None:
    """Before a turn, with `taken` exchanges made: None to go on with the stream, or how many of the last to
    start a new stream with."""
    if memory.turns is None or taken <= memory.turns:
        return None
    return memory.turns
