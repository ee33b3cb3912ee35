"""Settings laid over all runs of a study: those of `--set`, and those of a rehearsal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from arena.config.arms import budget, study_of
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import Layer, set_layer

REHEARSED = 2
"""Iterations of each run of a rehearsal."""


def with_settings(base: Layer, settings: Sequence[str]) -> Experiment:
    """A source of settings with `--set` laid over every run of its study, and so over what `each` says of the same."""
    experiment = compose([base, *map(set_layer, settings)])
    if (spec := experiment.study) is None or not settings:
        return experiment
    changed: dict[str, object] = {"each": unset(spec.each, settings)}
    if budget(experiment) != budget(compose([base])):
        changed["minutes"] = None  # they are of other runs than these
    return experiment.model_copy(update={"study": spec.model_copy(update=changed)})


def kept_by_arms(experiment: Experiment, settings: Sequence[str]) -> list[str]:
    """A line for each setting that an arm has of its own, which makes it the arm that it is."""
    return [
        f"--set {setting}: arm {arm} keeps its own {own}"
        for arm, owned in study_of(experiment).arms.items()
        for own in owned
        for setting in settings
        if clash(own, setting)
    ]


def unset(each: Iterable[str], settings: Sequence[str]) -> list[str]:
    """Settings of every run without those that others replace."""
    return [own for own in each if not any(clash(own, setting) for setting in settings)]


def rehearsal(experiment: Experiment) -> Experiment:
    """The same with two iterations of each arm, on a seed that is not judged, and nothing claimed."""
    spec = study_of(experiment)
    arms = {arm: [*settings, f"iterations={REHEARSED}"] for arm, settings in spec.arms.items()}
    rule = spec.verdict.model_copy(update={"better_than": []})
    sample: dict[str, object] = {
        "first_seed": spec.seed_for_tuning(1),
        "seeds": None,
        "tuned_on": [],
        "looks": 1,
    }
    changed = {"arms": arms, "verdict": rule, **sample, "last": 1, "minutes": None}
    return experiment.model_copy(update={"iterations": REHEARSED, "study": spec.model_copy(update=changed)})


def clash(one: str, other: str) -> bool:
    """Return True if two settings are of the same key, or one's key lies inside of the other's."""
    keys = sorted(f"{text.partition('=')[0].strip()}." for text in (one, other))
    return keys[1].startswith(keys[0])
