"""The runs of a study as child processes: so many at a time, begun where none is, gone on with where one was stopped.

A run is an ordinary `arena run selfplay` or `arena resume`, so whatever ends a study, at most what no run has
committed yet is lost. Children end when the study does; where one lingers, its folder is waited for.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import sleep

from arena.config.arms import with_arm
from arena.evaluate.held_out import FILE as EVALUATION
from arena.evaluate.study.plan import EXPERIMENT, Plan, Run
from arena.process import command_line, end_with, environment_of_children
from arena.store import checkpoints
from arena.store.contents import METRICS
from arena.store.files import CONFIG
from arena.store.run import in_use

POLL = 0.2
"""Seconds between two looks at the children."""


class Runner:
    """Child processes of a study's runs: those that are due, are running, or have failed."""

    def __init__(self, plan: Plan, jobs: int) -> None:
        """`jobs` are run at a time."""
        self.plan, self.jobs = plan, jobs
        self.due = [run for run in plan.runs if not is_done(plan, run)]
        self.left = sum(plan.iterations(run.arm) - seen(run) for run in self.due)
        """Iterations that are to be played yet."""
        self.failures: list[str] = []
        """A line for each run that did not come to its end."""
        self._running: dict[Run, subprocess.Popen[bytes]] = {}
        self._seen = {run: seen(run) for run in self.due}

    def run(self, step: Callable[[Run, int], None], failed: Callable[[str], None]) -> None:
        """Run all that is due; however this ends, no child is left.

        `step` is called with how many more iterations of a run are done, `failed` with a line on each run that failed.
        """
        try:
            while self.due or self._running:
                self._begin()
                sleep(POLL)
                for run in list(self._running):
                    self._follow(run, step)
                for line in self._ended(step):
                    self.failures.append(line)
                    failed(line)
        finally:
            self._stop()

    def _begin(self) -> None:
        """Start what may start while there is room."""
        for run in [run for run in self.due if self._may_begin(run)][: self.jobs - len(self._running)]:
            self.due.remove(run)
            if not is_done(self.plan, run):  # as it may be by now where a child of before lingered
                self._running[run] = self._child(run)

    def _may_begin(self, run: Run) -> bool:
        """Unless another process has its folder, or it begins with weights that are being made."""
        first = self._first(run)
        unfinished = first in self.due or first in self._running
        return not in_use(run.path) and not (run.arm in self.plan.spec.warm and unfinished and not _weights(first))

    def _first(self, run: Run) -> Run:
        return self.plan.run(self.plan.spec.arm, run.seed)

    def _child(self, run: Run) -> "subprocess.Popen[bytes]":
        warm = warm_settings(self.plan, run, self._first(run))
        with run.log.open("ab") as output:
            return subprocess.Popen(
                command_line(command(self.plan, run, warm)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={"OMP_NUM_THREADS": "1", **environment_of_children()},
                process_group=0,  # Ctrl-C is for the study, which then ends them
                preexec_fn=partial(end_with, os.getpid()),  # a system call, nothing that could wait for a lock
            )

    def _follow(self, run: Run, step: Callable[[Run, int], None]) -> None:
        now = seen(run)
        if now > self._seen[run]:  # what a killed run had not committed is played once more, and not counted again
            step(run, now - self._seen[run])
            self._seen[run] = now

    def _ended(self, step: Callable[[Run, int], None]) -> Iterator[str]:
        """Take those that have ended from the running ones; a line for each that failed."""
        for run in [run for run, child in self._running.items() if child.poll() is not None]:
            code = self._running.pop(run).returncode
            self._follow(run, step)
            if code or not is_done(self.plan, run):
                yield f"{run.arm}, seed {run.seed} failed ({_last_words(run)}); its output is in {run.log}"

    def _stop(self) -> None:
        for child in self._running.values():
            child.terminate()
        for child in self._running.values():
            child.wait()


def command(plan: Plan, run: Run, warm: Sequence[str]) -> list[str]:
    """The `arena` command line that starts or resumes a run."""
    if (run.path / CONFIG).exists():
        return ["resume", str(run.path), "--json"]
    config = str(plan.folder / EXPERIMENT)
    chosen = ["--config", config, "--arm", run.arm, "--seed", str(run.seed), "--out", str(run.path), "--json"]
    return ["run", "selfplay", *chosen, *(part for setting in warm for part in ("--set", setting))]


def warm_settings(plan: Plan, run: Run, first: Run) -> list[str]:
    """Settings of an arm that begins as the first arm's imitation ended; none where it imitates by itself."""
    if run.arm not in plan.spec.warm or not _weights(first):
        return []
    found: list[str] = []
    for name, policy in with_arm(plan.experiment, run.arm).policies.items():
        if policy.train and policy.imitate:
            begun = json.dumps(f"{first.path.absolute()}@0:{name}")
            found += [f"policies.{name}.{part}" for part in ("imitate=null", "adapter=null", f"model={begun}")]
    return found


def is_done(plan: Plan, run: Run) -> bool:
    """Return True if all its iterations are committed, and evaluated where asked for, or its end is known already."""
    if (run.arm, run.seed) in plan.kept:
        return True
    if plan.iterations(run.arm) not in checkpoints.iterations(run.path):
        return False
    asked = with_arm(plan.experiment, run.arm).evaluate
    return (run.path / EVALUATION).exists() or not (asked and asked.games)


def seen(run: Run) -> int:
    """Return the number of iterations in its metrics."""
    place = run.path / METRICS
    return place.read_bytes().count(b"\n") if place.exists() else 0


def _weights(run: Run) -> bool:
    """Return True if its first weights, after imitation, are kept."""
    return 0 in checkpoints.iterations(run.path)


def _last_words(run: Run, most: int = 300) -> str:
    lines = run.log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("arena: ")[:most] if lines else "it said nothing"


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
