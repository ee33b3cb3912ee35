"""Slow calls of simulators as Ray tasks: code cells and the like on whichever node has room.

Only the call travels, never the game: a task that dies takes its match with it, which is then played again from its
deal, and nothing else. Ray is up when these are made.
"""

from collections.abc import Callable, Mapping
from typing import Any

from arena.errors import ConfigError, WorkerLost

POLL = 0.2
"""Seconds after which a task that nobody waits for any more is cancelled, at the latest."""
START_SECONDS = 60.0
"""Seconds in which a cluster has to start a first task."""
TRIALS = 5
"""First tasks that are tried: whose worker dies says nothing of the next one's."""


class RayCalls:
    """Computes calls as Ray tasks, each with what `options` of Ray reserve for it."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        import ray

        self._ray, self._options = ray, dict(options)
        self._task = ray.remote(max_retries=0, **options)(_computed)

    def check(self, seconds: float = START_SECONDS) -> None:
        """ConfigError where the cluster computes nothing in time, as one does that has no room for a task."""
        for _ in range(TRIALS):
            trial = self._task.remote(_nothing, (), {})
            if not self._ray.wait([trial], timeout=seconds)[0]:
                self._ray.cancel(trial, force=True)
                raise ConfigError(
                    f"scale.tasks: the cluster began no task of {self._options.get('num_cpus', 1):g} CPUs in "
                    f"{seconds:g} s: lower scale.resources.task, or add a node"
                )
            try:
                return self._ray.get(trial)  # type: ignore[no-any-return]
            except self._ray.exceptions.RayError as error:
                why = _first(error)
        raise ConfigError(f"scale.tasks: the workers of {TRIALS} first tasks died ({why}): look at Ray's logs there")

    def __call__(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
        """Return or raise what the call does; WorkerLost where its worker or node is gone."""
        from ray.exceptions import RayError, RayTaskError

        task = self._task.remote(work, given, named)
        try:
            while not self._ray.wait([task], timeout=POLL)[0]:
                pass
            return self._ray.get(task)
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else WorkerLost(_first(error))) from None
        except RayError as error:
            raise WorkerLost(f"the task of {_name(work)} is gone ({type(error).__name__}: {_first(error)})") from None
        except BaseException:
            self._ray.cancel(task, force=True)
            raise


def _computed(work: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return work(*given, **named)


def _nothing() -> None:
    """Take no time."""


def _name(work: Callable[..., Any]) -> str:
    return str(getattr(work, "__qualname__", "a call"))


def _first(error: Exception) -> str:
    """The first line of Ray's message, which runs to many."""
    return next(iter(str(error).strip().splitlines()), "")[:200]
