"""Checks of a recipe before any of its stages runs, and choice of settings for this machine."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from agents.computing import compute
from arena.config.experiment import Experiment
from arena.config.layers import merge_layers
from arena.config.pipeline import Pipeline
from arena.config.recipe import R, Recipe
from arena.config.staging import PlannedStage, add_stage_name, plan
from arena.preflight import fit_to_machine, preflight

_AUTO = {"threads": 1, "precision": "fp32"}
"""Values that replace `auto` in checks."""


async def check_recipe(
    recipe: Recipe, announce: Callable[[str], None], note: Callable[[str], None] = lambda text: None
) -> None:
    """Check an experiment as `preflight` does, or those of a pipeline's stages that need no earlier stage's data.

    `announce` is called with each slow step, and `note` with each note for the user.
    """
    if isinstance(recipe, Experiment):
        for text in (await preflight(recipe, announce)).notes:
            note(text)
        return
    for stage in plan(recipe, Path(recipe.name), note):
        for text in await check_stage(stage, announce):
            note(f"stage {stage.spec.name}: {text}")


async def fit_recipe(recipe: R) -> R:
    """Return the recipe with its shared `auto` settings replaced by the fastest values on this machine."""
    if isinstance(recipe, Experiment):
        return cast(R, await compute(fit_to_machine, recipe))
    return cast(R, recipe.with_changes(await fit_settings(recipe, plan(recipe, Path(recipe.name), lambda text: None))))


async def check_stage(stage: PlannedStage, announce: Callable[[str], None]) -> Sequence[str]:
    """Check a stage's experiment, unless it depends on an earlier stage's data. Return notes for the user.

    `announce` is called with each slow step.
    """
    if not isinstance(stage.composed, Experiment) or not stage.is_final:
        return ()
    auto = {name: value for name, value in _AUTO.items() if getattr(stage.composed, name) == "auto"}
    with add_stage_name(stage.spec.name):
        return (await preflight(stage.composed.model_copy(update=auto), announce)).notes


async def fit_settings(pipeline: Pipeline, planned: Sequence[PlannedStage]) -> dict[str, Any]:
    """Return the fastest values on this machine of the shared settings that are `auto`, the same for all stages."""
    shared = merge_layers(pipeline.shared)
    auto = {name: "auto" for name in _AUTO if shared.get(name, "auto" if name == "threads" else "") == "auto"}
    experiment = next((stage.composed for stage in planned if isinstance(stage.composed, Experiment)), None)
    if not auto or experiment is None:
        return {}
    fitted = await compute(fit_to_machine, experiment.model_copy(update={**_AUTO, **auto}))
    return {name: getattr(fitted, name) for name in auto}
