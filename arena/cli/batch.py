"""Execution of the runs of a study or sweep, with progress and remaining time."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena.cli.console import PlainConsole, note
from arena.cli.progress import EVERY, lasting
from arena.errors import ConfigError, Interrupted
from arena.process import cores

if TYPE_CHECKING:
    from rich.progress import Progress

    from arena.config.experiment import Experiment
    from arena.config.study import StudySpec
    from arena.evaluate.study.plan import Plan, Run
    from arena.evaluate.study.runs import Begin, Runner

Jobs = Annotated[int | None, typer.Option(min=1, max=1024, help="Runs in parallel; default one per core.")]
OnRay = Annotated[
    str | None,
    typer.Option(
        "--on-ray", metavar="ADDRESS", help="Run on the Ray cluster at auto or host:port instead of this machine."
    ),
]
NO_PICTURE = "no picture without matplotlib: pip install 'arena-selfplay[analysis]', then --redraw"
MAX_AGE = 3.0
"""Seconds until an estimate is computed again."""


def plan_line(label: str, runs: int, jobs: int | None, minutes: float | None, on_ray: str | None = None) -> str:
    """Return a line with the number of runs, how many run in parallel, and the total time by the recipe's minutes."""
    if on_ray and not jobs:
        return f"{label}: {runs} runs, as many at a time as the cluster has processors"
    parallel = min(jobs or cores(), runs)
    took = f", about {lasting(60 * minutes * runs / parallel)} by the recipe" if minutes else ""
    return f"{label}: {runs} runs, {parallel} at a time{took}"


def run_batch(
    experiment: Experiment,
    folder: Path,
    arms: Sequence[str],
    seeds: int,
    jobs: int | None,
    quiet: bool,
    redraw: bool = False,
    name: str = "study.json",
    on_ray: str | None = None,
    new_rule: bool = False,
    on_plan: Callable[[Plan], None] = lambda plan: None,
) -> Runner:
    """Plan the runs in their folder and run the unfinished ones, with progress; with `redraw` run nothing.

    `name` is the file name of the record, `on_ray` the address of a Ray cluster, `new_rule` as for
    `arena.evaluate.study.plan.plan`. Calls `on_plan` with the plan before the first run. Raises ConfigError or
    StoreError, in one line, before anything runs.
    """
    from arena.evaluate.study.plan import EXPERIMENT, plan
    from arena.evaluate.study.runs import Runner
    from arena.launch import check_alone
    from arena.store.locks import locked

    if redraw and not any((folder / there).exists() for there in (EXPERIMENT, name)):
        kind = name.removesuffix(".json")
        raise ConfigError(f"--redraw: there is no {kind} in {folder}: name its folder with --out")
    if not redraw:
        check_alone()
    planned = plan(experiment, folder, arms, seeds, _preflight_arms(arms, quiet), note, name, new_rule)
    on_plan(planned)
    if redraw:
        return Runner(planned, jobs or cores())
    with locked(folder), _place(on_ray, folder) as (begin, processors):
        runner = Runner(planned, jobs or processors, begin)
        _run_all(runner, quiet)
    return runner


@contextmanager
def _place(on_ray: str | None, folder: Path) -> Iterator[tuple[Begin, int]]:
    """Yield the function that starts a run, here or on a cluster, and the number of parallel runs."""
    if on_ray is None:
        from arena.evaluate.study.runs import as_child

        yield as_child, cores()
        return
    from arena.evaluate.study import on_ray as cluster

    with cluster.on_ray(on_ray, folder) as place:
        yield place


def _preflight_arms(arms: Sequence[str], quiet: bool) -> Callable[[Experiment], Experiment]:
    """Return a function that checks an experiment's arms before the folder exists, and fits it to the machine.

    Each run gets one thread, and all runs the same precision.
    """

    def fitted(experiment: Experiment) -> Experiment:
        from arena.cli.loop import wait
        from arena.config.arms import with_arm
        from arena.preflight import fitted, preflight

        one = experiment.model_copy(update={"threads": 1 if experiment.threads == "auto" else experiment.threads})
        since = monotonic()
        for n, arm in enumerate(arms):
            wait(preflight(with_arm(one, arm), lambda what: None))
            if monotonic() - since > EVERY and not quiet:
                note(f"checked: {n + 1} of {len(arms)}")
                since = monotonic()
        return fitted(one)

    return fitted


