"""Slow calls of games (running code, a query), which a worker may compute elsewhere.

Only the call travels, never the game. If a worker dies, the match fails and is played again from its deal.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ParamSpec, Protocol, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Elsewhere(Protocol):
    """Protocol of a function that runs `work` with these arguments, possibly in another process.

    It returns the result of `work` or raises its exception.
    """

    def __call__(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Any: ...


ELSEWHERE: ContextVar[Elsewhere | None] = ContextVar("elsewhere", default=None)
"""Function that runs the slow calls of games in this context. None runs them in place."""


def slowly(work: Callable[Given, Result], /, *given: Given.args, **named: Given.kwargs) -> Result:
    """Run `work`, in another process or on another machine if `ELSEWHERE` is set, and return its result.

    `work` must be a module-level function that depends on its arguments alone; arguments and result must be picklable.
    Only games with `blocks` may call this: other games run on the event loop, which the call would hold up.
    """
    elsewhere = ELSEWHERE.get()
    found: Result = elsewhere(work, *given, **named) if elsewhere else work(*given, **named)
    return found
