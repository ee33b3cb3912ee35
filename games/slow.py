"""Slow calls of games, such as running code or a query, which may run in another process.

Only the call is sent there, never the game. If a worker dies, the match fails and is played again from its deal.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ParamSpec, Protocol, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Executor(Protocol):
    """Protocol of a function that runs `work` with these arguments, possibly in another process.

    It returns the result of `work` or raises its exception.
    """

    def __call__(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...


EXECUTOR: ContextVar[Executor | None] = ContextVar("executor", default=None)
"""Function that runs the slow calls of games in this context. None runs them in place."""


def offload(work: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
    """Run `work`, offloaded to another process or machine if `EXECUTOR` is set, and return its result.

    `work` must be a module-level function that depends on its arguments alone; arguments and result must be picklable.
    Only games with `blocks` may call this: other games run on the event loop, which the call would hold up.
    """
    executor = EXECUTOR.get()
    result: Result = executor(work, *args, **kwargs) if executor else work(*args, **kwargs)
    return result
