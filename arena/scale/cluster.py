"""Ray cluster of a run: start it on this machine or join an existing one, and reserve resources for all processes.

A cluster started here listens on loopback only. It ends with this process, even if this process is killed: a reaper
process kills what Ray leaves behind.
"""

import os
import secrets
import signal
import socket
import sys
import tempfile
from asyncio import sleep, to_thread
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, chdir, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Any

from agents.engines import reaper
from agents.engines.kinds import list_kinds_with
from agents.engines.reaper import stderr_to
from agents.engines.spec import EngineSpec
from agents.model_config import first_line
from arena.errors import ConfigError
from arena.process import count_cores
from arena.scale.settings import ScaleSpec, WorkerResources
from arena.scale.shipping import FolderSender
from arena.scale.watchdog import Watchdog

PLACEMENT_SECONDS = 120.0
"""Timeout for reserving resources for the run's processes."""
MIN_AMOUNT = 0.001
"""Smallest amount of a resource, used where any positive amount does."""
CONNECT_SECONDS = 5.0
"""Timeout for connecting to a cluster."""
FOLDER_PREFIX, SOCKET_SUFFIX = "arena-ray-", "/r/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"
"""Prefix of a cluster's folder and suffix of its longest socket path. The whole path may have at most 107 bytes."""
_QUIET = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
_ENVIRONMENT = {
    "RAY_BACKEND_LOG_LEVEL": "error",  # Ray's core writes warnings to stderr
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # makes Ray listen on loopback only
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # else Ray kills an engine if other programs fill the memory
    "RAY_worker_niceness": "0",  # the default of 15 would starve the run on a busy machine
    "PYTHONSAFEPATH": "1",
}
"""Environment of a cluster started here."""


@dataclass(frozen=True)
class Cluster:
    """Connected Ray cluster with resources reserved for a run.

    The methods return the options of one process for `ray.remote(Class).options(**options)`.
    """

    spec: ScaleSpec
    group: Any
    """Ray's placement group, with a bundle for each trainer, engine and task, in that order."""
    watchdog: Watchdog
    sender: FolderSender = field(default_factory=FolderSender)
    """Sends model folders to other nodes."""

    def get_trainer_options(self, rank: int) -> dict[str, Any]:
        """Return Ray's options for the actor of a DeepSpeed rank: processors, GPUs and the reserved bundle."""
        return self._actor_options(self.spec.resources.trainer, rank)

    def get_engine_options(self, index: int) -> dict[str, Any]:
        """Return Ray's options for an engine's actor by index. It serves calls concurrently and is never restarted."""
        bundle = self.spec.trainers + index
        return self._actor_options(self.spec.resources.engine, bundle) | {"max_restarts": 0, "max_concurrency": 10_000}

    def get_task_options(self) -> dict[str, Any]:
        """Return Ray's options for a task that runs a simulator's slow call. It may use any free reserved bundle."""
        return self._actor_options(self.spec.resources.task, -1)

    def _actor_options(self, resources: WorkerResources, bundle: int) -> dict[str, Any]:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(self.group, bundle)
        return {"num_cpus": resources.cpus, "num_gpus": resources.gpus, "scheduling_strategy": strategy}


@asynccontextmanager
async def open_cluster(
    spec: ScaleSpec, note: Callable[[str], None], is_restart: bool = False
) -> AsyncIterator[Cluster]:
    """Connect to or start Ray, reserve a run's resources, and yield the cluster for the duration of the block.

    `note` gets messages to the user. Raises ConfigError if Ray cannot be started or joined, or lacks resources. With
    `is_restart`, it first waits up to `PLACEMENT_SECONDS` for nodes to join.
    """
    total = sum_resources(list_bundles(spec))
    if spec.address is None and total["CPU"] > count_cores():
        request = describe_resources(total)
        note(f"scale: {request} are requested, and this machine has {count_cores()}: processes share them")
    with connect(spec.address, total["CPU"]):
        watchdog = Watchdog(note, spec.patience, spec.deadline)
        try:
            yield Cluster(spec, await reserve(spec, PLACEMENT_SECONDS if is_restart else 0.0), watchdog)
        finally:
            await watchdog.close()


def list_bundles(spec: ScaleSpec) -> list[dict[str, float]]:
    """Return the resource requests of a run's processes, in Ray's format: trainers, then engines, then tasks."""
    kinds, counts = spec.resources, (spec.trainers, spec.engines, spec.tasks)
    each = zip((kinds.trainer, kinds.engine, kinds.task), counts, strict=True)
    return [_bundle(resources) for resources, count in each for _ in range(count)]


def _bundle(resources: WorkerResources) -> dict[str, float]:
    return {"CPU": resources.cpus, "GPU": resources.gpus} | ({resources.nodes: MIN_AMOUNT} if resources.nodes else {})


def sum_resources(bundles: list[dict[str, float]]) -> dict[str, float]:
    """Return the total of each resource over the bundles, such as {"CPU": 4.0, "GPU": 1.0}."""
    return {kind: sum(bundle.get(kind, 0.0) for bundle in bundles) for kind in {"CPU", "GPU"}.union(*bundles)}


