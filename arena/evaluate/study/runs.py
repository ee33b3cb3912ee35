"""Execution of a study's or sweep's runs, several at a time: new ones are started and interrupted ones resumed.

A run is an ordinary `arena run selfplay` or `arena resume`, so an interrupted study loses at most the uncommitted
iterations. Runs are child processes unless `Runner` gets another function to start them. Children end with the study. A
run waits while another process, such as a child of an earlier study, uses its folder.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import sleep
from typing import Protocol

from arena.config.arms import with_arm
from arena.config.experiment import Experiment
from arena.config.pipeline import count_equal_stages
from arena.config.recipe import find_last_experiment, get_last_stage_prefix, recipe_to_plain
from arena.evaluate.held_out import FILE as EVALUATION
from arena.evaluate.study.plan import EXPERIMENT, Plan, Run
from arena.process import build_child_command, build_child_environment, end_with_parent
from arena.store import checkpoints
from arena.store.files import CONFIG
from arena.store.locks import is_in_use
from arena.store.stages import count_finished_stages, stage_folder
from games.plain_files import read_plain

POLL = 0.2
"""Seconds between two polls of the children."""


class Task(Protocol):
    """Interface of a run in progress; `subprocess.Popen` implements it."""

    def poll(self) -> int | None:
        """Return the exit code; None while the run is in progress."""

    def terminate(self) -> None:
        """Ask the run to end, without waiting for its end."""

    def wait(self) -> int:
        """Wait for the end of the run and return its exit code."""


Begin = Callable[[Run, Sequence[str]], Task]
"""Function that starts a run, given the arguments of its `arena` command."""


def start_child(run: Run, arguments: Sequence[str]) -> Task:
    """Start a run as a child process that ends with this process. Its output goes to the run's log."""
    with run.log.open("ab") as output:
        return subprocess.Popen(
            build_child_command(arguments),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={"OMP_NUM_THREADS": "1", **build_child_environment()},
            process_group=0,  # Ctrl-C reaches the study only, which then ends its children
            preexec_fn=partial(end_with_parent, os.getpid()),  # only a system call: nothing here may wait for a lock
        )


