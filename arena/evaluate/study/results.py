"""Results of a study: collected from its runs, written to study.json, and read back to be judged again."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arena.config.arms import compute_budget, require_study, with_arm
from arena.config.recipe import find_last_experiment, recipe_to_plain
from arena.config.study import EVALUATED, PANEL, StudySpec, parse_evaluated_figure
from arena.errors import ConfigError, StoreError
from arena.evaluate.held_out import FILE as EVALUATION
from arena.evaluate.panel_figures import compute_figures
from arena.evaluate.study.plan import Plan, Run
from arena.evaluate.study.record import RecordedRun, find_record, index_runs, read_record
from arena.evaluate.study.runs import find_result_folder, is_done
from arena.evaluate.study.summary import ArmSummary, Curve, Ends, average_figures, find_figure
from arena.evaluate.study.verdicts import Gauges, Verdict, judge
from arena.plain import to_plain
from arena.store.contents import METRICS, check_committed
from arena.store.evaluations import read_evaluations, select_latest
from arena.store.manifest import write_sealed
from arena.store.reader import read_metrics
from arena.store.stages import find_begun_stages, is_pipeline
from games.names import nearest
from games.plain_files import read_plain


@dataclass(frozen=True, kw_only=True)
class Results:
    """Results of a study's finished runs, with summaries by arm (variant of the settings) and the verdict."""

    name: str
    """Name of the recipe."""
    spec: StudySpec
    seeds: int
    curves: Mapping[str, Mapping[int, Curve]]
    """The figure at each iteration, by arm and seed; finished runs only."""
    also: Mapping[str, Mapping[str, Mapping[int, Curve]]] = field(default_factory=dict)
    """Secondary figures at each iteration, by figure, arm and seed."""
    gauges: Gauges = field(default_factory=dict)
    work: Mapping[str, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    """Optimiser steps and learned tokens, by arm and seed; only runs that counted them."""

    @property
    def ends(self) -> Ends:
        """First and last values of the figure that decides the verdict, in every run."""
        return self._ends(self.spec.figure, self.curves)

    @property
    def arms(self) -> list[ArmSummary]:
        """Summaries of the arms that have runs, by the deciding figure; the study's own arm first."""
        return self._summarise(self.ends, self.curves)

    @property
    def secondary(self) -> dict[str, list[ArmSummary]]:
        """Summaries of the arms that have runs, by secondary figure (those of `also`)."""
        return {name: self._summarise(self._ends(name, curves), curves) for name, curves in self.also.items()}

    def _ends(self, figure: str, curves: Mapping[str, Mapping[int, Curve]]) -> Ends:
        # Evaluations and panels have one value after learning; other figures average the last iterations.
        last = 1 if figure.startswith((EVALUATED, PANEL)) else self.spec.last
        return Ends(curves, parse_evaluated_figure(figure)[1], last)

    def _summarise(self, ends: Ends, curves: Mapping[str, Mapping[int, Curve]]) -> list[ArmSummary]:
        return [ends.summary(arm, self.spec.arm) for arm, seeds in curves.items() if seeds]

    @property
    def verdict(self) -> Verdict:
        """Verdict on the study's claim by the rule of its recipe."""
        ends = self.ends
        return judge(self.spec, ends.last, ends.bounds, self.seeds, self.gauges)


def collect(plan: Plan) -> Results:
    """Return the results of the plan's finished runs, from the record if it has them, else from their folders."""
    runs = [plan.recorded.get((run.arm, run.seed)) or _read_run(plan, run) for run in plan.runs if is_done(plan, run)]
    return _to_results(plan.experiment.name, plan.spec, plan.seeds, plan.arms, runs)


def _read_run(plan: Plan, run: Run) -> RecordedRun:
    """Read a finished run's results from its folder. Raises StoreError if its files differ from the committed ones."""
    spec, iterations = plan.spec, find_last_experiment(with_arm(plan.experiment, run.arm)).iterations
    places = find_begun_stages(run.path) if is_pipeline(run.path) else [run.path]
    seconds = _sum_seconds([row for place in places for row in read_metrics(place / METRICS)[:iterations]])
    run = run._replace(path=find_result_folder(plan, run) or run.path)
    check_committed(run.path, iterations)
    secondary = {figure: read_secondary_curve(spec, run, figure, iterations) for figure in spec.also}
    curve, rows = read_curve(run, spec.figure, iterations), read_metrics(run.path / METRICS)[:iterations]
    steps, tokens = count_work(rows)
    return RecordedRun(
        arm=run.arm, seed=run.seed, seconds=seconds, curve=curve,
        also={figure: values for figure, values in secondary.items() if values is not None},
        gauges=average_figures(rows, [gauge.figure for gauge in spec.gauges]), steps=steps, tokens=tokens,
    )  # fmt: skip


def _to_results(name: str, spec: StudySpec, seeds: int, arms: Iterable[str], runs: Iterable[RecordedRun]) -> Results:
    curves: dict[str, dict[int, Curve]] = {arm: {} for arm in arms}
    also: dict[str, dict[str, dict[int, Curve]]] = {figure: {arm: {} for arm in curves} for figure in spec.also}
    names = [gauge.figure for gauge in spec.gauges]
    gauges: dict[str, dict[str, dict[int, float | None]]] = {name: {arm: {} for arm in curves} for name in names}
    work: dict[str, dict[int, tuple[int, int]]] = {arm: {} for arm in curves}
    for run in runs:
        if run.arm in curves and 0 <= run.seed - spec.first_seed < seeds:
            curves[run.arm][run.seed] = run.curve
            for figure in spec.also:
                if figure in run.also:
                    also[figure][run.arm][run.seed] = run.also[figure]
            for gauge in names:
                gauges[gauge][run.arm][run.seed] = run.gauges.get(gauge)
            if run.steps is not None and run.tokens is not None:
                work[run.arm][run.seed] = run.steps, run.tokens
    return Results(name=name, spec=spec, seeds=seeds, curves=curves, also=also, gauges=gauges, work=work)


def count_work(rows: Sequence[Mapping[str, Any]]) -> tuple[int, int] | tuple[None, None]:
    """Return the optimiser steps and learned tokens of all policies, including replay; (None, None) if not counted."""
    updates = [update for row in rows for update in row.get("learn", {}).values() if update]
    if not all("steps" in update for update in updates):
        return None, None
    steps, tokens = (
        sum(u.get(f"{prefix}{unit}", 0) for u in updates for prefix in ("", "replay_")) for unit in ("steps", "tokens")
    )
    return int(steps), int(tokens)


def read_curve(run: Run, figure: str, iterations: int | None = None) -> list[float]:
    """Return a run's figure at each of its first `iterations` iterations (default: all).

    A figure of an evaluation has two values, before and after learning; a figure of a panel has one per evaluation.
    Raises ConfigError for an unknown figure.
    """
    if figure.startswith(PANEL):
        evaluations = select_latest(read_evaluations(run.path))
        return [find_figure({"panel": compute_figures(evaluation)}, figure) for evaluation in evaluations]
    if figure.startswith(EVALUATED):
        return read_evaluated(run.path, *parse_evaluated_figure(figure))
    return [find_figure(row, figure) for row in read_metrics(run.path / METRICS)[:iterations]]


def read_secondary_curve(spec: StudySpec, run: Run, figure: str, iterations: int | None = None) -> list[float] | None:
    """Return a secondary figure at each iteration; None if the run has none and its arm is not the study's own.

    Figures of the mechanism (patches, branches) need not exist in arms without it.
    """
    try:
        return read_curve(run, figure, iterations)
    except ConfigError:
        if run.arm == spec.arm:
            raise
        return None


def read_evaluated(run: Path, game: int, figure: str) -> list[float]:
    """Return a figure's values [before, after] learning from evaluation.json. `game` counts from 1.

    Raises StoreError for an unreadable file and ConfigError for an unknown figure.
    """
    try:
        body = json.loads(read_plain(run / EVALUATION))
        moments: list[dict[str, list[float]]] = [body[key][game - 1]["figures"] for key in ("before", "results")]
        known = sorted(moments[0].keys() & moments[1].keys())
        values = [moment[figure][0] for moment in moments] if figure in known else []
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise StoreError(f"{run / EVALUATION} cannot be read as an evaluation: {error}") from None
    if not values:
        raise ConfigError(f"study: no figure '{figure}'{nearest(figure, known)} (there are {', '.join(known)})")
    return values


def write(plan: Plan, results: Results, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write the results and `about` (command, machine) to the plan's record and return the written data.

    The file ends with a hash of the rest, which reveals later edits. Recorded runs of other arms and seeds stay.
    """
    data: dict[str, Any] = to_plain({"name": results.name, **about, **_to_json(plan, results)}, "study", gaps=True)
    return write_sealed(plan.record, data, ensure_ascii=False)


def read(path: Path) -> Results:
    """Return the results in a study.json. Raises StoreError for a damaged or edited file."""
    record = read_record(path)
    return _to_results(record.name, record.study, record.seeds, record.arms, record.runs)


def _to_json(plan: Plan, results: Results) -> dict[str, Any]:
    return {
        "study": results.spec.model_dump(mode="json"),
        "seeds": results.seeds,
        "arms": {arm: _describe_arm(plan, arm) for arm in results.curves},
        "runs": [run.model_dump() for run in _list_runs(plan, results)],
        "missing": [run.path.name for run in list_missing_runs(plan, results)],
        "summary": {arm.arm: _summary_to_json(arm) for arm in results.arms},
        "also": {name: {arm.arm: _summary_to_json(arm) for arm in arms} for name, arms in results.secondary.items()},
        "verdict": results.verdict._asdict(),
        "experiment": {key: value for key, value in recipe_to_plain(plan.experiment).items() if key != "study"},
    }


def _list_runs(plan: Plan, results: Results) -> list[RecordedRun]:
    """Return all finished and recorded runs, by arm in the recipe's order and then by seed."""
    finished = {(run.arm, run.seed): run for run in plan.runs if run.seed in results.curves[run.arm]}
    recorded = {**plan.recorded, **index_runs(find_record(plan.record))}  # another process may have written since
    runs = {key: _read_run(plan, run) for key, run in finished.items() if key not in recorded} | recorded
    order = plan.spec.names
    return sorted(runs.values(), key=lambda run: (order.index(run.arm), run.seed))


def list_missing_runs(plan: Plan, results: Results) -> Sequence[Run]:
    """Return the plan's runs that have no results yet."""
    return [run for run in plan.runs if run.seed not in results.curves[run.arm]]


def _describe_arm(plan: Plan, arm: str) -> dict[str, Any]:
    iterations, matches = compute_budget(with_arm(plan.experiment, arm))[-1]
    settings = require_study(plan.experiment).arms.get(arm, [])
    return {"set": settings, "iterations": iterations, "matches": matches}


def _sum_seconds(rows: Sequence[Mapping[str, Any]]) -> float:
    # The model's share of play is part of `play` already.
    return round(sum(sum(v for k, v in row["seconds"].items() if k != "play_model") for row in rows), 1)


def _summary_to_json(arm: ArmSummary) -> dict[str, Any]:
    intervals = {"first": arm.first, "last": arm.last, "change": arm.change, "first_arm_minus": arm.difference}
    return {"seeds": arm.seeds} | {name: ci and ci._asdict() for name, ci in intervals.items()}