def _run_all(runner: Runner, quiet: bool) -> None:
    """Run the unfinished runs, with progress. Raises ConfigError after an arm's first iteration if a figure is missing.

    After the first run of the study's arm, a notice names each gauge without values.
    """
    from arena.config.study import EVALUATED, PANEL
    from arena.evaluate.study.results import beside, curve
    from arena.evaluate.study.runs import seen

    spec, checked = runner.plan.spec, set[str]()
    later = EVALUATED, PANEL  # known when a run has ended

    with _followed(runner, quiet) as shown:

        def step(run: Run, more: int) -> None:
            if run.arm not in checked:
                if not spec.figure.startswith(later):
                    curve(run, spec.figure)
                for figure in spec.also:
                    if not figure.startswith(later):
                        beside(spec, run, figure)
                checked.add(run.arm)
            first = (run.arm, run.seed) == (spec.arm, spec.first_seed)
            if first and seen(run) >= runner.plan.iterations(run.arm):
                for line in _not_gauged(spec, run):
                    note(line)
            shown.done += more

        try:
            runner.run(step, note, shown.tick)
        except KeyboardInterrupt:
            raise Interrupted("interrupted; nothing that was committed is lost, the same command continues") from None


def _not_gauged(spec: StudySpec, run: Run) -> Iterator[str]:
    """Return a line per gauge that has no value in this run."""
    from arena.evaluate.study.summary import means
    from arena.evaluate.study.verdicts import not_gauged
    from arena.store.contents import METRICS
    from arena.store.reader import read_metrics

    found = means(read_metrics(run.path / METRICS), [gauge.figure for gauge in spec.gauges])
    return not_gauged(spec, {figure: {run.arm: {run.seed: value}} for figure, value in found.items()})


def about() -> dict[str, Any]:
    """Return the command, the time, Arena's commit, and the machine, for the record."""
    from arena.doctor import environment

    machine = {name: value for name, value in environment().items() if name != "command"}
    when = datetime.now(UTC).isoformat(timespec="seconds")
    command = shlex.join(["arena", *sys.argv[1:]])
    return {"command": command, "time": when, "commit": commit(machine["versions"]), "machine": machine}


def commit(versions: Mapping[str, str]) -> str:
    """Return the commit of Arena's checkout, with a plus if files were changed; else the installed version."""
    root = Path(__file__).resolve().parents[2]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) == root:
            changed = git("status", "--porcelain", "--untracked-files=no")
            return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        pass  # no checkout, or no git
    return versions["arena-selfplay"]


class BatchScreen:
    """Progress display of a batch: a bar in a terminal, a line every 30 seconds elsewhere."""

    def __init__(self, runner: Runner, bar: Progress | None, quiet: bool) -> None:
        from arena.evaluate.study.remaining import Estimate

        self.runner, self.done, self._bar, self._quiet = runner, 0, bar, quiet
        self._estimate = Estimate(runner.plan)
        self._rest, self._estimated, self._said = "", -MAX_AGE, monotonic()
        self._task = bar.add_task("iterations", total=runner.left) if bar else None

    def __str__(self) -> str:
        """`iterations: 12 of 60; mars-0 7 of 20, zero-0 5 of 20; about 4 min left`."""
        running = ", ".join(self._run_line(run) for run in self.runner.running[:4])
        more = len(self.runner.running) - 4
        running += f" and {more} more" if more > 0 else ""
        parts = [f"iterations: {self.done} of {self.runner.left}", running, self.remaining]
        return "; ".join(part for part in parts if part)

    @property
    def remaining(self) -> str:
        """Remaining time of all runs; "" if unknown."""
        if monotonic() - self._estimated >= MAX_AGE:
            seconds = self._estimate.left(self.runner)
            self._rest = "" if seconds is None else f"about {lasting(seconds)} left"
            self._estimated = monotonic()
        return self._rest

    def tick(self) -> None:
        """Update the bar, or print a line if one is due."""
        if self._quiet:
            return
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self.done, description=str(self))
        elif monotonic() - self._said >= EVERY:
            self._said = monotonic()
            note(str(self))

    def _run_line(self, run: Run) -> str:
        from arena.evaluate.study.runs import seen

        done, total = seen(run), self.runner.plan.iterations(run.arm)
        return f"{run.path.name} {done} of {total}" if done else f"{run.path.name} before its first"


@contextmanager
def _followed(runner: Runner, quiet: bool) -> Iterator[BatchScreen]:
    from rich.progress import BarColumn, Progress, TextColumn

    terminal = PlainConsole(stderr=True)
    if quiet or not terminal.is_terminal:
        yield BatchScreen(runner, None, quiet)
        return
    with Progress(BarColumn(20), TextColumn("{task.description}"), console=terminal, transient=True) as bar:
        yield BatchScreen(runner, bar, quiet)


def folder_of(kind: str, name: str, out: Path | None) -> Path:
    """Return `out`, or the default folder `runs/KIND-NAME`."""
    return out or Path("runs") / f"{kind}-{name}"
