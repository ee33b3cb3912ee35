"""Runs of a study as Ray tasks, one processor each, on nodes that share a file system with this machine.

A task starts a run by the same command as on one machine. If its worker or node is lost, the run is resumed on another
one as soon as no process uses its folder; committed iterations are kept.
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
from arena.evaluate.study.runs import Begin, resume_command
from arena.process import LAUNCHERS, build_child_command, build_child_environment, end_with_parent
from arena.scale.cluster import connect
from arena.store.locks import is_in_use

RESTARTS = 3
"""Maximum number of resumes per run after a lost worker."""
PATIENCE = 180.0
"""Seconds within which a node must answer and a terminated run must end. Workers start slowly on busy nodes."""
POLL = 0.2
PASSED_ON = ("ARENA_", "GOMP_", "OMP_", "PYTHONPATH")
"""Prefixes of environment variables that runs inherit. API keys belong in the nodes' own environment."""


@contextmanager
def join_cluster(address: str, folder: Path) -> Iterator[tuple[Begin, int]]:
    """Join the Ray cluster, and yield the function that starts a run there and the number of processors.

    Raises ConfigError if a node has another version of Arena or does not see the study's folder.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(connect(address, 0))
        except ConfigError as error:
            raise ConfigError(str(error).replace("scale.address", "--on-ray")) from None
        yield Task, _count_processors(address, folder.absolute())


class Task:
    """Run as a Ray task (`arena.evaluate.study.runs.Task`), resumed up to `RESTARTS` times if its worker is lost."""

    def __init__(self, run: Run, arguments: Sequence[str]) -> None:
        """Start the run with the arguments of its `arena` command, or resume it if its folder exists."""
        import ray

        self._ray, self.run, self._arguments = ray, run, arguments
        self._work = ray.remote(num_cpus=1, max_retries=0)(run_command)
        self._restarts, self._asked_to_end = 0, False
        self._task: Any = self._submit()

    def poll(self) -> int | None:
        """Return the exit code, 1 for a run whose worker was lost too often; None while the run is in progress.

        A run that lost its worker is resumed once no process uses its folder.
        """
        if self._task is None:
            if not is_in_use(self.run.path):  # a lost worker's child may still be ending
                self._task = self._submit()
            return None
        if not self._ray.wait([self._task], timeout=0)[0]:
            return None
        try:
            return int(self._ray.get(self._task))
        except self._ray.exceptions.RayError as error:
            reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        if self._asked_to_end or self._restarts == RESTARTS:
            self._note(f"lost its Ray task ({reason})")
            return 1
        self._restarts += 1
        self._note(f"lost its Ray task ({reason}); resuming")
        self._task = None
        return None

    def terminate(self) -> None:
        """Ask the run to end by cancelling its Ray task; it is not resumed then."""
        self._asked_to_end = True
        if self._task is not None:
            # The worker dies, and the kernel then sends SIGTERM to its child. A cancellation without force is sometimes
            # lost.
            self._ray.cancel(self._task, force=True)

    def wait(self) -> int:
        """Wait until the run has ended and no process uses its folder. Returns the exit code; 1 after `PATIENCE`."""
        if self._task is None:
            return 1
        self._ray.wait([self._task], timeout=PATIENCE)
        last = monotonic() + PATIENCE
        while is_in_use(self.run.path) and monotonic() < last:
            sleep(POLL)
        code = self.poll()
        return 1 if code is None else code

    def _submit(self) -> Any:
        arguments = resume_command(self.run) or list(self._arguments)
        inherited = {name: value for name, value in build_child_environment().items() if name.startswith(PASSED_ON)}
        return self._work.remote(arguments, str(self.run.log.absolute()), os.getcwd(), inherited)

    def _note(self, line: str) -> None:
        with self.run.log.open("a") as log:
            log.write(f"arena: {line}\n")


def run_command(arguments: Sequence[str], log: str, folder: str, environ: Mapping[str, str]) -> int:
    """Run an `arena` command in `folder` within a worker, and return its exit code.

    The output is appended to the file `log`. The command ends if the worker does.
    """
    own = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
    with open(log, "ab") as output:
        child = subprocess.Popen(
            build_child_command(arguments),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**own, "OMP_NUM_THREADS": "1", **environ},
            process_group=0,
            preexec_fn=partial(end_with_parent, os.getpid()),
        )
    try:
        while (code := child.poll()) is None:
            sleep(POLL)
        return code
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()


def probe_node(folder: str) -> tuple[str, bool]:
    """Return the version of Arena on the node where this runs, and True if `folder` exists there."""
    return _find_version(), Path(folder).is_dir()


def _find_version() -> str:
    try:
        return version("arena-selfplay")
    except PackageNotFoundError:  # running from a checkout
        return "not installed"


def _count_processors(address: str, folder: Path) -> int:
    """Return the number of the nodes' processors. Raises ConfigError unless all can run Arena and see the folder."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    existing = next(place for place in (folder, *folder.parents) if place.is_dir())
    ask = ray.remote(num_cpus=0, max_retries=0)(probe_node)
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    if not nodes:
        raise ConfigError(f"--on-ray: the cluster at {address} has no node with a processor: add one")
    addresses = {
        ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
            str(existing)
        ): node["NodeManagerAddress"]
        for node in nodes
    }
    answered, pending = ray.wait(list(addresses), num_returns=len(addresses), timeout=PATIENCE)
    if pending:
        raise ConfigError(
            f"--on-ray: node {addresses[pending[0]]} does not answer in {PATIENCE:g} s: remove or restart it"
        )
    own = _find_version()
    for answer in answered:
        try:
            theirs, sees = ray.get(answer)
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1][:200]
            raise ConfigError(
                f"--on-ray: node {addresses[answer]} cannot run Arena ({reason}): install it there"
            ) from None
        if theirs != own:
            raise ConfigError(f"--on-ray: node {addresses[answer]} has arena {theirs}, this machine {own}: install one")
        if not sees:
            raise ConfigError(
                f"--on-ray: node {addresses[answer]} does not see {existing}: --out must be on a shared file system"
            )
    return int(sum(node["Resources"]["CPU"] for node in nodes)) or 1
