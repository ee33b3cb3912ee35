"""Verdict on a study's claim, by the rule that its recipe stated beforehand.

The rule first checks if the mechanism acted and if the world can tell arms apart, and only then which arm is better.
"""

from collections.abc import Collection, Iterator, Mapping
from statistics import fmean
from typing import Literal, NamedTuple

from arena.config.study import GaugeSpec, RuleSpec, StudySpec
from arena.evaluate.study.inference import compute_tails
from arena.evaluate.study.summary import Values, compare_paired
from arena.statistics import Bounds, Interval

VerdictName = Literal["holds", "not shown", "contradicted", "did not act", "world cannot tell", "not judged"]
Gauges = Mapping[str, Mapping[str, Mapping[int, float | None]]]
"""Mean of each gauge over a run, by gauge, arm and seed; None if no iteration of the run has it."""


class Verdict(NamedTuple):
    """Verdict on a study's claim (`verdict`, one of six phrases) with its reason."""

    verdict: VerdictName
    because: str


class Decision(NamedTuple):
    """P-values of the two verdicts that a study's comparisons can reach."""

    better: float
    """Two-sided p-value of the verdict `holds`, that the study's own arm is better than every compared arm by more than
    the required difference."""
    worse: float
    """P-value of the verdict `contradicted`, with Bonferroni's correction for the number of compared arms."""

    @property
    def p(self) -> float:
        """P-value of the verdict that the numbers favour: the smaller of the two."""
        return min(self.better, self.worse)


def judge(spec: StudySpec, last: Values, bounds: Bounds, seeds: int, gauges: Gauges | None = None) -> Verdict:
    """Return the verdict on the final values of all runs, by the rule of the study's recipe.

    It is `not judged` until every compared arm has all of its `seeds`, because a failed run may be no accident. The
    checks before the comparison can end in `did not act` or `world cannot tell`.
    """
    if reason := _find_missing(spec, last, seeds, gauges or {}):
        return Verdict("not judged", reason)
    if idle := next(_list_idle_gauges(spec, gauges or {}), None):
        return Verdict("did not act", idle)
    gains = {
        arm: gain(spec.verdict, compare_paired(last, arm, spec.arm, bounds, spec.verdict.interval))
        for arm in spec.verdict.better_than
    }
    if reason := _find_ceiling(spec, last, gains):
        return Verdict("world cannot tell", reason)
    return Verdict(_decide(spec.verdict, gains.values()), "; ".join(_describe(spec, *item) for item in gains.items()))


def decide(spec: StudySpec, last: Values, bounds: Bounds) -> Decision:
    """Return the p-values of the verdicts `holds` and `contradicted` on the runs' final values."""
    width, sign = bounds[1] - bounds[0], -1.0 if spec.verdict.less_is_better else 1.0
    tails = []
    for arm in spec.verdict.better_than:
        both = sorted(last[spec.arm].keys() & last[arm].keys())
        differences = [sign * (last[spec.arm][seed] - last[arm][seed]) for seed in both]
        tails.append(compute_tails(differences, (-width, width), spec.verdict.by))
    better = min(1.0, 2.0 * max(one.above for one in tails))
    worse = min(1.0, 2.0 * min(one.below for one in tails) * len(tails))
    return Decision(better, worse)


def gain(rule: RuleSpec, difference: Interval) -> Interval:
    """Return the difference as a gain: with its sign changed if less is better, so that positive means better."""
    estimate, low, high = difference
    return Interval(-estimate, -high, -low) if rule.less_is_better else difference


# -- checks before the comparison --------------------------------------------------------------------------------


def _find_missing(spec: StudySpec, last: Values, seeds: int, gauges: Gauges) -> str:
    """Return the reason why the study cannot be judged yet; "" if it can."""
    if not spec.verdict.better_than:
        return "the rule claims nothing: it names no arm to be better than"
    if spec.seeds and seeds != spec.seeds:
        return f"the rule judges {spec.seeds} seeds, not {seeds}"
    reference_arms = [gauge.unlike for gauge in spec.gauges if gauge.unlike]
    for arm in dict.fromkeys((spec.arm, *spec.verdict.better_than, *reference_arms)):
        if (finished := len(last.get(arm, ()))) < seeds:
            return f"{finished} of {seeds} runs of {arm} are finished"
    if seeds < 2:
        return "one seed has no interval: run two or more"
    return next(list_missing_gauges(spec, gauges), "")


def list_missing_gauges(spec: StudySpec, gauges: Gauges) -> Iterator[str]:
    """Yield a message for each gauge (metric that shows if the mechanism acted) that no run has."""
    for gauge in spec.gauges:
        runs = [value for seeds in gauges.get(gauge.figure, {}).values() for value in seeds.values()]
        if all(value is None for value in runs):
            yield f"no run has the gauge {gauge.figure}: its name is another, or the mechanism never began"


def _list_idle_gauges(spec: StudySpec, gauges: Gauges) -> Iterator[str]:
    for gauge in spec.gauges:
        distance, reference = measure_gauge(spec, gauge, gauges)
        if not distance > gauge.above:
            yield f"{gauge.figure} stayed within {distance:.2g} of {reference}, asked for: more than {gauge.above:g}"


def measure_gauge(spec: StudySpec, gauge: GaugeSpec, gauges: Gauges) -> tuple[float, str]:
    """Return a gauge's mean distance over seeds from its idle value (see `GaugeSpec`), and that value as text.

    The idle value is a number, or the gauge's value in another arm with the same seeds.
    """
    own, idle = gauges[gauge.figure].get(spec.arm, {}), gauge.nothing
    if gauge.unlike is None:
        return abs(fmean(0.0 if value is None else value - idle for value in own.values())), f"{idle:g}"
    other = gauges[gauge.figure].get(gauge.unlike, {})
    pairs = [(own[seed], other[seed]) for seed in own.keys() & other.keys()]
    known = [one - two for one, two in pairs if one is not None and two is not None]
    return abs(fmean(known)) if known else 0.0, f"that of {gauge.unlike}"


def _find_ceiling(spec: StudySpec, last: Values, gains: Mapping[str, Interval]) -> str:
    """Return why the world cannot tell the learning arms apart: all are as good as possible, or alike; "" if it can."""
    if spec.room is None or not spec.baselines:
        return ""
    if spec.room.best is None:
        wide = max(max(abs(gains[arm].low), abs(gains[arm].high)) for arm in spec.baselines)
        alike = f"{spec.arm} and {', '.join(spec.baselines)} end within {wide:.2g} of each other"
        return f"{alike}, with their whole intervals within {spec.room.within:g}" if wide < spec.room.within else ""
    means = {arm: fmean(last[arm].values()) for arm in (spec.arm, *spec.baselines)}
    if any(abs(mean - spec.room.best) > spec.room.within for mean in means.values()):
        return ""
    listed = ", ".join(f"{arm} {mean:.3g}" for arm, mean in means.items())
    return f"all within {spec.room.within:g} of the best there is, {spec.room.best:g}: {listed}"


# -- the comparison ----------------------------------------------------------------------------------------------


def _decide(rule: RuleSpec, gains: Collection[Interval]) -> VerdictName:
    if all(one.low > rule.by for one in gains):
        return "holds"
    return "contradicted" if any(one.high < rule.by for one in gains) else "not shown"


def _describe(spec: StudySpec, arm: str, gain: Interval) -> str:
    estimate, low, high = (f"{value + 0.0:+.3g}" for value in gain)
    return f"{spec.arm} better than {arm} by {estimate} [{low}, {high}], asked for: more than {spec.verdict.by:g}"
