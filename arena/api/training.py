"""Run and resume experiments from Python, in a script, a notebook, a thread or an event loop."""

from __future__ import annotations

from asyncio import CancelledError, get_running_loop
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from os import PathLike, getpid
from os.path import expanduser
from pathlib import Path
from threading import Lock, current_thread, main_thread
from typing import Any

from arena.api.progress import Progress, ProgressWatcher
from arena.api.result import Result
from arena.api.settings import ExperimentLike, Overrides, compose_experiment, make_layers, make_setting
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.saved_config import load_experiment as kept_experiment
from arena.errors import ConfigError, Interrupted
from arena.evaluate.held_out import evaluate_held_out
from arena.launch import choose_fresh_folder, resume_run, start
from arena.store.files import CONFIG, require_run
from arena.store.stages import find_pipeline

ProgressLike = Progress | Callable[[Progress], object] | None
_FIRST: dict[str, int] = {}
"""Process id of the first run under the key `process`. Threads do not survive a fork, so a forked child would hang."""
_RUNNING = Lock()
"""Held during a run, because a process has only one computing thread and one run log."""


def run(
    experiment: ExperimentLike,
    *,
    overrides: Overrides = (),
    seed: int | None = None,
    out: str | PathLike[str] | None = None,
    progress: ProgressLike = None,
) -> Result:
    """Run an experiment to its end and return its result.

    `experiment` is a recipe's name, the path of a YAML file, a dict or an `Experiment`. `overrides` are settings such
    as `{"learn.lr": 1e-4}` or `["learn.lr=1e-4"]`. `out` is the run folder, by default `runs/NAME-TIME`. `progress` is
    a `Progress`, or a function that is called with one after each iteration, such as `print`.

    If the run is cancelled by `Progress.cancel`, returns its partial result, or raises Interrupted if it had not
    started. Raises Interrupted on Ctrl-C, and ConfigError, StoreError and other errors of `arena.errors` with a
    one-line message.

    >>> arena.run("kuhn_poker-nano", seed=1, out="runs/kuhn", progress=print)
    Result(runs/kuhn: 60 of 60 iterations)
    """
    composed = compose_experiment(experiment, overrides, seed)
    folder = Path(expanduser(out)) if out is not None else choose_fresh_folder(composed.name)
    return _run_to_end(
        folder, composed.iterations, _as_progress(progress), lambda watcher: start(composed, folder, watcher)
    )


def resume(
    folder: str | PathLike[str],
    *,
    overrides: Overrides = (),
    iterations: int | None = None,
    trust: bool = False,
    progress: ProgressLike = None,
) -> Result:
    """Resume a run from its newest valid checkpoint and return its result, bit-identical to an uninterrupted run.

    `iterations` is the new total number of iterations. `overrides` may only change settings that can change on resume
    (docs/run-folder.md). `trust` allows code and servers named in a folder that was not made on this machine.
    `progress`, cancellation and errors are as in `run`.
    """
    path = Path(expanduser(folder))
    if (pipeline := find_pipeline(path)) is not None:
        label = "a pipeline" if path.resolve() == pipeline else f"a stage of the pipeline {pipeline}"
        raise ConfigError(f"{path} is {label}, which only the command line resumes: use arena resume {pipeline}")
    path = require_run(path)
    layers = make_layers(overrides)
    layers += [make_setting("iterations", iterations)] if iterations is not None else []
    saved = kept_experiment(path, layers, trust)
    return _run_to_end(
        path, saved.iterations, _as_progress(progress), lambda watcher: resume_run(path, watcher, layers, trust)
    )


def _run_to_end(
    folder: Path, iterations: int, progress: Progress, begin: Callable[[ProgressWatcher], Coroutine[Any, Any, Path]]
) -> Result:
    """Await `begin`, which plays the run, and its final evaluation. Returns the result.

    The result is partial if the run was cancelled after its folder was written. Raises Interrupted on Ctrl-C, or if it
    was cancelled earlier.
    """
    watcher = ProgressWatcher(progress)

    async def work() -> None:
        try:
            watcher.begins(iterations)
            await begin(watcher)
            await _evaluate(kept_experiment(folder), folder)
        finally:
            watcher.ends()

    try:
        _wait(work, progress)
    except (Interrupted, CancelledError) as error:
        if not (progress.cancelled and (folder / CONFIG).exists()):
            raise Interrupted(str(error) or "interrupted before the run began") from None
    return Result(folder, progress.notes)


async def _evaluate(experiment: Experiment, folder: Path) -> None:
    """Evaluate the first and last weights if the experiment has `evaluate.games`, as the command line does."""
    if experiment.evaluate is not None and experiment.evaluate.games:
        await evaluate_held_out(folder, experiment.evaluate, experiment.seed)


def _wait(work: Callable[[], Coroutine[Any, Any, None]], progress: Progress) -> None:
    """Run the coroutine that `work` returns, in a new thread if an event loop is running here, as in a notebook."""
    try:
        get_running_loop()
    except RuntimeError:
        return _run_exclusively(work, by_signal=current_thread() is main_thread())
    with ThreadPoolExecutor(1, "arena-run") as executor:
        future = executor.submit(_run_exclusively, work, by_signal=False)
        try:
            return future.result()
        except KeyboardInterrupt:
            progress.cancel()
            raise  # once the run has ended


def _run_exclusively(work: Callable[[], Coroutine[Any, Any, None]], by_signal: bool) -> None:
    """Run the coroutine that `work` returns in this thread. With `by_signal`, Ctrl-C cancels it.

    Raises ConfigError if the process is in another run, or was forked from a process that has had one.
    """
    if _FIRST.setdefault("process", getpid()) != getpid():
        raise ConfigError(
            "this process was forked from one that has run an experiment, and lacks its threads: spawn it instead, "
            "such as with multiprocessing.get_context('spawn')"
        )
    if not _RUNNING.acquire(blocking=False):
        raise ConfigError("this process is already in a run: wait for its end, or start another process")
    try:
        wait(work(), by_signal)
    finally:
        _RUNNING.release()


def _as_progress(progress: ProgressLike) -> Progress:
    if progress is None or isinstance(progress, Progress):
        return progress or Progress()
    if not callable(progress):
        raise ConfigError(f"progress must be a Progress or a function, not {type(progress).__name__}")
    return Progress(progress)
