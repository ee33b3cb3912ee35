"""Execution of the runs of a study or sweep, with progress and remaining time."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena.cli.console import PlainConsole, note
from arena.cli.progress import REPORT_INTERVAL, format_duration
from arena.errors import ConfigError, Interrupted
from arena.process import count_cores

if TYPE_CHECKING:
    from rich.progress import Progress

    from arena.config.recipe import R
    from arena.config.study import StudySpec
    from arena.evaluate.study.plan import Run
    from arena.evaluate.study.runs import Begin, Runner

Jobs = Annotated[int | None, typer.Option(min=1, max=1024, help="Runs in parallel; default one per core.")]
OnRay = Annotated[
    str | None,
    typer.Option(
        "--on-ray", metavar="ADDRESS", help="Run on the Ray cluster at auto or host:port instead of this machine."
    ),
]
NO_PLOT_NOTE = "no picture without matplotlib: pip install 'arena-selfplay[analysis]', then --redraw"


def describe_plan(label: str, runs: int, jobs: int | None, minutes: float | None, on_ray: str | None = None) -> str:
    """Return `label` with the number of runs, how many run in parallel, and the total time at `minutes` per run."""
    if on_ray and not jobs:
        return f"{label}: {runs} runs, as many at a time as the cluster has processors"
    parallel = min(jobs or count_cores(), runs)
    duration = f", about {format_duration(60 * minutes * runs / parallel)} by the recipe's estimate" if minutes else ""
    return f"{label}: {runs} runs, {parallel} at a time{duration}"


def run_batch(
    experiment: R,
    folder: Path,
    arms: Sequence[str],
    seeds: int,
    jobs: int | None,
    quiet: bool,
    redraw: bool = False,
    record_name: str = "study.json",
    on_ray: str | None = None,
) -> Runner:
    """Plan `seeds` runs of each arm in `folder`, run the unfinished ones with progress, and return their runner.

    With `redraw`, nothing runs. `record_name` is the file with the results, and `on_ray` the address of a Ray cluster.
    Raises ConfigError or StoreError before anything runs.
    """
    from arena.evaluate.study.plan import EXPERIMENT, plan
    from arena.evaluate.study.runs import Runner
    from arena.launch import check_single_process
    from arena.store.locks import lock_folder

    if redraw and not any((folder / file).exists() for file in (EXPERIMENT, record_name)):
        kind = record_name.removesuffix(".json")
        raise ConfigError(f"--redraw: there is no {kind} in {folder}: name its folder with --out")
    if not redraw:
        check_single_process()
    study_plan = plan(experiment, folder, arms, seeds, _preflight_arms(arms, quiet), record_name)
    if redraw:
        return Runner(study_plan, jobs or count_cores())
    with lock_folder(folder), _choose_starter(on_ray, folder) as (begin, processors):
        runner = Runner(study_plan, jobs or processors, begin)
        _run_all(runner, quiet)
    return runner


@contextmanager
def _choose_starter(on_ray: str | None, folder: Path) -> Iterator[tuple[Begin, int]]:
    """Yield the function that starts a run, here or on a Ray cluster, and the number of runs that fit there at once."""
    if on_ray is None:
        from arena.evaluate.study.runs import start_child

        yield start_child, count_cores()
        return
    from arena.evaluate.study import on_ray as cluster

    with cluster.join_cluster(on_ray, folder) as starter:
        yield starter


def _preflight_arms(arms: Sequence[str], quiet: bool) -> Callable[[R], R]:
    """Return a function that checks a recipe with each arm, and returns the recipe with settings for this machine.

    It sets `threads: auto` to 1 and `precision: auto` to the fastest precision here, the same for all runs. Unless
    `quiet`, it reports the progress of long checks on stderr. It is called before the folder exists.
    """

    def check_and_fit(recipe: R) -> R:
        from arena.cli.loop import wait
        from arena.config.arms import with_arm
        from arena.config.recipe import recipe_to_plain, with_changes
        from arena.pipelines.checking import check_recipe, fit_recipe

        one_thread = with_changes(
            recipe, {"threads": 1} if recipe_to_plain(recipe).get("threads", "auto") == "auto" else {}
        )
        since = monotonic()
        for n, arm in enumerate(arms):
            wait(check_recipe(with_arm(one_thread, arm), lambda step: None))
            if monotonic() - since > REPORT_INTERVAL and not quiet:
                note(f"checked: {n + 1} of {len(arms)}")
                since = monotonic()
        return wait(fit_recipe(one_thread))

    return check_and_fit


def _run_all(runner: Runner, quiet: bool) -> None:
    """Run the unfinished runs, with progress. Raises Interrupted on Ctrl-C.

    Raises ConfigError after an arm's first iteration if it lacks a metric that the study reports. After the first run
    of the study's first arm, prints a notice for each gauge that has no values.
    """
    from arena.config.study import EVALUATED, PANEL
    from arena.evaluate.study.results import read_curve, read_secondary_curve
    from arena.evaluate.study.runs import find_result_folder
    from arena.store.contents import METRICS

    spec, checked = runner.plan.spec, set[str]()
    after_run = EVALUATED, PANEL  # prefixes of figures that are measured after a run

    with _show_progress(runner, quiet) as screen:

        def record_progress(run: Run, new_iterations: int) -> None:
            """Check the figures of an arm's first run, note missing gauges, and count the new iterations."""
            last = run._replace(path=find_result_folder(runner.plan, run) or run.path)
            if run.arm not in checked and (last.path / METRICS).exists():
                if not spec.figure.startswith(after_run):
                    read_curve(last, spec.figure)
                for figure in spec.also:
                    if not figure.startswith(after_run):
                        read_secondary_curve(spec, last, figure)
                checked.add(run.arm)
            first = (run.arm, run.seed) == (spec.arm, spec.first_seed)
            if first and runner.plan.count_iterations(run) >= runner.plan.iterations(run.arm):
                for line in _describe_missing_gauges(spec, last):
                    note(line)
            screen.done += new_iterations

        try:
            runner.run(record_progress, note, screen.tick)
        except KeyboardInterrupt:
            raise Interrupted("interrupted; committed iterations are safe, and the same command continues") from None


