"""Arms of a study: the recipe and its variants with overridden settings, all at the same budget."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from arena.config.recipe import R, Recipe, compose_recipe, find_last_experiment, list_experiments, recipe_to_plain
from arena.config.sources import Layer, set_layer
from arena.config.study import EVALUATED, PANEL, StudySpec, parse_evaluated_figure
from arena.errors import ConfigError
from games.names import nearest


def require_study(experiment: Recipe) -> StudySpec:
    """Return the experiment's `study` section. Raises ConfigError if it has none."""
    if experiment.study is None:
        raise ConfigError(f"{experiment.name} has no section `study` that names arms (docs/experiments.md)")
    return experiment.study


def select_arms(experiment: Recipe, names: Sequence[str]) -> list[str]:
    """Return the study's arms that `--arms` names, in the study's order; `["all"]` names all of them.

    Raises ConfigError for an unknown arm, or if `names` is empty.
    """
    known = require_study(experiment).names
    if list(names) == ["all"]:
        return known
    for arm in names:
        if arm not in known:
            raise ConfigError(f"--arms: no arm '{arm}'{nearest(arm, known)} (all, or some of {', '.join(known)})")
    if not names:
        raise ConfigError(f"--arms: name some of {', '.join(known)}, or all")
    return [arm for arm in known if arm in names]


def arm_layers(experiment: Recipe, arm: str, seed: int) -> list[Layer]:
    """Return an arm's overrides as layers of settings: the study's `each` for this seed, then the arm's own.

    The first arm has no overrides of its own, because it is the recipe itself. Raises ConfigError for an unknown arm.
    """
    study = require_study(experiment)
    if arm not in study.names:
        known = ", ".join(study.names)
        raise ConfigError(f"{experiment.name} has no arm '{arm}'{nearest(arm, study.names)} (its arms: {known})")
    each = [_make_layer("study.each", setting.replace("{seed}", str(seed))) for setting in study.each]
    return each + [_make_layer(f"study.arms.{arm}", setting) for setting in study.arms.get(arm, ())]


def _make_layer(field_name: str, setting: str) -> Layer:
    layer = set_layer(setting)
    return replace(layer, source=layer.source.replace("--set", f"{field_name}:", 1))


def with_arm(experiment: R, arm: str, seed: int = 0) -> R:
    """Return the experiment with the overrides of one arm of its study. Raises ConfigError for an unknown arm."""
    layers = arm_layers(experiment, arm, seed)
    changed = (
        compose_recipe([Layer(experiment.name, "", recipe_to_plain(experiment)), *layers]) if layers else experiment
    )
    return cast(R, changed)


def check_arms(experiment: Recipe) -> None:
    """Raise ConfigError unless the study's arms are valid experiments that play as many matches as the first arm.

    Arms in `study.uneven` may play another number. Also checks that the section `evaluate` measures the study's metrics
    of evaluations and panels.
    """
    study = require_study(experiment)
    evaluate = find_last_experiment(experiment).evaluate
    figures = (study.figure, *study.also)
    games = len((evaluate and evaluate.games) or ())
    for name in figures:
        number = parse_evaluated_figure(name)[0]
        if name.startswith(EVALUATED) and not games:
            raise ConfigError(f"study: {name} needs a section `evaluate` with `games` (docs/experiments.md)")
        if name.startswith(EVALUATED) and not 1 <= number <= games:
            raise ConfigError(
                f"study: {name} names game {number} of `evaluate`, which has games 1 to {games} (docs/studies.md)"
            )
    panels = [name for name in figures if name.startswith(PANEL)]
    if panels and not (evaluate and evaluate.panel):
        raise ConfigError(f"study: {panels[0]} needs a section `evaluate` with a `panel` (docs/panels.md)")
    first = compute_budget(with_arm(experiment, study.arm))
    for arm in study.arms:
        other = compute_budget(with_arm(experiment, arm))
        if other != first and arm not in study.uneven:
            raise ConfigError(
                f"study.arms.{arm}: plays {_format_budget(other)} matches, {study.arm} {_format_budget(first)}: "
                f"give both the same, or name {arm} in `study.uneven`"
            )


Budget = tuple[tuple[int, int], ...]
"""Number of iterations, and of matches per iteration, of each experiment of a recipe."""


def compute_budget(recipe: Recipe) -> Budget:
    """Return the number of iterations, and of matches per iteration including branches, of each experiment."""
    return tuple((each.iterations, each.play.max_matches) for each in list_experiments(recipe))


def _format_budget(budget: Budget) -> str:
    return " + ".join(f"{iterations} × {matches}" for iterations, matches in budget)
