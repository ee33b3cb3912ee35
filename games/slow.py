"""Slow calls of games (running code, a query), which a worker may compute elsewhere.

Only the call travels, never the game. If a worker dies, the match fails and is played again from its deal.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ParamSpec, Protocol, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Elsewhere(Protocol):
    """A place to compute: `work` with these arguments; it returns or raises what that does."""

    def __call__(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Any: ...


ELSEWHERE: ContextVar[Elsewhere | None] = ContextVar("elsewhere", default=None)
"""Computes slow calls for the games that step in this context; None: they compute where they step."""


def slowly(work: Callable[Given, Result], /, *given: Given.args, **named: Given.kwargs) -> Result:
    """Return what `work` returns, perhaps from another process or machine.

    `work` is a function of a module; it depends on its arguments alone, which can be pickled, as its result can. For
    games with `blocks`: others would hold up the event loop meanwhile.
    """
    elsewhere = ELSEWHERE.get()
    found: Result = elsewhere(work, *given, **named) if elsewhere else work(*given, **named)
    return found