def _describe_missing_gauges(spec: StudySpec, run: Run) -> Iterator[str]:
    """Return a message for each gauge (metric that shows that the mechanism acted) that this run lacks."""
    from arena.evaluate.study.summary import average_figures
    from arena.evaluate.study.verdicts import list_missing_gauges
    from arena.store.contents import METRICS
    from arena.store.reader import read_metrics

    found = average_figures(read_metrics(run.path / METRICS), [gauge.figure for gauge in spec.gauges])
    return list_missing_gauges(spec, {figure: {run.arm: {run.seed: value}} for figure, value in found.items()})


def collect_provenance() -> dict[str, Any]:
    """Return `command`, `time` (UTC), Arena's `commit` and `machine`, for the record of a study or sweep."""
    from arena.doctor import describe_invocation

    command, machine = describe_invocation()
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return {"command": command, "time": when, "commit": find_commit(machine["versions"]), "machine": machine}


def find_commit(versions: Mapping[str, str]) -> str:
    """Return the git commit of Arena's checkout, with a `+` if tracked files were changed.

    Without a checkout, return Arena's version from `versions`.
    """
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
    """Progress display of a study or sweep, updated by `tick`: a bar in a terminal, a line every 30 seconds elsewhere.

    `done` is the number of iterations that this command ran.
    """

    def __init__(self, runner: Runner, bar: Progress | None, quiet: bool) -> None:
        self.runner, self.done, self._bar, self._quiet = runner, 0, bar, quiet
        self._started = self._last_report = monotonic()
        self._task = bar.add_task("iterations", total=runner.total_iterations) if bar else None

    def __str__(self) -> str:
        """Return a line such as `iterations: 12 of 60; mars-0 7 of 20, zero-0 5 of 20; about 4 min left`."""
        running = ", ".join(self._describe_run(run) for run in self.runner.running[:4])
        others = len(self.runner.running) - 4
        running += f" and {others} more" if others > 0 else ""
        parts = [f"iterations: {self.done} of {self.runner.total_iterations}", running, self.remaining_time]
        return "; ".join(part for part in parts if part)

    @property
    def remaining_time(self) -> str:
        """Remaining time, estimated from the iterations that this command ran; "" before the first one."""
        if not self.done:
            return ""
        seconds = (monotonic() - self._started) / self.done * (self.runner.total_iterations - self.done)
        return f"about {format_duration(seconds)} left"

    def tick(self) -> None:
        """Update the bar, or without one print a line every 30 seconds. Does nothing if quiet."""
        if self._quiet:
            return
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self.done, description=str(self))
        elif monotonic() - self._last_report >= REPORT_INTERVAL:
            self._last_report = monotonic()
            note(str(self))

    def _describe_run(self, run: Run) -> str:
        done, total = self.runner.plan.count_iterations(run), self.runner.plan.iterations(run.arm)
        return f"{run.path.name} {done} of {total}" if done else f"{run.path.name} in its first iteration"


@contextmanager
def _show_progress(runner: Runner, quiet: bool) -> Iterator[BatchScreen]:
    """Yield the progress display of a study or sweep, with a bar if stderr is a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn

    terminal = PlainConsole(stderr=True)
    if quiet or not terminal.is_terminal:
        yield BatchScreen(runner, None, quiet)
        return
    with Progress(BarColumn(20), TextColumn("{task.description}"), console=terminal, transient=True) as bar:
        yield BatchScreen(runner, bar, quiet)


def choose_folder(kind: str, name: str, out: Path | None) -> Path:
    """Return `out`, or the default folder `runs/KIND-NAME`."""
    return out or Path("runs") / f"{kind}-{name}"
