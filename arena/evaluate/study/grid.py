"""Grid of a sweep: every combination of the keys' values is one arm of an experiment without a claim.

Each arm of a study can try the same values, so that a baseline gets as much tuning as the mechanism.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from arena.config.arms import compute_budget, require_study, with_arm
from arena.config.experiment import Experiment
from arena.config.recipe import Recipe, compose_recipe, find_last_experiment, with_study
from arena.config.sources import Layer, set_layer
from arena.config.study import TUNING, RuleSpec, StudySpec
from arena.errors import ConfigError
from arena.evaluate.study.overrides import clashes_with, without_overridden

BASE = "recipe"
"""Arm name of the recipe itself, which a sweep does not run."""
RESERVED = {"seed": "--seeds and --first-seed say which seeds", "name": "--out names the folder"}
"""Keys that always differ between runs, with the option that sets them."""
AFTER_IMITATION = ("credit.", "evaluate", "iterations", "learn.loss", "learn.lr", "learn.regularisers")
"""Prefixes of keys that do not affect imitation."""
Axes = Mapping[str, Sequence[str]]
"""Values to try, as text, by key."""


class Point(NamedTuple):
    """Combination of values that a sweep tries, for one arm of a study or for the recipe itself."""

    arm: str
    """Arm that tries the setting; "" for the recipe itself."""
    settings: list[str]
    """Settings as `--set` takes them."""


def read_axes(settings: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each key from texts such as `a.b=1,2`.

    Raises ConfigError for a malformed text, a key that cannot be swept, or a repeated key or value.
    """
    found: dict[str, list[str]] = {}
    for setting in settings:
        key, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not key:
            raise ConfigError(f"--set {setting}: write it as a.b=value,value, such as --set learn.lr=1e-4,3e-4")
        if (reason := RESERVED.get(key)) or key.split(".")[0] == "study":
            raise ConfigError(f"--set {key}: not a setting to sweep: {reason or 'a sweep has no arms and no rule'}")
        for other in found:
            if clashes_with(other, key):
                raise ConfigError(f"--set {key}: {other} is swept, too: give all values of one key in one --set")
        found[key] = split_values(text)
        _check_distinct(key, found[key])
    return found


