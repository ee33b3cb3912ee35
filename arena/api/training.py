"""Run and resume experiments from Python: blocking, in a script, a notebook, a thread or inside of an event loop."""

from __future__ import annotations

from asyncio import CancelledError, get_running_loop
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from os import PathLike, getpid
from os.path import expanduser
from pathlib import Path
from threading import Lock, current_thread, main_thread
from typing import Any

from arena.api.progress import Followed, Progress
from arena.api.result import Result
from arena.api.settings import Given, Overrides, experiment_of, layers_of, setting
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.saved_config import experiment_of as kept_experiment
from arena.errors import ConfigError, Interrupted
from arena.evaluate.held_out import held_out
from arena.launch import fresh_folder, resume_run, start
from arena.store.files import CONFIG, require_run

Following = Progress | Callable[[Progress], object] | None
_BEGUN: dict[str, int] = {}
"""The process in which the first run began: its threads do not outlive a fork, and work for them waits for ever."""
_ONE = Lock()
"""Held while a run goes on: one process has one computing thread, and one log of what it does."""


def run(
    experiment: Given,
    *,
    overrides: Overrides = (),
    seed: int | None = None,
    out: str | PathLike[str] | None = None,
    progress: Following = None,
) -> Result:
    """Run an experiment to its end, and return what it has left behind.

    The experiment is a recipe's name, the path of a YAML file, a dict of its keys or an `Experiment`; `overrides` lie
    over it, as `{"learn.lr": 1e-4}` or `["learn.lr=1e-4"]`. `out` is the run's folder, by default `runs/NAME-TIME`.
    `progress` is a `Progress`, or a function that is called with one after each iteration; `print` will do.

    A run that `Progress.cancel` stopped is returned as it is, unless it had not begun. ConfigError, StoreError and
    other errors of `arena.errors` say in one line what is wrong; Interrupted comes of Ctrl-C.

    >>> arena.run("kuhn_poker-nano", seed=1, out="runs/kuhn", progress=print)
    Result(runs/kuhn: 60 of 60 iterations)
    """
    chosen = experiment_of(experiment, overrides, seed)
    folder = Path(expanduser(out)) if out is not None else fresh_folder(chosen.name)
    return _finished(folder, chosen.iterations, _following(progress), lambda watcher: start(chosen, folder, watcher))


def resume(
    folder: str | PathLike[str],
    *,
    overrides: Overrides = (),
    iterations: int | None = None,
    trust: bool = False,
    progress: Following = None,
) -> Result:
    """Go on with a run from its newest valid checkpoint, as if it had never stopped, and return what it has then.

    `iterations` is how many it is to have in all. Of `overrides`, only what may change when a run goes on is taken
    (docs/run-folder.md). `trust` lets code and servers of a folder that came from elsewhere be used.
    """
    path = require_run(Path(expanduser(folder)))
    layers = layers_of(overrides)
    layers += [setting("iterations", iterations)] if iterations is not None else []
    asked = kept_experiment(path, layers, trust)
    return _finished(
        path, asked.iterations, _following(progress), lambda watcher: resume_run(path, watcher, layers, trust)
    )


def _finished(
    folder: Path, iterations: int, progress: Progress, begin: Callable[[Followed], Coroutine[Any, Any, Path]]
) -> Result:
    """The run's result, whether it came to its end or was cancelled."""
    watcher = Followed(progress)

    async def work() -> None:
        try:
            watcher.begins(iterations)
            await begin(watcher)
            await _evaluate(kept_experiment(folder), folder)
        finally:
            watcher.ends()

    try:
        _wait(work, progress)
    except (Interrupted, CancelledError) as end:
        if not (progress.cancelled and (folder / CONFIG).exists()):
            raise Interrupted(str(end) or "interrupted before the run began") from None
    return Result(folder, progress.notes)


async def _evaluate(experiment: Experiment, folder: Path) -> None:
    """Compare before and after, where the experiment asks for it, as the command line does at the end."""
    if experiment.evaluate is not None and experiment.evaluate.games:
        await held_out(folder, experiment.evaluate, experiment.seed)


def _wait(work: Callable[[], Coroutine[Any, Any, None]], progress: Progress) -> None:
    """Wait for the work; where a loop runs already, as in a notebook, in a thread beside it."""
    try:
        get_running_loop()
    except RuntimeError:
        return _alone(work, by_signal=current_thread() is main_thread())
    with ThreadPoolExecutor(1, "arena-run") as beside:
        future = beside.submit(_alone, work, by_signal=False)
        try:
            return future.result()
        except KeyboardInterrupt:
            progress.cancel()
            raise  # once the run has ended


def _alone(work: Callable[[], Coroutine[Any, Any, None]], by_signal: bool) -> None:
    """Wait for the work in this thread, as long as which no other run begins; ConfigError where one goes on."""
    if _BEGUN.setdefault("process", getpid()) != getpid():
        raise ConfigError(
            "this process was forked from one that has run an experiment, whose threads it lacks: start it afresh, "
            "as multiprocessing's get_context('spawn') does"
        )
    if not _ONE.acquire(blocking=False):
        raise ConfigError("a run goes on in this process: wait for its end, or start another process")
    try:
        wait(work(), by_signal)
    finally:
        _ONE.release()


def _following(progress: Following) -> Progress:
    if progress is None or isinstance(progress, Progress):
        return progress or Progress()
    if not callable(progress):
        raise ConfigError(f"progress is a Progress or a function, not {type(progress).__name__}")
    return Progress(progress)
