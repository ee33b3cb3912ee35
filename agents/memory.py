"""Memory of a seat: all turns, a window of the last exchanges, or the seat's own summary.

An exchange is one observation with its reply. Streams are append-only, so forgetting starts a new stream from the
system text, the examples and the remaining exchanges. A summary is an exchange too: when the context is full, the seat
is asked for a summary, and the new stream contains only that. Source: SUPO (Lu et al. 2025).
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

ASK = "Your context is full. Sum up what you need to go on: you will see nothing else of the past."


class Memory(BaseModel):
    """A role's memory: `all`, `window` (the last `turns` exchanges) or `summary` (in a context of `context` tokens)."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    kind: Literal["all", "window", "summary"] = "all"
    turns: Annotated[int, Field(ge=0, le=10_000)] | None = None
    context: Annotated[int, Field(ge=16, le=10**8)] | None = None
    tokens: Annotated[int, Field(ge=1, le=100_000)] = 64
    summaries: Annotated[int, Field(ge=1, le=10_000)] = 8
    ask: Annotated[str, Field(max_length=4_000)] = ASK

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.kind == "window" and self.turns is None:
            raise ValueError("window needs a size: add `turns: 4`")
        if self.kind == "summary" and self.context is None:
            raise ValueError("summary needs the tokens of a context: add `context: 2048`")
        if self.kind != "window" and self.turns is not None:
            raise ValueError(f"memory {self.kind} has no size in turns: remove turns, or write `kind: window`")
        if self.kind != "summary" and (unused := self.model_fields_set & SUMMARY_FIELDS):
            raise ValueError(f"{', '.join(sorted(unused))} belong to summaries: remove them, or write `kind: summary`")
        return self


SUMMARY_FIELDS = frozenset({"context", "tokens", "summaries", "ask"})
"""Fields that only memory `summary` uses. `context`: maximum tokens of a context, with the reply and the next summary.
`tokens`: maximum tokens of one summary. `summaries`: maximum number of summaries in a match. `ask`: the request for
a summary."""


class ImageMemory(BaseModel):
    """A role's memory of images: contexts show the newest images, and placeholder texts instead of older ones.

    At most `keep` images stay, with at most `tokens` tokens in total. Replacing an image starts a new context, because
    streams are append-only. Source: UI-TARS, UI-S1.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    keep: Annotated[int, Field(ge=1, le=10_000)] | None = None
    tokens: Annotated[int, Field(ge=1, le=10**8)] | None = None

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.keep is None and self.tokens is None:
            raise ValueError("images needs a limit: add `keep: 2` or `tokens: 512`")
        return self

    def count_kept(self, sizes: Sequence[int]) -> int:
        """Return the number of newest images that stay in the context. `sizes` are all images' tokens, oldest first."""
        count = len(sizes) if self.keep is None else min(self.keep, len(sizes))
        if self.tokens is None:
            return count
        return sum(used <= self.tokens for used in accumulate(sizes[::-1][:count]))


def plan_restart(memory: Memory, exchanges: int) -> int | None:
    """Return the number of last exchanges with which a new stream starts, or None to continue the current stream.

    `exchanges` is the number of exchanges so far. Returns None if the memory has no window.
    """
    if memory.turns is None or exchanges <= memory.turns:
        return None
    return memory.turns