def _check_distinct(key: str, values: Sequence[str]) -> None:
    """Raise ConfigError for a value that occurs twice, even if it is written differently (1e-4, 0.0001)."""
    known = set[Hashable]()
    for value in values:
        if (parsed := _hashable(set_layer(f"{key}={value}").data)) in known:
            raise ConfigError(f"--set {key}: {value} is given twice")
        known.add(parsed)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return frozenset((name, _hashable(inner)) for name, inner in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def split_values(text: str) -> list[str]:
    """Split the text at its commas, except those inside brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
        if char == "," and not quote and depth <= 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def count_settings(axes: Axes) -> int:
    """Return the number of combinations in the grid, without building them."""
    return prod(len(values) for values in axes.values())


def build_grid(axes: Axes, arms: Sequence[str] = ("",)) -> dict[str, Point]:
    """Return all combinations of the keys' values for each arm, by name (setting-1, …). The last key varies fastest."""
    combinations = product(arms, *axes.values())
    return {
        f"setting-{n}": Point(arm, [f"{key}={value}" for key, value in zip(axes, values, strict=True)])
        for n, (arm, *values) in enumerate(combinations, start=1)
    }


def read_recipe_axes(base: Layer) -> dict[str, list[str]]:
    """Return the values of each key in the grid of the recipe's study; {} without one.

    Raises ConfigError for an invalid grid.
    """
    study = compose_recipe([base]).study
    try:
        return read_axes(study.grid if study else [])
    except ConfigError as error:
        raise ConfigError(f"study.grid: {str(error).removeprefix('--set ')}") from None


def make_sweep(
    base: Layer,
    points: Mapping[str, Point],
    seeds: int,
    figure: str = "",
    lowest: bool = False,
    first_seed: int | None = None,
) -> Recipe:
    """Return a recipe whose arms are the points of a grid, without a claim.

    `figure`, `lowest` (less is better) and `first_seed` override those of the recipe's study, if it has one. The number
    of averaged iterations is that of this study. Raises ConfigError for an invalid setting, for one that an arm sets
    itself, and for seeds that the recipe's rule judges.
    """
    recipe = compose_recipe([base])
    composed = {name: compose_recipe([base, *map(set_layer, point.settings)]) for name, point in points.items()}
    known, last_experiment = recipe.study, find_last_experiment(recipe)
    settings = [setting for point in points.values() for setting in point.settings]
    has_study_figure = known is not None and figure in ("", known.figure)
    spec: dict[str, Any] = {
        "replicates": known.replicates if known else "nothing",
        "claim": "none: settings are tried out",
        "published": "nothing",
        "family": known.family if known else next((table.game.name for table in last_experiment.all_tables()), "data"),
        "minutes": known.minutes if known else None,
        "figure": figure or (known.figure if known else "mean_payoff"),
        "last": known.last if known else max(1, last_experiment.iterations // 4),
        "arm": BASE,
        "arms": {name: [*_list_arm_settings(known, point), *point.settings] for name, point in points.items()},
        "each": without_overridden(known.each, settings) if known else [],
        "warm": _list_warm(known, points, composed),
    }
    less_is_better = lowest or bool(has_study_figure and known and known.verdict.less_is_better)
    rule = RuleSpec(better_than=[], less_is_better=less_is_better)
    default_seed = known.first_tuning_seed(seeds) if known else TUNING
    first = default_seed if first_seed is None else first_seed
    _check_unjudged(known, range(first, first + seeds))
    study = StudySpec(**spec, verdict=rule, first_seed=first)
    return _mark_uneven(with_study(recipe, study))


def _list_warm(known: StudySpec | None, points: Mapping[str, Point], composed: Mapping[str, Recipe]) -> list[str]:
    """Return the names of points that can share one imitation per seed.

    Returns [] if a swept key affects imitation, and for pipelines.
    """
    values_by_key: dict[str, set[str]] = {}
    for point in points.values():
        for key, _, value in (setting.partition("=") for setting in point.settings):
            values_by_key.setdefault(key, set()).add(value)
    if any(len(values) > 1 and not key.startswith(AFTER_IMITATION) for key, values in values_by_key.items()):
        return []
    warm = ("", *((known.arm, *known.warm) if known else ()))
    return [
        name
        for name, one in composed.items()
        if isinstance(one, Experiment)
        and any(policy.train and policy.imitate for policy in one.policies.values())
        and points[name].arm in warm
    ]


def _list_arm_settings(known: StudySpec | None, point: Point) -> list[str]:
    """Return the settings of the study's arm for which the point is tried.

    Raises ConfigError if the sweep would change one of them.
    """
    arm_settings = known.arms.get(point.arm, []) if known else []
    for arm_setting, setting in product(arm_settings, point.settings):
        if clashes_with(arm_setting, setting):
            key = setting.partition("=")[0]
            raise ConfigError(f"--set {key}: arm {point.arm} keeps its own {arm_setting}: leave one of them out")
    return arm_settings


def _check_unjudged(known: StudySpec | None, seeds: range) -> None:
    """Raise ConfigError if the sweep would use seeds on which the recipe's study is judged."""
    test_seeds = known.select_test_seeds(known.seeds) if known and known.seeds else range(0)
    if both := range(max(seeds[0], test_seeds.start), min(seeds[-1] + 1, test_seeds.stop)):
        raise ConfigError(f"--first-seed: the recipe's study judges seed {both[0]}: choose another")


def _mark_uneven(experiment: Recipe) -> Recipe:
    """Return the sweep, marked as `uneven` and of unknown duration if an arm has another number of matches."""
    spec = require_study(experiment)
    if {compute_budget(with_arm(experiment, arm)) for arm in spec.arms} == {compute_budget(experiment)}:
        return experiment
    changed = {"uneven": list(spec.arms), "minutes": None}
    return with_study(experiment, spec.model_copy(update=changed))
