"""A study's results: read from its runs, written as study.json, and judged again from there."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.names import nearest
from arena.config.arms import budget, study_of, with_arm
from arena.config.kept import as_plain
from arena.config.study import EVALUATED, PANEL, StudySpec
from arena.errors import ConfigError, StoreError
from arena.evaluate.held_out import FILE as EVALUATION
from arena.evaluate.panel_figures import figures
from arena.evaluate.study.plan import Plan, Run
from arena.evaluate.study.record import KeptRun, kept_runs, read_record, recorded
from arena.evaluate.study.runs import is_done
from arena.evaluate.study.summary import ArmSummary, Curve, Ends, Verdict, figure_in, judged
from arena.plain import plain
from arena.store.contents import METRICS, check_committed
from arena.store.evaluations import of_latest, read_evaluations
from arena.store.files import write_atomic
from arena.store.manifest import digest
from arena.store.reader import SEAL, read_metrics


@dataclass(frozen=True)
class Results:
    """All that a study has shown so far."""

    name: str
    """Name of the recipe."""
    spec: StudySpec
    seeds: int
    curves: Mapping[str, Mapping[int, Curve]]
    """By arm, then seed: the figure, iteration by iteration; of whole runs only."""
    also: Mapping[str, Mapping[str, Mapping[int, Curve]]] = field(default_factory=dict)
    """The same of other figures, by their names."""

    @property
    def ends(self) -> Ends:
        """Return the first and last values of the runs."""
        return self._ends(self.spec.figure, self.curves)

    @property
    def arms(self) -> list[ArmSummary]:
        """The arms that have runs, the first one first."""
        return self._summaries(self.ends)

    @property
    def beside(self) -> dict[str, list[ArmSummary]]:
        """The same of the figures that decide nothing."""
        return {name: self._summaries(self._ends(name, curves)) for name, curves in self.also.items()}

    def _ends(self, figure: str, curves: Mapping[str, Mapping[int, Curve]]) -> Ends:
        """The last value of what is judged before and after learning; else the mean of the last iterations."""
        last = 1 if figure.startswith((EVALUATED, PANEL)) else self.spec.last
        return Ends(curves, figure.removeprefix(EVALUATED), last)

    def _summaries(self, ends: Ends) -> list[ArmSummary]:
        return [ends.summary(arm, self.spec.arm) for arm, seeds in self.curves.items() if seeds]

    @property
    def verdict(self) -> Verdict:
        """The verdict by the rule that the recipe states."""
        ends = self.ends
        return judged(self.spec, ends.last, ends.bounds, self.seeds)


def collected(plan: Plan) -> Results:
    """Return the results of those runs of a plan that are whole."""
    ended = [plan.kept.get((run.arm, run.seed)) or _ended(plan, run) for run in plan.runs if is_done(plan, run)]
    return _results(plan.experiment.name, plan.spec, plan.seeds, plan.arms, ended)


def _ended(plan: Plan, run: Run) -> KeptRun:
    """A whole run, up to its last commit; StoreError where its files are not what was committed."""
    spec, most = plan.spec, plan.iterations(run.arm)
    check_committed(run.path, most)
    also = {figure: curve(run, figure, most) for figure in spec.also}
    found = curve(run, spec.figure, most)
    return KeptRun(arm=run.arm, seed=run.seed, seconds=_seconds(run, most), curve=found, also=also)


def _results(name: str, spec: StudySpec, seeds: int, arms: Iterable[str], runs: Iterable[KeptRun]) -> Results:
    curves: dict[str, dict[int, Curve]] = {arm: {} for arm in arms}
    also: dict[str, dict[str, dict[int, Curve]]] = {figure: {arm: {} for arm in curves} for figure in spec.also}
    for run in runs:
        if run.arm in curves and 0 <= run.seed - spec.first_seed < seeds:
            curves[run.arm][run.seed] = run.curve
            for figure in spec.also:
                also[figure][run.arm][run.seed] = run.also[figure]
    return Results(name, spec, seeds, curves, also)


def curve(run: Run, figure: str, most: int | None = None) -> list[float]:
    """The figure of a run, iteration by iteration, of so many at most.

    One of its evaluation has two values, before and after learning; one of its panel as many as it judged.
    """
    if figure.startswith(PANEL):
        judged = of_latest(read_evaluations(run.path))
        return [figure_in({"panel": figures(evaluation)}, figure) for evaluation in judged]
    if figure.startswith(EVALUATED):
        return evaluated(run.path, figure.removeprefix(EVALUATED))
    return [figure_in(row, figure) for row in read_metrics(run.path / METRICS)[:most]]


def evaluated(run: Path, figure: str) -> list[float]:
    """A figure of the first game of an evaluation.json, before and after; ConfigError for one that is not there."""
    try:
        told = json.loads((run / EVALUATION).read_text("utf-8"))
        figures: list[dict[str, list[float]]] = [told[moment][0]["figures"] for moment in ("before", "results")]
        known = sorted(figures[0].keys() & figures[1].keys())
        values = [of[figure][0] for of in figures] if figure in known else []
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise StoreError(f"{run / EVALUATION} cannot be read as an evaluation: {error}") from None
    if not values:
        raise ConfigError(f"study: no figure '{figure}'{nearest(figure, known)} (there are {', '.join(known)})")
    return values


def write(plan: Plan, results: Results, about: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the results in the plan's folder, with what is said about command and machine; what is written.

    The file ends with the hash of all else in it, so that no change of it goes unseen. Runs of other arms and seeds
    that were kept there before stay.
    """
    data: dict[str, Any] = plain({"name": results.name, **about, **_as_json(plan, results)}, "study", gaps=True)
    data[SEAL] = digest(data)
    write_atomic(plan.record, json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    return data


def read(path: Path) -> Results:
    """Read kept results, to be summarised and judged again; StoreError for a file that has none."""
    record = read_record(path)
    return _results(record.name, record.study, record.seeds, record.arms, record.runs)


def _as_json(plan: Plan, results: Results) -> dict[str, Any]:
    return {
        "study": results.spec.model_dump(mode="json"),
        "seeds": results.seeds,
        "arms": {arm: _budget(plan, arm) for arm in results.curves},
        "runs": [run.model_dump() for run in _known(plan, results)],
        "missing": [run.path.name for run in missing(plan, results)],
        "summary": {of.arm: _summary(of) for of in results.arms},
        "also": {name: {of.arm: _summary(of) for of in arms} for name, arms in results.beside.items()},
        "verdict": results.verdict._asdict(),
        "experiment": {key: value for key, value in as_plain(plan.experiment).items() if key != "study"},
    }


def _known(plan: Plan, results: Results) -> list[KeptRun]:
    """All runs, by arm in the order of the recipe, then by seed."""
    ended = {(run.arm, run.seed): run for run in plan.runs if run.seed in results.curves[run.arm]}
    kept = {**plan.kept, **kept_runs(recorded(plan.record))}  # what another process has written by now, too
    found = {key: _ended(plan, run) for key, run in ended.items() if key not in kept} | kept
    order = plan.spec.names
    return sorted(found.values(), key=lambda run: (order.index(run.arm), run.seed))


def missing(plan: Plan, results: Results) -> Sequence[Run]:
    """Runs that are not whole."""
    return [run for run in plan.runs if run.seed not in results.curves[run.arm]]


def _budget(plan: Plan, arm: str) -> dict[str, Any]:
    iterations, matches = budget(with_arm(plan.experiment, arm))
    settings = study_of(plan.experiment).arms.get(arm, [])
    return {"set": settings, "iterations": iterations, "matches": matches}


def _seconds(run: Run, most: int) -> float:
    """Return the seconds of play, credit and learning, so many iterations together."""
    rows = read_metrics(run.path / METRICS)[:most]
    return round(sum(sum(v for k, v in row["seconds"].items() if k != "play_model") for row in rows), 1)


def _summary(of: ArmSummary) -> dict[str, Any]:
    intervals = {"first": of.first, "last": of.last, "change": of.change, "first_arm_minus": of.behind}
    return {"seeds": of.seeds} | {name: ci and ci._asdict() for name, ci in intervals.items()}
