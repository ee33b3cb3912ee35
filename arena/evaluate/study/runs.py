"""The runs of a study or a sweep: so many at a time, begun where none is, gone on with where one was stopped.

A run is an ordinary `arena run selfplay` or `arena resume`, so whatever ends a study, at most what no run has
committed yet is lost. Runs are child processes here; `Runner` takes what begins them elsewhere. Children end when the
study does; where one lingers, its folder is waited for.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import monotonic, sleep
from typing import Protocol

from arena.config.arms import with_arm
from arena.evaluate.held_out import FILE as EVALUATION
from arena.evaluate.study.plan import EXPERIMENT, Plan, Run
from arena.process import command_line, end_with, environment_of_children
from arena.store import checkpoints
from arena.store.contents import METRICS
from arena.store.files import CONFIG
from arena.store.locks import in_use
from games.plain_files import read_plain

POLL = 0.2
"""Seconds between two looks at the children."""


class Task(Protocol):
    """A run that goes on somewhere and writes into its folder here, as `subprocess.Popen` does."""

    def poll(self) -> int | None:
        """Return its exit code, None while it goes on."""

    def terminate(self) -> None:
        """Ask it to end."""

    def wait(self) -> int:
        """Wait for its end and return its exit code."""


Begin = Callable[[Run, Sequence[str]], Task]
"""Begins a run by the words of its `arena` command."""


def as_child(run: Run, words: Sequence[str]) -> Task:
    """Begin a run as a child process, which ends when this process does; its output goes to the run's log."""
    with run.log.open("ab") as output:
        return subprocess.Popen(
            command_line(words),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={"OMP_NUM_THREADS": "1", **environment_of_children()},
            process_group=0,  # Ctrl-C is for the study, which then ends them
            preexec_fn=partial(end_with, os.getpid()),  # a system call, nothing that could wait for a lock
        )


class Runner:
    """Runs of a plan: those that are due, are running, or have failed."""

    def __init__(self, plan: Plan, jobs: int, begin: Begin = as_child) -> None:
        """`jobs` are run at a time, each begun by `begin`."""
        self.plan, self.jobs, self._begun_by = plan, jobs, begin
        self.due = [run for run in plan.runs if not is_done(plan, run)]
        self.left = sum(plan.iterations(run.arm) - seen(run) for run in self.due)
        """Iterations that are to be played yet."""
        self.failures: list[str] = []
        """A line for each run that did not come to its end."""
        self.since: dict[Run, float] = {}
        """By run that goes on, when it was begun here, by the monotonic clock."""
        self._running: dict[Run, Task] = {}
        self._seen = {run: seen(run) for run in self.due}

    @property
    def running(self) -> list[Run]:
        """Return the runs that go on, in the order in which they were begun."""
        return list(self._running)

    def run(
        self,
        step: Callable[[Run, int], None],
        failed: Callable[[str], None],
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        """Run all that is due; however this ends, no child is left.

        `step` is called with how many more iterations of a run are done, `failed` with a line on each run that failed,
        `tick` some times a second.
        """
        try:
            while self.due or self._running:
                self._begin()
                tick()
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
                self._running[run], self.since[run] = self._child(run), monotonic()

    def _may_begin(self, run: Run) -> bool:
        """Unless another process has its folder, or it begins with weights that are being made."""
        first = self._first(run)
        made = run == first or not (first in self.due or first in self._running) or _weights(first)
        return not in_use(run.path) and (made or run.arm not in self.plan.spec.warm)

    def _first(self, run: Run) -> Run:
        """The run of its seed with whose imitation warm arms begin: the first arm's, else the first warm one's."""
        spec, arms = self.plan.spec, self.plan.arms
        first = self.plan.run(spec.arm, run.seed)
        if spec.arm in arms or _weights(first):
            return first
        return self.plan.run(next((arm for arm in arms if arm in spec.warm), spec.arm), run.seed)

    def _child(self, run: Run) -> Task:
        warm = warm_settings(self.plan, run, self._first(run))
        return self._begun_by(run, command(self.plan, run, warm))

    def _follow(self, run: Run, step: Callable[[Run, int], None]) -> None:
        now = seen(run)
        if now > self._seen[run]:  # what a killed run had not committed is played once more, and not counted again
            step(run, now - self._seen[run])
            self._seen[run] = now

    def _ended(self, step: Callable[[Run, int], None]) -> Iterator[str]:
        """Take those that have ended from the running ones; a line for each that failed."""
        ended = [(run, code) for run, child in self._running.items() if (code := child.poll()) is not None]
        for run, code in ended:
            del self._running[run], self.since[run]
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
    if words := resumed(run):
        return words
    config = str(plan.folder / EXPERIMENT)
    chosen = ["--config", config, "--arm", run.arm, "--seed", str(run.seed), "--out", str(run.path), "--json"]
    return ["run", "selfplay", *chosen, *(part for setting in warm for part in ("--set", setting))]


def resumed(run: Run) -> list[str]:
    """The `arena` command line that resumes a run; empty where none has begun."""
    return ["resume", str(run.path), "--json"] if (run.path / CONFIG).exists() else []


def warm_settings(plan: Plan, run: Run, first: Run) -> list[str]:
    """Settings of an arm that begins as the imitation of `first` ended; none where it imitates by itself."""
    if run == first or run.arm not in plan.spec.warm or not _weights(first):
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
    return read_plain(place).count(b"\n") if place.exists() else 0


def _weights(run: Run) -> bool:
    """Return True if its first weights, after imitation, are kept."""
    return 0 in checkpoints.iterations(run.path)


def _last_words(run: Run, most: int = 300) -> str:
    lines = read_plain(run.log).decode("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("arena: ")[:most] if lines else "it said nothing"
