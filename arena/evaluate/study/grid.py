"""The grid of a sweep: values to try of each key, as the arms of an experiment that claims nothing.

Each arm of a study may try the same values, so that a baseline gets as much tuning as the mechanism.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from arena.config.arms import budget, study_of, with_arm
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import Layer, set_layer
from arena.config.study import TUNING, RuleSpec, StudySpec
from arena.errors import ConfigError
from arena.evaluate.study.overrides import clash, unset

BASE = "recipe"
"""What a sweep calls the recipe itself, which it does not run."""
RESERVED = {"seed": "--seeds and --first-seed say which seeds", "name": "--out names the folder"}
"""Keys that differ from run to run by themselves."""
AFTER_IMITATION = ("credit.", "evaluate", "iterations", "learn.loss", "learn.lr", "learn.regularisers")
"""How keys begin that change nothing of how a policy imitates."""
Axes = Mapping[str, Sequence[str]]
"""Values to try of each key, as they are written."""


class Point(NamedTuple):
    """One setting of a sweep."""

    arm: str
    """The arm that tries it; "" for the recipe itself where arms are not told apart."""
    settings: list[str]
    """As `--set` takes them."""


def axes(settings: Sequence[str]) -> dict[str, list[str]]:
    """The values to try of each key, from `a.b=1,2` once for each; ConfigError for what is no grid."""
    found: dict[str, list[str]] = {}
    for setting in settings:
        key, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not key:
            raise ConfigError(f"--set {setting}: write it as a.b=value,value, such as --set learn.lr=1e-4,3e-4")
        if (why := RESERVED.get(key)) or key.split(".")[0] == "study":
            raise ConfigError(f"--set {key}: no setting to sweep: {why or 'a sweep has no arms and no rule'}")
        for other in found:
            if clash(other, key):
                raise ConfigError(f"--set {key}: {other} is swept, too: give all values of one key in one --set")
        found[key] = values(text)
        _check_distinct(key, found[key])
    return found


def _check_distinct(key: str, values: Sequence[str]) -> None:
    """ConfigError for a value that is there twice, however it is written."""
    known = set[Hashable]()
    for value in values:
        if (read := _hashable(set_layer(f"{key}={value}").data)) in known:
            raise ConfigError(f"--set {key}: {value} is there twice")
        known.add(read)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return frozenset((name, _hashable(inner)) for name, inner in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def values(text: str) -> list[str]:
    """The text at its commas, but for those inside of brackets and quotes."""
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


def size(axes: Axes) -> int:
    """Return the number of settings in a grid, however many: they are not made."""
    return prod(len(values) for values in axes.values())


def grid(axes: Axes, arms: Sequence[str] = ("",)) -> dict[str, Point]:
    """Every combination for each arm, by a name of its own; the last key changes fastest."""
    combinations = product(arms, *axes.values())
    return {
        f"setting-{n}": Point(arm, [f"{key}={value}" for key, value in zip(axes, values, strict=True)])
        for n, (arm, *values) in enumerate(combinations, start=1)
    }


def declared(base: Layer) -> dict[str, list[str]]:
    """The grid that a recipe's study states; nothing where there is none, ConfigError for one that is none."""
    study = compose([base]).study
    try:
        return axes(study.grid if study else [])
    except ConfigError as error:
        raise ConfigError(f"study.grid: {str(error).removeprefix('--set ')}") from None


def swept(
    base: Layer,
    points: Mapping[str, Point],
    seeds: int,
    figure: str = "",
    lowest: bool = False,
    first_seed: int | None = None,
) -> Experiment:
    """An experiment whose arms are the settings of a grid, and which claims nothing.

    Figure, how often it is averaged, and its direction are the recipe's where it has a study; ConfigError, naming the
    setting, for one that is none, or that an arm has of its own.
    """
    experiment = compose([base])
    whole = {name: compose([base, *map(set_layer, point.settings)]) for name, point in points.items()}
    known = experiment.study
    tried = [setting for point in points.values() for setting in point.settings]
    same = known is not None and figure in ("", known.figure)
    spec: dict[str, Any] = {
        "replicates": known.replicates if known else "nothing",
        "claim": "none: settings are tried out",
        "published": "nothing",
        "family": known.family if known else experiment.all_tables()[0].game.name,
        "minutes": known.minutes if known else None,
        "figure": figure or (known.figure if known else "mean_payoff"),
        "last": known.last if known else max(1, experiment.iterations // 4),
        "arm": BASE,
        "arms": {name: [*_own(known, point), *point.settings] for name, point in points.items()},
        "each": unset(known.each, tried) if known else [],
        "warm": _beginning_alike(known, points, whole),
    }
    less = lowest or bool(same and known and known.verdict.less_is_better)
    rule = RuleSpec(better_than=[], less_is_better=less)
    usual = known.seed_for_tuning(seeds) if known else TUNING
    first = usual if first_seed is None else first_seed
    _check_unjudged(known, range(first, first + seeds))
    study = StudySpec(**spec, verdict=rule, first_seed=first)
    return _levelled(experiment.model_copy(update={"study": study}))


def _beginning_alike(
    known: StudySpec | None, points: Mapping[str, Point], whole: Mapping[str, Experiment]
) -> list[str]:
    """Settings that one imitation a seed will do for: where what they differ in changes nothing of it."""
    tried: dict[str, set[str]] = {}
    for point in points.values():
        for key, _, value in (setting.partition("=") for setting in point.settings):
            tried.setdefault(key, set()).add(value)
    if any(len(values) > 1 and not key.startswith(AFTER_IMITATION) for key, values in tried.items()):
        return []
    warm = ("", *((known.arm, *known.warm) if known else ()))
    imitating = [name for name, one in whole.items() if any(of.train and of.imitate for of in one.policies.values())]
    return [name for name in imitating if points[name].arm in warm]


def _own(known: StudySpec | None, point: Point) -> list[str]:
    """The settings that make the point's arm what it is; ConfigError where one of the sweep would change them."""
    own = known.arms.get(point.arm, []) if known else []
    for kept, setting in product(own, point.settings):
        if clash(kept, setting):
            key = setting.partition("=")[0]
            raise ConfigError(f"--set {key}: arm {point.arm} keeps its own {kept}: leave one of them out")
    return own


def _check_unjudged(known: StudySpec | None, seeds: range) -> None:
    """ConfigError where a recipe's rule holds its sample, and settings would be tried out on seeds of it."""
    judged = known.judged(known.seeds) if known and known.seeds else range(0)
    if both := range(max(seeds[0], judged.start), min(seeds[-1] + 1, judged.stop)):
        raise ConfigError(f"--first-seed: seed {both[0]} is one that the recipe's study judges: choose another")


def _levelled(experiment: Experiment) -> Experiment:
    """The same where some settings play more than others, as a sweep may be of just that: their minutes are unknown."""
    spec = study_of(experiment)
    if {budget(with_arm(experiment, arm)) for arm in spec.arms} == {budget(experiment)}:
        return experiment
    changed = {"uneven": list(spec.arms), "minutes": None}
    return experiment.model_copy(update={"study": spec.model_copy(update=changed)})
