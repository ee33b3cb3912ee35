"""Recipes of studies: an experiment, or a pipeline, of which the last stage is evaluated."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from arena.config.experiment import Experiment
from arena.config.layers import compose, to_yaml
from arena.config.pipeline import OVERLAY, Pipeline, read_pipeline
from arena.config.saved_config import experiment_to_plain
from arena.config.sources import Layer, is_pipeline
from arena.config.staging import plan
from arena.config.study import StudySpec
from arena.errors import ConfigError
from arena.parts.part_config import accepts_any_setting
from arena.parts.paths import anchor_paths
from arena.stages import PIPELINE_STAGE

Recipe = Experiment | Pipeline
R = TypeVar("R", bound=Recipe)


def compose_recipe(layers: Sequence[Layer]) -> Recipe:
    """Merge the layers and return the experiment or pipeline. Raises ConfigError, with source and line."""
    return read_pipeline(layers) if is_pipeline(layers) else compose(layers)


def recipe_to_plain(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as plain values, which `compose_recipe` reads back."""
    return experiment_to_plain(recipe) if isinstance(recipe, Experiment) else recipe.to_plain()


def recipe_to_yaml(recipe: Recipe) -> str:
    """Return a recipe as YAML, which `compose_recipe` reads back."""
    return to_yaml(recipe) if isinstance(recipe, Experiment) else recipe.to_yaml()


def with_study(recipe: R, study: StudySpec) -> R:
    """Return a copy of the recipe with another `study`."""
    if isinstance(recipe, Experiment):
        return recipe.model_copy(update={"study": study})
    return replace(recipe, study=study)


def with_changes(recipe: R, changed: Mapping[str, Any]) -> R:
    """Return a copy of the recipe with new values of top-level settings."""
    copy = recipe.model_copy(update=changed) if isinstance(recipe, Experiment) else recipe.with_changes(changed)
    return cast(R, copy)


def anchor_recipe(recipe: R) -> R:
    """Return a copy of the recipe with absolute paths."""
    return cast(R, anchor_paths(recipe) if isinstance(recipe, Experiment) else recipe.with_changes({}))


def list_experiments(recipe: Recipe) -> list[Experiment]:
    """Return the recipe's experiment, or the experiments of a pipeline's stages, as composed before any stage runs."""
    return list(experiments_by_stage(recipe).values())


def experiments_by_stage(recipe: Recipe) -> dict[str, Experiment]:
    """Return a pipeline's experiments by stage name, as composed before any stage runs; a single experiment as ""."""
    if isinstance(recipe, Experiment):
        return {"": recipe}
    stages = plan(recipe, Path(recipe.name), lambda text: None)
    return {stage.spec.name: stage.composed for stage in stages if isinstance(stage.composed, Experiment)}


def find_last_experiment(recipe: Recipe) -> Experiment:
    """Return the recipe's experiment, or that of a pipeline's last stage. Raises ConfigError if that one has none."""
    if isinstance(recipe, Experiment):
        return recipe
    last = plan(recipe, Path(recipe.name), lambda text: None)[-1].composed
    if not isinstance(last, Experiment):
        raise ConfigError(f"{recipe.name}: its last stage is not an experiment, so a study cannot evaluate it")
    return last


def get_last_stage_prefix(recipe: Recipe) -> str:
    """Return the prefix of the last stage's keys for `--set`, such as `stages.rl.play.`; "" without stages."""
    if isinstance(recipe, Experiment):
        return ""
    last = recipe.stages[-1]
    return f"stages.{last.name}.{last.kind if accepts_any_setting(PIPELINE_STAGE, last.kind) else OVERLAY}."
