"""Overrides: `--set` settings of `arena study`, applied to all runs of a study."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from arena.config.arms import compute_budget, require_study
from arena.config.recipe import Recipe, compose_recipe, with_study
from arena.config.sources import Layer, set_layer


def with_settings(base: Layer, settings: Sequence[str]) -> Recipe:
    """Return the recipe with `--set` settings applied to every run of its study. They replace `each` for their keys."""
    experiment = compose_recipe([base, *map(set_layer, settings)])
    if (spec := experiment.study) is None or not settings:
        return experiment
    changed: dict[str, object] = {"each": without_overridden(spec.each, settings)}
    if compute_budget(experiment) != compute_budget(compose_recipe([base])):
        changed["minutes"] = None  # the recipe's estimate holds for another budget
    return with_study(experiment, spec.model_copy(update=changed))


def list_kept_by_arms(experiment: Recipe, settings: Sequence[str]) -> list[str]:
    """Return a message for each setting that has no effect on an arm, because the arm sets the same key itself."""
    return [
        f"--set {setting}: arm {arm} keeps its own {arm_setting}"
        for arm, arm_settings in require_study(experiment).arms.items()
        for arm_setting in arm_settings
        for setting in settings
        if clashes_with(arm_setting, setting)
    ]


def without_overridden(each: Iterable[str], settings: Sequence[str]) -> list[str]:
    """Return the settings of `each` that `settings` do not replace."""
    return [own for own in each if not any(clashes_with(own, setting) for setting in settings)]


def clashes_with(one: str, other: str) -> bool:
    """Return True if two settings `A.B=C` have the same key, or one's key lies inside the other's."""
    keys = sorted(f"{text.partition('=')[0].strip()}." for text in (one, other))
    return keys[1].startswith(keys[0])
