"""Run slow calls of simulators, such as the execution of code cells, as Ray tasks on any node with free resources.

Only the call is sent, never the game. If a task dies, only its match fails, and is replayed from its deal.
"""

from collections.abc import Callable, Mapping
from typing import Any

from agents.model_config import first_line
from arena.errors import ConfigError, WorkerLost

POLL = 0.2
"""Seconds between two checks for an interruption while waiting for a task."""
START_SECONDS = 60.0
"""Timeout in seconds for a cluster's first task."""
TRIALS = 5
"""Maximum attempts at the first task while its worker dies."""


class RayCalls:
    """Callable that runs a function as a Ray task with the resource `options` and returns its result.

    Ray must be initialised before it is created.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        import ray

        self._ray, self._options = ray, dict(options)
        self._task = ray.remote(max_retries=0, **options)(_run_call)

    def check(self, seconds: float = START_SECONDS) -> None:
        """Run an empty task to check that the cluster runs tasks, up to `TRIALS` times if its worker dies.

        Raises ConfigError if the task does not finish within `seconds`, or the workers of all attempts die.
        """
        for _ in range(TRIALS):
            trial = self._task.remote(_do_nothing, (), {})
            if not self._ray.wait([trial], timeout=seconds)[0]:
                self._ray.cancel(trial, force=True)
                raise ConfigError(
                    f"scale.tasks: the cluster did not start a task of {self._options.get('num_cpus', 1):g} CPUs "
                    f"within {seconds:g} s: lower scale.resources.task, or add a node"
                )
            try:
                return self._ray.get(trial)  # type: ignore[no-any-return]
            except self._ray.exceptions.RayError as error:
                reason = first_line(error)
        raise ConfigError(f"scale.tasks: the workers of {TRIALS} first tasks died ({reason}): see Ray's logs there")

    def __call__(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run `work` with these arguments as a task, wait for its end, and return its result or raise its exception.

        Raises WorkerLost if its worker or node dies. An interruption cancels the task.
        """
        from ray.exceptions import RayError, RayTaskError

        task = self._task.remote(work, args, kwargs)
        try:
            while not self._ray.wait([task], timeout=POLL)[0]:
                pass
            return self._ray.get(task)
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else WorkerLost(first_line(error))) from None
        except RayError as error:
            raise WorkerLost(
                f"the task of {_name(work)} is gone ({type(error).__name__}: {first_line(error)})"
            ) from None
        except BaseException:
            self._ray.cancel(task, force=True)
            raise


def _run_call(work: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return work(*args, **kwargs)


def _do_nothing() -> None:
    """Body of an empty task."""


def _name(work: Callable[..., Any]) -> str:
    return str(getattr(work, "__qualname__", "a call"))
