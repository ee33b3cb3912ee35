"""Verdicts of many studies at once, corrected for how many they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import stdev

from arena.config.study import StudySpec
from arena.errors import ConfigError
from arena.evaluate.study.inference import benjamini_hochberg, holm, smallest_difference
from arena.evaluate.study.results import Results
from arena.evaluate.study.summary import paired
from arena.evaluate.study.verdicts import Decision, Word, decision, gain
from arena.statistics import Interval

ALPHA = 0.05
"""Chance that any verdict of the family, holds or contradicted, is wrong."""
POWER = 0.8


@dataclass(frozen=True)
class Row:
    """One study as a member of its family."""

    results: Results
    decision: Decision
    holm: float
    """P-value corrected by Holm's method over the family."""
    bh: float
    """And by Benjamini and Hochberg's."""
    verdict: Word
    """The study's own verdict where that survives Holm's correction; not shown where it does not."""
    arm: str
    """The compared arm whose difference decides."""
    effect: Interval
    """That difference, positive where the study's own arm is better."""
    visible: float
    """The smallest difference from it that these seeds show after the correction with chance `POWER`."""


def family(found: Sequence[Results], alpha: float = ALPHA) -> list[Row]:
    """Return the studies as a family; all that have runs of their comparisons count, also those that did not act.

    So that its size is known beforehand. Holm's correction needs no independence; ValueError for a study that is not
    judged, which has no p-value.
    """
    if lacking := [of.name for of in found if of.verdict.verdict == "not judged"]:
        raise ValueError(f"{lacking[0]} is not judged: a family is of studies that are whole")
    decisions = [decision(of.spec, of.ends.last, of.ends.bounds, of.seeds) for of in found]
    corrected, shared = (rule([one.p for one in decisions]) for rule in (holm, benjamini_hochberg))
    level = 1.0 - alpha / max(1, len(found))
    return [
        Row(of, one, p, q, surviving(of.verdict.verdict, p, alpha), *narrowest(of), visible(of, of.seeds, level))
        for of, one, p, q in zip(found, decisions, corrected, shared, strict=True)
    ]


def surviving(verdict: Word, p: float, alpha: float = ALPHA) -> Word:
    """A study's verdict after the correction: what is not significant any more was not shown."""
    return "not shown" if verdict in ("holds", "contradicted") and p > alpha else verdict


def narrowest(of: Results) -> tuple[str, Interval]:
    """The compared arm whose difference decides, and that difference, positive where the study's own arm is better."""
    rule, ends = of.spec.verdict, of.ends
    differences = {
        arm: gain(rule, paired(ends.last, arm, of.spec.arm, ends.bounds, rule.interval)) for arm in rule.better_than
    }
    return min(differences.items(), key=lambda item: item[1].low)


def visible(of: Results, seeds: int, level: float) -> float:
    """The smallest difference that so many seeds would show with chance `POWER`, by the spread of those that are there.

    Of several baselines the largest of these, as all of them have to be beaten; controls that learn nothing count where
    there are no others.
    """
    found = spreads(of, of.spec.baselines or of.spec.verdict.better_than)
    return smallest_difference(max(found.values()), seeds, level, POWER)


def spreads(of: Results, arms: Sequence[str]) -> dict[str, float]:
    """The deviation of the differences by seed between the study's own arm and each of these."""
    last, own = of.ends.last, of.spec.arm
    return {
        arm: stdev([last[own][seed] - last[arm][seed] for seed in last[own].keys() & last[arm].keys()]) for arm in arms
    }


def foreseen(pilot: Results, spec: StudySpec, seeds: int) -> dict[str, float]:
    """The smallest differences that a study of so many seeds would show with chance `POWER`, by compared arm.

    From a pilot: a study of the same figure and arms on other seeds. ConfigError for what is none.
    """
    arms = [arm for arm in spec.verdict.better_than if len(pilot.curves.get(arm, ())) > 1]
    own = pilot.curves.get(spec.arm, {})
    if not arms or len(own) < 2 or pilot.spec.figure != spec.figure:
        raise ConfigError(f"--pilot: no study of {spec.figure} with runs of {spec.arm} and what it has to beat")
    if both := sorted(own.keys() & {*range(spec.first_seed, spec.first_seed + seeds)}):
        raise ConfigError(f"--pilot: seed {both[0]} is one that this study judges: a pilot is of other seeds")
    alike = replace(pilot, spec=spec, seeds=len(own))
    return {
        arm: smallest_difference(deviation, seeds, spec.verdict.interval, POWER)
        for arm, deviation in spreads(alike, arms).items()
    }
