"""The verdict on a study, by the rule that it stated beforehand.

First whether the mechanism acted and whether the world can tell arms apart; only then whose figure is better.
"""

from collections.abc import Collection, Iterator, Mapping
from statistics import fmean
from typing import Literal, NamedTuple

from arena.config.study import GaugeSpec, RuleSpec, StudySpec
from arena.evaluate.study.inference import level_at, over_looks, sample_sizes, tails
from arena.evaluate.study.summary import Values, paired
from arena.statistics import Bounds, Interval

Word = Literal["holds", "not shown", "contradicted", "did not act", "world cannot tell", "not judged"]
Gauges = Mapping[str, Mapping[str, Mapping[int, float | None]]]
"""Of each gauge its mean over a run, by arm, then seed; None where no iteration of the run has it."""


class Verdict(NamedTuple):
    """Verdict of the numbers on a claim, by the rule stated beforehand."""

    verdict: Word
    because: str


class Decision(NamedTuple):
    """P-values of a study's comparisons."""

    better: float
    """P-value, two-sided, that the first arm is not better than all it is compared with by as much as is asked for."""
    worse: float
    """That it is not worse than any of them, corrected for how many they are (Bonferroni)."""

    @property
    def p(self) -> float:
        """Return the p-value of the decision that the numbers favour."""
        return min(self.better, self.worse)


def judged(spec: StudySpec, last: Values, bounds: Bounds, wanted: int, gauges: Gauges | None = None) -> Verdict:
    """The verdict by the rule, once every arm that it compares has all of `wanted` seeds: a run that failed may be no
    accident.
    """
    if why := _not_yet(spec, last, wanted, gauges or {}):
        return Verdict("not judged", why)
    if idle := next(_idle(spec, gauges or {}), None):
        return Verdict("did not act", idle)
    look = _look(spec, wanted)
    level = level_at(spec.verdict.interval, look, spec.looks)
    gains = {arm: gain(spec.verdict, paired(last, arm, spec.arm, bounds, level)) for arm in spec.verdict.better_than}
    if full := _full(spec, last, gains):
        return Verdict("world cannot tell", full)
    word, because = _word(spec.verdict, gains.values()), "; ".join(_text(spec, *item) for item in gains.items())
    if look < spec.looks:
        because = f"look {look} of {spec.looks}, intervals of {level:.2%}: {because}"
        if word == "not shown":
            following = sample_sizes(spec.seeds or wanted, spec.looks)[look]
            return Verdict("not judged", f"{because}; this look decides nothing: go on to {following} seeds")
    return Verdict(word, because)


def decision(spec: StudySpec, last: Values, bounds: Bounds, wanted: int) -> Decision:
    """P-values of the verdicts `holds` and `contradicted`, over all planned looks."""
    width, by, look = bounds[1] - bounds[0], spec.verdict.by, _look(spec, wanted)
    sign = -1.0 if spec.verdict.less_is_better else 1.0
    found = []
    for arm in spec.verdict.better_than:
        both = sorted(last[spec.arm].keys() & last[arm].keys())
        differences = [sign * (last[spec.arm][seed] - last[arm][seed]) for seed in both]
        found.append(tails(differences, (-width, width), by))
    better = min(1.0, 2.0 * max(one.above for one in found))
    worse = min(1.0, 2.0 * min(one.below for one in found) * len(found))
    return Decision(over_looks(better, look, spec.looks), over_looks(worse, look, spec.looks))


def gain(rule: RuleSpec, difference: Interval) -> Interval:
    """The margin by which the first arm is better."""
    estimate, low, high = difference
    return Interval(-estimate, -high, -low) if rule.less_is_better else difference


# -- whether there is something to judge -----------------------------------------------------------------------


