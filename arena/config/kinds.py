"""The kinds of parts: where each is found. Light, as the commands list them before anything is loaded."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

TABLES = {
    "estimator": "arena.credit.estimators:ESTIMATORS",
    "stage": "arena.credit.rewards:STAGES",
    "transform": "arena.credit.transforms:TRANSFORMS",
    "selector": "arena.credit.selection:SELECTORS",
    "critic": "arena.credit.critics:CRITICS",
    "schedule": "arena.config.schedules:SCHEDULES",
    "loss": "arena.learn.losses:LOSSES",
    "clip": "arena.learn.clips:CLIPS",
    "correction": "arena.learn.corrections:CORRECTIONS",
    "aggregate": "arena.learn.aggregates:AGGREGATES",
    "regulariser": "arena.learn.regularisers:REGULARISERS",
    "replay": "arena.credit.replay:REPLAYS",
}
"""Where each kind of part is found: loaded when first asked for, since those of `arena.learn` bring torch."""


def parts_of(kind: str) -> Mapping[str, Callable[..., Any]]:
    """All parts of a kind by name."""
    module, _, name = TABLES[kind].partition(":")
    parts: Mapping[str, Callable[..., Any]] = getattr(import_module(module), name)
    return parts


def plural(kind: str) -> str:
    """What `arena list` calls the parts of a kind."""
    return {"loss": "losses", "replay": "replays"}.get(kind, f"{kind}s")
