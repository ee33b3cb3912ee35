"""A study's results: read from its runs, written as study.json, and judged again from there."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena.config.arms import budget, study_of, with_arm
from arena.config.kept import as_plain
from arena.config.study import StudySpec
from arena.evaluate.study.plan import Plan, Run
from arena.evaluate.study.record import RESULT, KeptRun, read_record
from arena.evaluate.study.runs import is_done
from arena.evaluate.study.summary import ArmSummary, Curve, Ends, Verdict, figure_in, judged
from arena.plain import plain
from arena.store.contents import METRICS
from arena.store.files import write_atomic
from arena.store.reader import read_metrics


@dataclass(frozen=True)
class Results:
    """All that a study has shown so far."""

    name: str
    """Of the recipe."""
    spec: StudySpec
    seeds: int
    curves: Mapping[str, Mapping[int, Curve]]
    """By arm, then seed: the figure, iteration by iteration; of whole runs only."""

    @property
    def ends(self) -> Ends:
        """Where the runs begin and end."""
        return Ends(self.curves, self.spec.figure, self.spec.last)

    @property
    def arms(self) -> list[ArmSummary]:
        """The arms that have runs, the first one first."""
        ends = self.ends
        return [ends.summary(arm, self.spec.arm) for arm, seeds in self.curves.items() if seeds]

    @property
    def verdict(self) -> Verdict:
        """By the rule that the recipe states."""
        ends = self.ends
        return judged(self.spec, ends.last, ends.bounds, self.seeds)


def collected(plan: Plan) -> Results:
    """What the whole runs of a plan have shown."""
    curves: dict[str, dict[int, Curve]] = {arm: {} for arm in plan.arms}
    for run in plan.runs:
        if (run.arm, run.seed) in plan.kept:
            curves[run.arm][run.seed] = plan.kept[run.arm, run.seed].curve
        elif is_done(plan, run):
            curves[run.arm][run.seed] = curve(run, plan.spec.figure)
    return Results(plan.experiment.name, plan.spec, plan.seeds, curves)


def curve(run: Run, figure: str) -> list[float]:
    """The figure of a run, iteration by iteration."""
    return [figure_in(row, figure) for row in read_metrics(run.path / METRICS)]


def write(plan: Plan, results: Results, about: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the results in the plan's folder, with what is said about command and machine; what is written.

    Runs of other arms and seeds that were kept there before stay.
    """
    data: dict[str, Any] = plain({"name": results.name, **about, **_as_json(plan, results)}, "study", gaps=True)
    write_atomic(plan.folder / RESULT, json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    return data


def read(path: Path) -> Results:
    """Kept results, to be summed up and judged anew; StoreError for a file that has none."""
    record = read_record(path)
    curves: dict[str, dict[int, Curve]] = {arm: {} for arm in record.arms}
    for run in record.runs:
        if run.arm in curves and run.seed < record.seeds:
            curves[run.arm][run.seed] = run.curve
    return Results(record.name, record.study, record.seeds, curves)


def _as_json(plan: Plan, results: Results) -> dict[str, Any]:
    return {
        "study": results.spec.model_dump(mode="json"),
        "seeds": results.seeds,
        "arms": {arm: _budget(plan, arm) for arm in results.curves},
        "runs": [run.model_dump() for run in _known(plan, results)],
        "missing": [run.path.name for run in missing(plan, results)],
        "summary": {of.arm: _summary(of) for of in results.arms},
        "verdict": results.verdict._asdict(),
        "experiment": {key: value for key, value in as_plain(plan.experiment).items() if key != "study"},
    }


def _known(plan: Plan, results: Results) -> list[KeptRun]:
    """All runs, by arm in the order of the recipe, then by seed."""
    found = dict(plan.kept)
    for arm, seeds in results.curves.items():
        for seed, values in seeds.items():
            if (arm, seed) not in found:
                seconds = _seconds(plan.run(arm, seed))
                found[arm, seed] = KeptRun(arm=arm, seed=seed, seconds=seconds, curve=list(values))
    order = plan.spec.names
    return sorted(found.values(), key=lambda run: (order.index(run.arm), run.seed))


def missing(plan: Plan, results: Results) -> Sequence[Run]:
    """Runs that are not whole."""
    return [run for run in plan.runs if run.seed not in results.curves[run.arm]]


def _budget(plan: Plan, arm: str) -> dict[str, Any]:
    iterations, matches = budget(with_arm(plan.experiment, arm))
    settings = study_of(plan.experiment).arms.get(arm, [])
    return {"set": settings, "iterations": iterations, "matches": matches}


def _seconds(run: Run) -> float:
    """Of play, credit and learning, all iterations together."""
    rows = read_metrics(run.path / METRICS)
    return round(sum(sum(v for k, v in row["seconds"].items() if k != "play_model") for row in rows), 1)


def _summary(of: ArmSummary) -> dict[str, Any]:
    intervals = {"first": of.first, "last": of.last, "change": of.change, "first_arm_minus": of.behind}
    return {"seeds": of.seeds} | {name: ci and ci._asdict() for name, ci in intervals.items()}
