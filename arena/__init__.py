"""Orchestrator and learner; `arena.run` and `arena.resume` train from Python.

>>> result = arena.run("negotiation-nano", overrides={"learn.lr": 1e-4}, seed=1, progress=print)
>>> result.metrics[["iteration", "mean_payoff"]]
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from arena.process import prepare

if TYPE_CHECKING:
    from arena.api.progress import Progress
    from arena.api.result import Result
    from arena.api.training import resume, run

__all__ = ["Progress", "Result", "resume", "run"]
_HOMES = {"Progress": "progress", "Result": "result", "resume": "training", "run": "training"}

prepare()
logging.getLogger(__name__).addHandler(logging.NullHandler())  # no log output unless the user configures a handler


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that `import arena` does not load torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'arena' has no attribute '{name}'")
    return getattr(import_module(f"arena.api.{_HOMES[name]}"), name)
