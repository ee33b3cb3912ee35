"""A study's results: read from its runs, written as study.json, and judged again from there."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.names import nearest
from arena.config.arms import budget, study_of, with_arm
from arena.config.kept import as_plain
from arena.config.study import EVALUATED, PANEL, StudySpec, evaluated_figure
from arena.errors import ConfigError, StoreError
from arena.evaluate.held_out import FILE as EVALUATION
from arena.evaluate.panel_figures import figures
from arena.evaluate.study.plan import Plan, Run
from arena.evaluate.study.record import KeptRun, Look, Record, StatedRule, kept_runs, read_record, recorded
from arena.evaluate.study.runs import is_done
from arena.evaluate.study.summary import ArmSummary, Curve, Ends, figure_in, means
from arena.evaluate.study.verdicts import Gauges, Verdict, judged
from arena.plain import plain
from arena.store.contents import METRICS, check_committed
from arena.store.evaluations import of_latest, read_evaluations
from arena.store.files import write_atomic
from arena.store.manifest import digest
from arena.store.reader import SEAL, read_metrics
from games.plain_files import read_plain


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
    gauges: Gauges = field(default_factory=dict)
    work: Mapping[str, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    """By arm, then seed: optimiser steps, and tokens learned from; of runs that counted them."""
    rules: Sequence[StatedRule] = ()
    """Rules in the order in which they were stated."""
    looks: Sequence[Look] = ()

    @property
    def changed_after(self) -> int:
        """Return how many whole runs there were when the rule was last changed; 0 where it never was after a run."""
        return changed_after(self.rules)

    @property
    def ends(self) -> Ends:
        """Return the first and last values of the runs."""
        return self._ends(self.spec.figure, self.curves)

    @property
    def arms(self) -> list[ArmSummary]:
        """The arms that have runs, the first one first."""
        return self._summaries(self.ends, self.curves)

    @property
    def beside(self) -> dict[str, list[ArmSummary]]:
        """The same of the figures that decide nothing."""
        return {name: self._summaries(self._ends(name, curves), curves) for name, curves in self.also.items()}

    def _ends(self, figure: str, curves: Mapping[str, Mapping[int, Curve]]) -> Ends:
        """The last value of what is judged before and after learning; else the mean of the last iterations."""
        last = 1 if figure.startswith((EVALUATED, PANEL)) else self.spec.last
        return Ends(curves, evaluated_figure(figure)[1], last)

    def _summaries(self, ends: Ends, curves: Mapping[str, Mapping[int, Curve]]) -> list[ArmSummary]:
        return [ends.summary(arm, self.spec.arm) for arm, seeds in curves.items() if seeds]

    @property
    def verdict(self) -> Verdict:
        """The verdict by the rule that the recipe states."""
        ends = self.ends
        return judged(self.spec, ends.last, ends.bounds, self.seeds, self.gauges)


def changed_after(rules: Sequence[StatedRule]) -> int:
    """Return how many whole runs there were when a rule was last replaced; 0 where none ever was after a run."""
    return max((stated.runs for stated in rules[1:]), default=0)


def collected(plan: Plan) -> Results:
    """Return the results of those runs of a plan that are whole."""
    ended = [plan.kept.get((run.arm, run.seed)) or _ended(plan, run) for run in plan.runs if is_done(plan, run)]
    before = recorded(plan.record)
    return _results(plan.experiment.name, plan.spec, plan.seeds, plan.arms, ended, before)


def _ended(plan: Plan, run: Run) -> KeptRun:
    """A whole run, up to its last commit; StoreError where its files are not what was committed."""
    spec, most = plan.spec, plan.iterations(run.arm)
    check_committed(run.path, most)
    told = {figure: beside(spec, run, figure, most) for figure in spec.also}
    also = {figure: values for figure, values in told.items() if values is not None}
    found, rows = curve(run, spec.figure, most), read_metrics(run.path / METRICS)[:most]
    steps, tokens = learned(rows)
    gauges = means(rows, [gauge.figure for gauge in spec.gauges])
    return KeptRun(
        arm=run.arm, seed=run.seed, seconds=_seconds(rows), curve=found, also=also,
        gauges=gauges, steps=steps, tokens=tokens,
    )  # fmt: skip


def _results(
    name: str, spec: StudySpec, seeds: int, arms: Iterable[str], runs: Iterable[KeptRun], record: Record | None = None
) -> Results:
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
    history = (record.rules, record.looks) if record else ((), ())
    return Results(name, spec, seeds, curves, also, gauges, work, *history)


def learned(rows: Sequence[Mapping[str, Any]]) -> tuple[int, int] | tuple[None, None]:
    """Optimiser steps and tokens learned from, of all policies and with those of replay; None where not counted."""
    updates = [update for row in rows for update in row.get("learn", {}).values() if update]
    if not all("steps" in update for update in updates):
        return None, None
    steps, tokens = (sum(u.get(f"{kind}{what}", 0) for u in updates for kind in ("", "replay_")) for what in _WORK)
    return int(steps), int(tokens)


_WORK = ("steps", "tokens")


def curve(run: Run, figure: str, most: int | None = None) -> list[float]:
    """The figure of a run, iteration by iteration, of so many at most.

    One of its evaluation has two values, before and after learning; one of its panel as many as it judged.
    """
    if figure.startswith(PANEL):
        judged = of_latest(read_evaluations(run.path))
        return [figure_in({"panel": figures(evaluation)}, figure) for evaluation in judged]
    if figure.startswith(EVALUATED):
        return evaluated(run.path, *evaluated_figure(figure))
    return [figure_in(row, figure) for row in read_metrics(run.path / METRICS)[:most]]


def beside(spec: StudySpec, run: Run, figure: str, most: int | None = None) -> list[float] | None:
    """A figure told beside the verdict, iteration by iteration; None where an arm other than the first lacks it.

    What the first arm's mechanism counts (patches, branches) an arm without it need not know.
    """
    try:
        return curve(run, figure, most)
    except ConfigError:
        if run.arm == spec.arm:
            raise
        return None


def evaluated(run: Path, game: int, figure: str) -> list[float]:
    """A figure of a game of an evaluation.json, from 1 on, before and after; ConfigError for one that is not there."""
    try:
        told = json.loads(read_plain(run / EVALUATION))
        figures: list[dict[str, list[float]]] = [told[moment][game - 1]["figures"] for moment in ("before", "results")]
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
    told = {"name": results.name, **about, **_as_json(plan, results), **_history(recorded(plan.record), results, about)}
    data: dict[str, Any] = plain(told, "study", gaps=True)
    data[SEAL] = digest(data)
    write_atomic(plan.record, json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    return data


def read(path: Path) -> Results:
    """Read kept results, to be summarised and judged again; StoreError for a file that has none."""
    record = read_record(path)
    return _results(record.name, record.study, record.seeds, record.arms, record.runs, record)


def _history(before: Record | None, results: Results, about: Mapping[str, Any]) -> dict[str, Any]:
    """The record's rules and looks, with the present ones where they are new."""
    rule, runs = results.spec.rule, sum(map(len, results.curves.values()))
    when = {"time": str(about.get("time", "unknown")), "rule": rule}
    rules, looks = (list(before.rules), list(before.looks)) if before else ([], [])
    if not rules or rules[-1].rule != rule:
        rules.append(StatedRule(**when, runs=runs))
    commit, verdict = str(about.get("commit", "unknown")), results.verdict.verdict
    look = Look(**when, commit=commit, seeds=results.seeds, runs=runs, verdict=verdict)
    if runs and (not looks or (looks[-1].rule, looks[-1].seeds, looks[-1].runs) != (rule, look.seeds, runs)):
        looks.append(look)
    return {
        "rules": [one.model_dump() for one in rules],
        "looks": [one.model_dump() for one in looks],
        "rule_changed_after_runs": changed_after(rules),
    }


def state_rule(plan: Plan, about: Mapping[str, Any]) -> None:
    """Record the rule before anything is run by it, where it is a new one."""
    before = recorded(plan.record)
    if before is None or not before.rules or before.rules[-1].rule != plan.spec.rule:
        write(plan, collected(plan), about)


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


def _seconds(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the seconds of play, credit and learning of these iterations together."""
    return round(sum(sum(v for k, v in row["seconds"].items() if k != "play_model") for row in rows), 1)


def _summary(of: ArmSummary) -> dict[str, Any]:
    intervals = {"first": of.first, "last": of.last, "change": of.change, "first_arm_minus": of.behind}
    return {"seeds": of.seeds} | {name: ci and ci._asdict() for name, ci in intervals.items()}