def describe_processes(spec: ScaleSpec) -> str:
    """Describe the processes of a run, such as `2 trainers, 1 engines and 0 tasks`."""
    return f"{spec.trainers} trainers, {spec.engines} engines and {spec.tasks} tasks"


def describe_resources(resources: Mapping[str, float]) -> str:
    """Describe Ray's resources, such as `4 processors and 1 GPUs`, or without GPUs `4 processors`."""
    gpus = f" and {resources.get('GPU', 0):g} GPUs" if resources.get("GPU") else ""
    return f"{resources.get('CPU', 0):g} processors{gpus}"


async def reserve(spec: ScaleSpec, patience: float = 0.0) -> Any:
    """Reserve a run's resources in the connected cluster. Returns Ray's placement group, with one bundle per process.

    Raises ConfigError if the cluster is still too small after `patience` seconds, or has no free resources within
    `PLACEMENT_SECONDS`.
    """
    import ray

    requested = list_bundles(spec)
    cluster = f"the cluster at {spec.address}" if spec.address else "this machine"
    request = f"scale: {describe_processes(spec)} take {describe_resources(sum_resources(requested))}"
    deadline = monotonic() + patience
    while shortage := _describe_shortage(sum_resources(requested), ray.cluster_resources()):
        if monotonic() >= deadline:
            raise ConfigError(f"{request}, and {cluster} {shortage}")
        await sleep(1.0)
    usable = [{kind: value for kind, value in bundle.items() if value} or {"CPU": MIN_AMOUNT} for bundle in requested]
    group = ray.util.placement_group(usable, strategy="PACK")
    if not await to_thread(group.wait, PLACEMENT_SECONDS):
        free = describe_resources(ray.available_resources())
        ray.util.remove_placement_group(group)
        raise ConfigError(
            f"{request}, and {cluster} had no room for {PLACEMENT_SECONDS:g} s ({free} are free): "
            "wait, or ask for fewer"
        )
    return group


def _describe_shortage(requested: Mapping[str, float], present: Mapping[str, float]) -> str:
    """Return an error message about missing resources, with a remedy; "" if the `present` resources suffice."""
    short = [kind for kind in requested if requested[kind] > present.get(kind, 0)]
    if custom := [kind for kind in short if kind not in ("CPU", "GPU")]:
        resources = f"--resources='{{\"{custom[0]}\": 1}}'"
        return f"has no node with the resource {custom[0]!r}: start one there (ray start {resources} …)"
    available = f"{present.get('CPU', 0):g} processors and {present.get('GPU', 0):g} GPUs"
    return f"has {available}: ask for fewer, or for less in scale.resources" if short else ""


def check_installed() -> None:
    """Raise ConfigError unless Ray is installed. Does not import it."""
    if find_spec("ray") is None:
        raise ConfigError("scale: Ray is not installed: pip install 'arena-selfplay[scale]', or run without `scale`")


@contextmanager
def connect(address: str | None, cpus: float) -> Iterator[None]:
    """Connect to Ray at `address`, or if None start it here with `cpus` processors, for the duration of the block.

    Blocks the event loop for some seconds, because Ray must be started in the main thread. Raises ConfigError if it
    fails.
    """
    check_installed()
    if "ray" in sys.modules:
        _check_imported(address)
    with _join(address) if address else _start(cpus):
        yield


def _check_imported(address: str | None) -> None:
    """Raise ConfigError if the already imported Ray is in use, or has read its environment before we could set it."""
    import ray

    if ray.is_initialized():
        raise ConfigError("scale: this process uses Ray already: end that first (ray.shutdown()), or run in a new one")
    if address is None and ray._private.ray_constants.ENABLE_RAY_CLUSTER:  # read when it is imported
        raise ConfigError(
            "scale: this process imported Ray before Arena could set its environment, so Ray cannot be started here: "
            "run in a process that does not import it first, or join a cluster with scale.address"
        )


@contextmanager
def _start(cpus: float) -> Iterator[None]:
    """Run a Ray cluster in a private temporary folder for the duration of the block. Then end all its processes."""
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=_find_short_folder()))
    before = dict(os.environ)
    watching = reaper.watch(folder)
    os.environ |= _ENVIRONMENT | {"RAY_AUTH_TOKEN": _get_token()}
    try:
        # Ray's default folder is readable by all users; this one is not
        _init(num_cpus=max(1, ceil(cpus)), _temp_dir=f"{folder}/r", **_QUIET)
        # child processes, such as sandboxes for model code, must not inherit the token or the reaper's mark
        _restore(before)
        yield
    finally:
        _shut_down()
        watching.terminate()
        watching.wait()
        reaper.reap(str(folder))
        _restore(before)


