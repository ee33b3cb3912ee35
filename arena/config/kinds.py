"""Registry of the kinds of parts: each name, and its key in an experiment."""

from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from arena.config.presets import PRESETS
from arena.credit.critics import CRITIC
from arena.credit.estimators import ESTIMATOR
from arena.credit.replay import REPLAY
from arena.credit.rewards import STAGE
from arena.credit.selection import SELECTOR
from arena.credit.transforms import TRANSFORM
from arena.learn.aggregates import AGGREGATE
from arena.learn.clips import CLIP
from arena.learn.corrections import CORRECTION
from arena.learn.losses import LOSS
from arena.learn.regularisers import REGULARISER
from arena.parts import part_config
from arena.parts.part_config import Kind, PartConfig
from arena.parts.schedules import SCHEDULE
from arena.play.parts import ROLLOUT_PART
from arena.stages import PIPELINE_STAGE
from games.names import nearest

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        *(ESTIMATOR, STAGE, TRANSFORM, SELECTOR, CRITIC, SCHEDULE),
        *(LOSS, CLIP, CORRECTION, AGGREGATE, REGULARISER, REPLAY, ROLLOUT_PART, PIPELINE_STAGE),
    )
}
PLACES = {
    "estimator": "credit.estimator", "stage": "credit.stages", "transform": "credit.transforms",
    "selector": "credit.select", "critic": "credit.critic", "loss": "learn.loss",
    "clip": "learn.loss.policy_gradient.clip", "correction": "learn.loss.policy_gradient.correction",
    "aggregate": "learn.aggregate", "regulariser": "learn.regularisers", "replay": "learn.replay",
    "part": "play.parts", "pipeline_stage": "stages",
}  # fmt: skip
"""Key of the experiment that sets parts of each kind. A schedule can replace any number."""


def choose(kind: str, name: str, /, **settings: Any) -> PartConfig:
    """Return the part `name` of a kind, such as the estimator `grpo`, with these settings.

    Raises KeyError for an unknown kind, ValueError for an unknown name or bad settings.
    """
    return part_config.choose(KINDS[kind], name, **settings)


def with_hints(error: ValidationError) -> ValidationError:
    """Return a copy of the validation error with a hint for each unknown part name: the right key or nearest name."""
    errors: list[InitErrorDetails] = []
    for detail in error.errors(include_url=False):
        context = detail.get("ctx", {})
        kind: Any = detail["type"]
        if kind == "part_error":
            kind = PydanticCustomError("part_error", detail["msg"].replace("{", "{{").replace("}", "}}"))
            if "kind" in context:
                kind = part_config.make_unknown_error(**{**context, "hint": _hint(context["name"], context["kind"])})
        details: InitErrorDetails = {"type": kind, "loc": detail["loc"], "input": detail["input"]}
        if context and isinstance(kind, str):
            details["ctx"] = context
        errors.append(details)
    return ValidationError.from_exception_data(error.title, errors)


def _hint(name: str, kind: str) -> str:
    """Return the end of an error message: the experiment key where this name fits, or the kind's nearest name."""
    places = [f"{other} ({PLACES[other]})" for other in PLACES if other != kind and name in KINDS[other].table]
    places += ["preset (learn.loss)"] if kind != "loss" and name in PRESETS else []
    if places:
        return ": it is " + " or ".join(f"{'an' if place[0] in 'ae' else 'a'} {place}" for place in places)
    return nearest(name, [*KINDS[kind].table, *(PRESETS if kind == "loss" else ())])