class Runner:
    """Executor of a plan's unfinished runs. Call `run`, and read `failures` afterwards."""

    def __init__(self, plan: Plan, jobs: int, begin: Begin = start_child) -> None:
        """Find the unfinished runs. At most `jobs` of them run at once; `begin` starts one run."""
        self.plan, self.jobs, self._start = plan, jobs, begin
        self.due = [run for run in plan.runs if not is_done(plan, run)]
        self.total_iterations = sum(plan.iterations(run.arm) - plan.count_iterations(run) for run in self.due)
        """Number of iterations of the unfinished runs that remained at the start."""
        self.failures: list[str] = []
        """One message per failed run."""
        self._running: dict[Run, Task] = {}
        self._donors = find_donors(plan, self.due)
        self._iterations_done = {run: plan.count_iterations(run) for run in self.due}

    @property
    def running(self) -> list[Run]:
        """Runs in progress, in the order in which they were started."""
        return list(self._running)

    def run(
        self,
        step: Callable[[Run, int], None],
        failed: Callable[[str], None],
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        """Start or resume all unfinished runs, and wait until they end. Also after an exception, no child runs on.

        Calls `step` with a run and its number of new iterations, `failed` with a message for each failed run, and
        `tick` several times a second.
        """
        try:
            while self.due or self._running:
                self._start_next()
                tick()
                sleep(POLL)
                for run in list(self._running):
                    self._report(run, step)
                for line in self._remove_ended(step):
                    self.failures.append(line)
                    failed(line)
        finally:
            self._stop()

    def _start_next(self) -> None:
        """Start due runs that may start, so that at most `jobs` run. Drop runs that another process has finished."""
        for run in [run for run in self.due if self._may_start(run)][: self.jobs - len(self._running)]:
            self.due.remove(run)
            if not is_done(self.plan, run):  # a lingering child may have finished it
                warm = warm_settings(self.plan, run, self._imitation_run(run))
                donor, shared = self._donors.get(run, (None, 0))
                reuse = donor.path if donor and count_finished_stages(donor.path) >= shared else None
                self._running[run] = self._start(run, build_command(self.plan, run, warm, reuse))

    def _may_start(self, run: Run) -> bool:
        """Return False if another process uses the run's folder, or if its starting point is not computed yet.

        The starting point is the shared imitation of warm arms, or the shared first stages of a pipeline. One run of
        each seed computes it for the others.
        """
        first = self._imitation_run(run)
        is_pending = first in self.due or first in self._running
        has_weights = run == first or not is_pending or has_imitated(self.plan, first)
        donor, shared = self._donors.get(run, (run, 0))
        has_stages = count_finished_stages(donor.path) >= shared or not (donor in self.due or donor in self._running)
        return not is_in_use(run.path) and has_stages and (has_weights or run.arm not in self.plan.spec.warm)

    def _imitation_run(self, run: Run) -> Run:
        """Return the run with the same seed whose imitation the warm arms reuse.

        It is the run of the study's own arm if this plan has that arm or the run has imitated, else that of the first
        warm arm.
        """
        spec, arms = self.plan.spec, self.plan.arms
        first = self.plan.run(spec.arm, run.seed)
        if spec.arm in arms or has_imitated(self.plan, first):
            return first
        return self.plan.run(next((arm for arm in arms if arm in spec.warm), spec.arm), run.seed)

    def _report(self, run: Run, step: Callable[[Run, int], None]) -> None:
        iterations_done = self.plan.count_iterations(run)
        if iterations_done > self._iterations_done[run]:  # iterations that a killed run repeats count once
            step(run, iterations_done - self._iterations_done[run])
            self._iterations_done[run] = iterations_done

    def _remove_ended(self, step: Callable[[Run, int], None]) -> Iterator[str]:
        """Remove ended runs from the running ones, and yield a message for each that failed.

        Calls `step` as `run` does for an ended run's last iterations.
        """
        exit_codes = [(run, code) for run, child in self._running.items() if (code := child.poll()) is not None]
        for run, code in exit_codes:
            del self._running[run]
            self._report(run, step)
            if code or not is_done(self.plan, run):
                yield f"{run.arm}, seed {run.seed} failed ({_read_last_line(run)}); its output is in {run.log}"

    def _stop(self) -> None:
        for child in self._running.values():
            child.terminate()
        for child in self._running.values():
            child.wait()


def find_donors(plan: Plan, due: Sequence[Run]) -> dict[Run, tuple[Run, int]]:
    """Return, by run of a pipeline, the run (donor) from which it copies its first stages, and their number.

    A donor has the same seed and is of the earlier arm that shares most stages. Runs that have begun, or share no
    stage, are left out.
    """
    if isinstance(plan.experiment, Experiment):
        return {}
    donors: dict[Run, tuple[Run, int]] = {}
    for n, arm in enumerate(plan.arms):
        settings = [recipe_to_plain(with_arm(plan.experiment, each)) for each in plan.arms[: n + 1]]
        shared = {each: count_equal_stages(settings[k], settings[n]) for k, each in enumerate(plan.arms[:n])}
        if shared and (max_shared := max(shared.values())):
            donor = next(each for each in shared if shared[each] == max_shared)
            fresh = [run for run in due if run.arm == arm and not (run.path / CONFIG).exists()]
            donors |= {run: (plan.run(donor, run.seed), max_shared) for run in fresh}
    return donors


def build_command(plan: Plan, run: Run, warm: Sequence[str], reuse: Path | None = None) -> list[str]:
    """Return the arguments of the `arena` command that starts a run with the settings `warm`, or resumes it.

    A new run of a pipeline copies its first stages from the run at `reuse`.
    """
    if arguments := resume_command(run):
        return arguments
    config = str(plan.folder / EXPERIMENT)
    chosen = ["--config", config, "--arm", run.arm, "--seed", str(run.seed), "--out", str(run.path), "--json"]
    chosen += ["--reuse", str(reuse)] if reuse else []
    return ["run", "selfplay", *chosen, *(part for setting in warm for part in ("--set", setting))]


def resume_command(run: Run) -> list[str]:
    """Return the arguments of the `arena` command that resumes a run; [] if the run has not started."""
    return ["resume", str(run.path), "--json"] if (run.path / CONFIG).exists() else []


def warm_settings(plan: Plan, run: Run, first: Run) -> list[str]:
    """Return settings that start a run, or a pipeline's last stage, from the weights after the imitation of `first`.

    Returns [] if the run has to imitate by itself, because it is `first`, its arm is not in the study's `warm`, or
    `first` has not imitated.
    """
    place = find_result_folder(plan, first)
    if run == first or run.arm not in plan.spec.warm or place is None or not has_imitated(plan, first):
        return []
    settings: list[str] = []
    recipe = with_arm(plan.experiment, run.arm)
    for name, policy in find_last_experiment(recipe).policies.items():
        if policy.train and policy.imitate:
            weights = json.dumps(f"{place.absolute()}@0:{name}")
            settings += [f"policies.{name}.{part}" for part in ("imitate=null", "adapter=null", f"model={weights}")]
    return [get_last_stage_prefix(recipe) + setting for setting in settings]


def is_done(plan: Plan, run: Run) -> bool:
    """Return True if the run is in the record, or has committed all its iterations and written any evaluation."""
    if (run.arm, run.seed) in plan.recorded:
        return True
    last = find_last_experiment(with_arm(plan.experiment, run.arm))
    if (place := find_result_folder(plan, run)) is None or last.iterations not in checkpoints.iterations(place):
        return False
    return (place / EVALUATION).exists() or not (last.evaluate and last.evaluate.games)


def find_result_folder(plan: Plan, run: Run) -> Path | None:
    """Return the run's folder, or that of a pipeline's last stage; None before that one has begun."""
    if isinstance(plan.experiment, Experiment):
        return run.path
    last = plan.experiment.stages[-1]
    place = stage_folder(run.path, last.number, last.name)
    return place if (place / CONFIG).exists() else None


def has_imitated(plan: Plan, run: Run) -> bool:
    """Return True if the run, or the last stage of a pipeline, has weights from before its first iteration."""
    place = find_result_folder(plan, run)
    return place is not None and 0 in checkpoints.iterations(place)


def _read_last_line(run: Run, max_characters: int = 300) -> str:
    lines = read_plain(run.log).decode("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("arena: ")[:max_characters] if lines else "it printed nothing"
