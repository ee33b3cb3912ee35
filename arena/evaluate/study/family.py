"""Verdicts of several studies, corrected for their number, and the power of a planned study."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import stdev

from arena.config.study import StudySpec
from arena.errors import ConfigError
from arena.evaluate.study.inference import benjamini_hochberg, holm, smallest_difference
from arena.evaluate.study.results import Results
from arena.evaluate.study.summary import compare_paired
from arena.evaluate.study.verdicts import Decision, VerdictName, decide, gain
from arena.statistics import Interval

ALPHA = 0.05
"""Maximum chance that any verdict `holds` or `contradicted` of the family is wrong."""
POWER = 0.8
"""Chance of detection at which the smallest detectable difference is stated."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Study of a family, with its verdict and p-values corrected for the number of studies."""

    results: Results
    decision: Decision
    holm: float
    """P-value after Holm's correction over the family."""
    bh: float
    """P-value after Benjamini and Hochberg's correction."""
    verdict: VerdictName
    """The study's verdict after Holm's correction; `not shown` if it is no longer significant."""
    arm: str
    """The compared arm with the smallest gain, which decides the verdict."""
    effect: Interval
    """Gain over that arm, positive if the study's own arm is better."""
    detectable: float
    """Smallest difference that the study's seeds detect with chance `POWER` after the correction."""


def correct_family(studies: Sequence[Results], alpha: float = ALPHA) -> list[Row]:
    """Correct the verdicts of several studies for their number, and return a row per study.

    `alpha` is the maximum chance of any wrong verdict. Studies that `did not act` count, too, so that the family's size
    is known beforehand. Holm's correction needs no independence. Raises ValueError for a study that is `not judged`,
    because it has no p-value.
    """
    if missing := [study.name for study in studies if study.verdict.verdict == "not judged"]:
        raise ValueError(f"{missing[0]} is not judged: only complete studies can be corrected as a family")
    decisions = [decide(study.spec, study.ends.last, study.ends.bounds) for study in studies]
    by_holm, by_bh = (rule([one.p for one in decisions]) for rule in (holm, benjamini_hochberg))
    level = 1.0 - alpha / max(1, len(studies))
    rows = []
    for study, decision, p, q in zip(studies, decisions, by_holm, by_bh, strict=True):
        verdict = correct_verdict(study.verdict.verdict, p, alpha)
        arm, effect = find_smallest_gain(study)
        detectable = detectable_difference(study, level)
        rows.append(
            Row(
                results=study, decision=decision, holm=p, bh=q,
                verdict=verdict, arm=arm, effect=effect, detectable=detectable,
            )
        )  # fmt: skip
    return rows


def correct_verdict(verdict: VerdictName, p: float, alpha: float = ALPHA) -> VerdictName:
    """Return the verdict, or `not shown` in place of `holds` or `contradicted` if the corrected p exceeds alpha."""
    return "not shown" if verdict in ("holds", "contradicted") and p > alpha else verdict


def find_smallest_gain(study: Results) -> tuple[str, Interval]:
    """Return the compared arm over which the study's own arm has the smallest gain, and that gain.

    Gains are ordered by the lower ends of their intervals. A positive gain means that the study's own arm is better.
    """
    rule, ends = study.spec.verdict, study.ends
    gains = {
        arm: gain(rule, compare_paired(ends.last, arm, study.spec.arm, ends.bounds, rule.interval))
        for arm in rule.better_than
    }
    return min(gains.items(), key=lambda item: item[1].low)


def detectable_difference(study: Results, level: float) -> float:
    """Return the smallest difference that the study's seeds detect with chance `POWER`, at this confidence level.

    It is the largest over all compared arms, because the study's own arm has to beat all of them. Controls that learn
    nothing count only if there are no other arms.
    """
    deviations = deviations_by_arm(study, study.spec.baselines or study.spec.verdict.better_than)
    return smallest_difference(max(deviations.values()), study.seeds, level, POWER)


def deviations_by_arm(study: Results, arms: Sequence[str]) -> dict[str, float]:
    """Return the standard deviation of each arm's seed-paired differences to the study's own arm."""
    last, own = study.ends.last, study.spec.arm
    return {
        arm: stdev([last[own][seed] - last[arm][seed] for seed in last[own].keys() & last[arm].keys()]) for arm in arms
    }


def predict_detectable(pilot: Results, spec: StudySpec, seeds: int) -> dict[str, float]:
    """Return the smallest difference that a planned study would detect with chance `POWER`, by compared arm.

    `pilot` is a study with the same figure and arms on other seeds. Raises ConfigError for any other pilot.
    """
    arms = [arm for arm in spec.verdict.better_than if len(pilot.curves.get(arm, ())) > 1]
    own = pilot.curves.get(spec.arm, {})
    if not arms or len(own) < 2 or pilot.spec.figure != spec.figure:
        raise ConfigError(f"--pilot: no study of {spec.figure} with runs of {spec.arm} and of arms that it has to beat")
    if both := sorted(own.keys() & {*range(spec.first_seed, spec.first_seed + seeds)}):
        raise ConfigError(f"--pilot: this study judges seed {both[0]}, too: a pilot needs other seeds")
    return {
        arm: smallest_difference(deviation, seeds, spec.verdict.interval, POWER)
        for arm, deviation in deviations_by_arm(replace(pilot, spec=spec), arms).items()
    }