@contextmanager
def _join(address: str) -> Iterator[None]:
    """Join the Ray cluster at this address for the duration of the block. Raises ConfigError if none answers."""
    if address != "auto":
        check_address(address)
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except OSError as error:
            raise ConfigError(
                f"scale.address: no Ray cluster answers at {address} ({first_line(error)}): start one there "
                f"(ray start --head --port {port}), or remove address to start one here"
            ) from None
    before, paths = dict(os.environ), os.environ.get("PYTHONPATH")
    os.environ |= {"RAY_BACKEND_LOG_LEVEL": "error", "RAY_USAGE_STATS_ENABLED": "0"}
    try:
        _init(address=address, runtime_env={"env_vars": {"PYTHONPATH": paths}} if paths else None, **_QUIET)
        _restore(before)
        yield
    finally:
        _shut_down()
        _restore(before)


def check_address(address: str) -> None:
    """Raise ConfigError unless the address is `auto` or host:port."""
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise ConfigError(f"scale.address: {address!r} is neither auto nor host:port, such as 10.0.0.1:6379")


def _init(**settings: Any) -> None:
    """Call `ray.init` without its output or signal handlers. Raises ConfigError if it fails.

    Runs in the root directory, because Ray puts the working directory first in its workers' import path.
    """
    handler = signal.getsignal(signal.SIGTERM)
    try:
        import ray

        # log_to_driver does not silence reports of dead actors, which we print ourselves
        ray._private.worker.print_to_stdstream = lambda *arguments, **options: None
        # Ray's core repeats the exception's message on stderr
        with chdir("/"), stderr_to(Path(os.devnull)):
            ray.init(**settings)
    except Exception as error:  # noqa: BLE001 Ray fails with many types of exceptions
        address = settings.get("address")
        fix = (
            "is one running there, with this RAY_AUTH_TOKEN and this version of Ray (arena doctor --scale)?"
            if address
            else "is there room in /dev/shm, in the temporary folder, and for more processes?"
        )
        failure = f"could not be joined at {address}" if address else "could not be started"
        raise ConfigError(f"scale: Ray {failure} ({type(error).__name__}: {first_line(error)[:300]}): {fix}") from None
    finally:
        with suppress(ValueError):  # outside the main thread, Ray has not changed it
            signal.signal(signal.SIGTERM, handler)


def _shut_down() -> None:
    import ray

    handler = signal.getsignal(signal.SIGTERM)
    ray.shutdown()
    with suppress(ValueError):
        signal.signal(signal.SIGTERM, handler)


def _restore(environ: Mapping[str, str]) -> None:
    """Reset the variables that `_start` and `_join` set to their values in `environ`."""
    for name in (reaper.MARK, "RAY_AUTH_TOKEN", *_ENVIRONMENT):
        os.environ.pop(name, None)
        if name in environ:
            os.environ[name] = environ[name]


@cache
def _get_token() -> str:
    """Return the authentication token of this process's clusters. Ray reads it once per process."""
    return secrets.token_hex(32)


def _find_short_folder() -> str | None:
    """Return "/tmp" if Ray's socket paths would be too long in the default temporary folder, else None."""
    path = f"{tempfile.gettempdir()}/{FOLDER_PREFIX}12345678{SOCKET_SUFFIX}"
    return "/tmp" if len(os.fsencode(path)) > 107 and os.access("/tmp", os.W_OK) else None


def check_scale(spec: ScaleSpec, engine: EngineSpec) -> None:
    """Raise ConfigError if Ray is not installed or a run's requested resources are invalid. Does not import Ray.

    Without an address, this machine must have the requested GPUs.
    """
    check_installed()
    if spec.address is not None:
        check_address(spec.address)
    resources = spec.resources
    if resources.trainer.gpus > 1:
        raise ConfigError(
            f"scale.resources.trainer.gpus: {resources.trainer.gpus:g}: a rank uses one GPU: ask for more trainers"
        )
    if resources.engine.gpus > 1 and not engine.capabilities.uses_several_gpus:
        raise ConfigError(
            f"scale.resources.engine.gpus: {resources.engine.gpus:g}: {engine.kind} computes a model on one GPU: "
            f"set engine.kind to {list_kinds_with('uses_several_gpus')}, or ask for more engines"
        )
    for kind, request in (("engine", resources.engine), ("task", resources.task), ("trainer", resources.trainer)):
        if request.gpus > 1 and request.gpus != int(request.gpus):
            raise ConfigError(f"scale.resources.{kind}.gpus: {request.gpus:g}: more than one must be a whole number")
        if request.nodes and spec.address is None:
            raise ConfigError(
                f"scale.resources.{kind}.nodes: {request.nodes!r}: a cluster of this machine alone has no such nodes: "
                f"join one with scale.address"
            )
    if spec.address is None:
        _check_gpus(spec)


def _check_gpus(spec: ScaleSpec) -> None:
    """Raise ConfigError if this machine has too few GPUs. Processors are not checked, because processes share them."""
    requested = sum_resources(list_bundles(spec))
    if not requested["GPU"]:
        return
    import torch

    if requested["GPU"] > (available := torch.cuda.device_count()):
        raise ConfigError(
            f"scale: {describe_processes(spec)} take {describe_resources(requested)}, and this machine has "
            f"{available} GPUs: join a cluster with scale.address, ask for "
            f"{ceil(requested['GPU'] - available)} fewer, or for shares of one in scale.resources"
        )