def _not_yet(spec: StudySpec, last: Values, wanted: int, gauges: Gauges) -> str:
    """Why nothing can be judged yet; "" where it can."""
    if not spec.verdict.better_than:
        return "nothing is claimed: no arm is named that it has to be better than"
    if spec.seeds and wanted not in (sizes := sample_sizes(spec.seeds, spec.looks)):
        return f"the rule judges {' or '.join(map(str, sizes))} seeds, not {wanted}"
    unlike = [gauge.unlike for gauge in spec.gauges if gauge.unlike]
    for arm in dict.fromkeys((spec.arm, *spec.verdict.better_than, *unlike)):
        if (there := len(last.get(arm, ()))) < wanted:
            return f"{there} of {wanted} runs of {arm} are there"
    if wanted < 2:
        return "one seed has no interval: run two or more"
    return next(not_gauged(spec, gauges), "")


def not_gauged(spec: StudySpec, gauges: Gauges) -> Iterator[str]:
    """A line for each gauge that no run has."""
    for gauge in spec.gauges:
        runs = [value for seeds in gauges.get(gauge.figure, {}).values() for value in seeds.values()]
        if all(value is None for value in runs):
            yield f"no run has the gauge {gauge.figure}: its name is another, or the mechanism never began"


def _look(spec: StudySpec, wanted: int) -> int:
    """Return which of the planned looks this is, from 1."""
    return sample_sizes(spec.seeds, spec.looks).index(wanted) + 1 if spec.seeds else 1


def _idle(spec: StudySpec, gauges: Gauges) -> Iterator[str]:
    """A line for each gauge that stayed at nothing."""
    for gauge in spec.gauges:
        away, nothing = moved(spec, gauge, gauges)
        if not away > gauge.above:
            yield f"{gauge.figure} stayed within {away:.2g} of {nothing}, asked for: more than {gauge.above:g}"


def moved(spec: StudySpec, gauge: GaugeSpec, gauges: Gauges) -> tuple[float, str]:
    """Return how far a gauge is from nothing, its mean over seeds, and what nothing is."""
    own, nothing = gauges[gauge.figure].get(spec.arm, {}), gauge.nothing
    if gauge.unlike is None:
        return abs(fmean(0.0 if value is None else value - nothing for value in own.values())), f"{nothing:g}"
    other = gauges[gauge.figure].get(gauge.unlike, {})
    pairs = [(own[seed], other[seed]) for seed in own.keys() & other.keys()]
    known = [one - two for one, two in pairs if one is not None and two is not None]
    return abs(fmean(known)) if known else 0.0, f"that of {gauge.unlike}"


def _full(spec: StudySpec, last: Values, gains: Mapping[str, Interval]) -> str:
    """Why the world cannot tell the arms apart, which are all at the best there is, or end alike; "" where it can."""
    if spec.room is None or not spec.baselines:
        return ""
    if spec.room.best is None:
        wide = max(max(abs(gains[arm].low), abs(gains[arm].high)) for arm in spec.baselines)
        alike = f"{spec.arm} and {', '.join(spec.baselines)} end within {wide:.2g} of each other"
        return f"{alike}, with their whole intervals within {spec.room.within:g}" if wide < spec.room.within else ""
    means = {arm: fmean(last[arm].values()) for arm in (spec.arm, *spec.baselines)}
    if any(abs(mean - spec.room.best) > spec.room.within for mean in means.values()):
        return ""
    told = ", ".join(f"{arm} {mean:.3g}" for arm, mean in means.items())
    return f"all within {spec.room.within:g} of the best there is, {spec.room.best:g}: {told}"


# -- who is better ---------------------------------------------------------------------------------------------


def _word(rule: RuleSpec, gains: Collection[Interval]) -> Word:
    if all(one.low > rule.by for one in gains):
        return "holds"
    return "contradicted" if any(one.high < rule.by for one in gains) else "not shown"


def _text(spec: StudySpec, arm: str, gain: Interval) -> str:
    estimate, low, high = (f"{value + 0.0:+.3g}" for value in gain)
    return f"{spec.arm} better than {arm} by {estimate} [{low}, {high}], asked for: more than {spec.verdict.by:g}"
