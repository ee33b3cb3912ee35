"""The runs of a study as Ray tasks, each with a processor of its own, on nodes that share this machine's files.

A run is begun there by the same command as here. Where its worker or node is lost, the run is resumed elsewhere as soon
as nothing writes into its folder any more; nothing that it had committed is lost.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from arena.errors import ConfigError
from arena.evaluate.study.plan import Run
from arena.evaluate.study.runs import Begin, resumed
from arena.process import LAUNCHERS, command_line, end_with, environment_of_children
from arena.scale.cluster import connected
from arena.store.locks import in_use

RESTARTS = 3
"""How often a run is resumed whose worker was lost."""
PATIENCE = 180.0
"""Seconds in which a node has to answer, or a run to end that is asked to; on a busy one a worker starts slowly."""
POLL = 0.2
PASSED_ON = ("ARENA_", "GOMP_", "OMP_", "PYTHONPATH")
"""Beginnings of variables that are passed on; keys belong into the environment of the nodes."""


@contextmanager
def on_ray(address: str, folder: Path) -> Iterator[tuple[Begin, int]]:
    """Join the cluster: what begins a run there, and how many processors it has.

    ConfigError where a node has another Arena than this one, or does not see the study's folder.
    """
    with ExitStack() as joined:
        try:
            joined.enter_context(connected(address, 0))
        except ConfigError as error:
            raise ConfigError(str(error).replace("scale.address", "--on-ray")) from None
        yield Task, _processors(address, folder.absolute())


class Task:
    """A run as a Ray task; see `arena.evaluate.study.runs.Task`."""

    def __init__(self, run: Run, words: Sequence[str]) -> None:
        import ray

        self._ray, self.run, self._words = ray, run, words
        self._work = ray.remote(num_cpus=1, max_retries=0)(run_command)
        self._restarts, self._asked_to_end = 0, False
        self._task: Any = self._begun()

    def poll(self) -> int | None:
        """Return its exit code, None while it goes on or is to be resumed."""
        if self._task is None:
            if not in_use(self.run.path):  # a child of a lost worker may still be ending
                self._task = self._begun()
            return None
        if not self._ray.wait([self._task], timeout=0)[0]:
            return None
        try:
            return int(self._ray.get(self._task))
        except self._ray.exceptions.RayError as error:
            why = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        if self._asked_to_end or self._restarts == RESTARTS:
            self._note(f"its Ray task is gone ({why})")
            return 1
        self._restarts += 1
        self._note(f"its Ray task is gone ({why}); it is resumed")
        self._task = None
        return None

    def terminate(self) -> None:
        """Ask it to end."""
        self._asked_to_end = True
        if self._task is not None:
            # the worker ends, and the kernel then has its run end as by SIGTERM; Ray's gentler way was seen to be lost
            self._ray.cancel(self._task, force=True)

    def wait(self) -> int:
        """Wait for its end, and until nothing writes into its folder; return its exit code."""
        if self._task is None:
            return 1
        self._ray.wait([self._task], timeout=PATIENCE)
        last = monotonic() + PATIENCE
        while in_use(self.run.path) and monotonic() < last:
            sleep(POLL)
        code = self.poll()
        return 1 if code is None else code

    def _begun(self) -> Any:
        words = resumed(self.run) or list(self._words)
        passed = {name: value for name, value in environment_of_children().items() if name.startswith(PASSED_ON)}
        return self._work.remote(words, str(self.run.log.absolute()), os.getcwd(), passed)

    def _note(self, line: str) -> None:
        with self.run.log.open("a") as log:
            log.write(f"arena: {line}\n")


def run_command(words: Sequence[str], log: str, folder: str, environ: Mapping[str, str]) -> int:
    """Run an `arena` command in this folder to its end, in the worker; it ends when the worker does."""
    own = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
    with open(log, "ab") as output:
        child = subprocess.Popen(
            command_line(words),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**own, "OMP_NUM_THREADS": "1", **environ},
            process_group=0,
            preexec_fn=partial(end_with, os.getpid()),
        )
    try:
        while (code := child.poll()) is None:
            sleep(POLL)
        return code
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()


def seen_from_here(folder: str) -> tuple[str, bool]:
    """Return a node's version of Arena, and whether it sees a folder."""
    return _own_version(), Path(folder).is_dir()


def _own_version() -> str:
    try:
        return version("arena-selfplay")
    except PackageNotFoundError:  # a checkout that is not installed
        return "not installed"


def _processors(address: str, folder: Path) -> int:
    """Count the processors of the nodes; ConfigError unless all can run Arena and see the folder."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = next(place for place in (folder, *folder.parents) if place.is_dir())
    ask = ray.remote(num_cpus=0, max_retries=0)(seen_from_here)
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    if not nodes:
        raise ConfigError(f"--on-ray: the cluster at {address} has no node with a processor: add one")
    asked = {
        ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
            str(there)
        ): node["NodeManagerAddress"]
        for node in nodes
    }
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE)
    if silent:
        raise ConfigError(f"--on-ray: node {asked[silent[0]]} does not answer in {PATIENCE:g} s: remove or restart it")
    own = _own_version()
    for answer in answered:
        try:
            theirs, sees = ray.get(answer)
        except ray.exceptions.RayError as error:
            why = str(error).strip().splitlines()[-1][:200]
            raise ConfigError(f"--on-ray: node {asked[answer]} cannot run Arena ({why}): install it there") from None
        if theirs != own:
            raise ConfigError(f"--on-ray: node {asked[answer]} has arena {theirs}, this machine {own}: install one")
        if not sees:
            raise ConfigError(f"--on-ray: node {asked[answer]} does not see {there}: --out must be on shared files")
    return int(sum(node["Resources"]["CPU"] for node in nodes)) or 1
