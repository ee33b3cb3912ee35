"""Ray for one run: started here, on loopback and for this run alone, or joined; and room in it for the processes.

What is started here ends with this process, however that ends: a reaper kills what Ray leaves behind.
"""

import os
import secrets
import signal
import socket
import sys
import tempfile
from asyncio import to_thread
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, chdir, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import Any

from agents.engines import reaper
from agents.engines.spec import EngineSpec
from agents.engines.stderr import stderr_to
from agents.model_config import first_line
from arena.errors import ConfigError
from arena.process import cores
from arena.scale.settings import ScaleSpec, WorkerResources
from arena.scale.watchdog import Watchdog

PLACED = 120.0
"""Seconds that a cluster has to make room for the run's processes."""
REACHED = 5.0
"""Seconds that a cluster has to take a connection."""
FOLDER, SOCKET = "arena-ray-", "/r/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"
"""How the names of a cluster's folder and of a socket in it begin and end; the system takes paths of 107 bytes."""
_QUIET = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
_SETTINGS = {
    "RAY_BACKEND_LOG_LEVEL": "error",  # its core writes warnings to stderr
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # which is Ray's name for: listen on loopback alone
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # else an engine is killed where other programs fill the memory
    "RAY_worker_niceness": "0",  # else 15: beside other work, what plays and learns would starve
    "PYTHONSAFEPATH": "1",
}
"""Environment of a cluster that is started here."""


@dataclass(frozen=True)
class Cluster:
    """Room for a run's processes: what goes into `ray.remote(Class).options(**…)` for each of them."""

    spec: ScaleSpec
    group: Any
    """Ray's placement group: a bundle for each trainer, engine and task, in that order."""
    watchdog: Watchdog

    def trainer(self, rank: int) -> dict[str, Any]:
        """Options of a rank."""
        return self._options(self.spec.resources.trainer, rank)

    def engine(self, index: int) -> dict[str, Any]:
        """Options of an engine, an actor whose methods are coroutines."""
        place = self.spec.trainers + index
        return self._options(self.spec.resources.engine, place) | {"max_restarts": 0, "max_concurrency": 10_000}

    def task(self) -> dict[str, Any]:
        """Options of a task, which takes whichever place is free."""
        return self._options(self.spec.resources.task, -1)

    def _options(self, asked: WorkerResources, place: int) -> dict[str, Any]:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(self.group, place)
        return {"num_cpus": asked.cpus, "num_gpus": asked.gpus, "scheduling_strategy": strategy}


@asynccontextmanager
async def placed(spec: ScaleSpec, note: Callable[[str], None]) -> AsyncIterator[Cluster]:
    """A cluster with room for a run; ConfigError says in a line what is asked for and what there is."""
    wanted = total(bundles(spec))
    if spec.address is None and wanted["CPU"] > cores():
        note(f"scale: {described(wanted)} are asked for, and this machine has {cores()}: they take turns")
    with connected(spec.address, wanted["CPU"]):
        watchdog = Watchdog(note, spec.patience, spec.deadline)
        try:
            yield Cluster(spec, await room(spec), watchdog)
        finally:
            await watchdog.close()


def bundles(spec: ScaleSpec) -> list[dict[str, float]]:
    """Reservations in Ray, process by process: trainers, engines, tasks."""
    kinds, counts = spec.resources, (spec.trainers, spec.engines, spec.tasks)
    each = zip((kinds.trainer, kinds.engine, kinds.task), counts, strict=True)
    return [{"CPU": one.cpus, "GPU": one.gpus} for one, count in each for _ in range(count)]


def total(asked: list[dict[str, float]]) -> dict[str, float]:
    """Return the sum of all bundles."""
    return {kind: sum(bundle[kind] for bundle in asked) for kind in ("CPU", "GPU")}


def processes(spec: ScaleSpec) -> str:
    """Return the processes of a run in words."""
    return f"{spec.trainers} trainers, {spec.engines} engines and {spec.tasks} tasks"


def described(resources: Mapping[str, float]) -> str:
    """Return processors and GPUs in words."""
    gpus = f" and {resources.get('GPU', 0):g} GPUs" if resources.get("GPU") else ""
    return f"{resources.get('CPU', 0):g} processors{gpus}"


async def room(spec: ScaleSpec) -> Any:
    """A placement group for a run; ConfigError says in a line what it takes and what there is."""
    import ray

    asked = bundles(spec)
    wanted, there = total(asked), ray.cluster_resources()
    where = f"the cluster at {spec.address}" if spec.address else "this machine"
    told = f"scale: {processes(spec)} take {described(wanted)}"
    if any(wanted[kind] > there.get(kind, 0) for kind in wanted):
        had = f"{there.get('CPU', 0):g} processors and {there.get('GPU', 0):g} GPUs"
        raise ConfigError(f"{told}, and {where} has {had}: ask for fewer, or for less in scale.resources")
    usable = [{kind: value for kind, value in bundle.items() if value} or {"CPU": 0.001} for bundle in asked]
    group = ray.util.placement_group(usable, strategy="PACK")
    if not await to_thread(group.wait, PLACED):
        free = described(ray.available_resources())
        ray.util.remove_placement_group(group)
        raise ConfigError(f"{told}, and {where} had no room for {PLACED:g} s ({free} are free): wait, or ask for fewer")
    return group


def check_installed() -> None:
    """ConfigError where Ray is not installed; nothing is loaded."""
    if find_spec("ray") is None:
        raise ConfigError("scale: Ray is not installed: pip install 'arena-selfplay[scale]', or run without `scale`")


@contextmanager
def connected(address: str | None, cpus: float) -> Iterator[None]:
    """Ray, joined at `address`, or started here with so many processors; ConfigError says in a line why not.

    It waits some seconds, within the loop: nothing is going on yet, and Ray must be started in the main thread.
    """
    check_installed()
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        raise ConfigError("scale: this process uses Ray already: end that first (ray.shutdown()), or run in a new one")
    with _joined(address) if address else _started(cpus):
        yield


@contextmanager
def _started(cpus: float) -> Iterator[None]:
    """Start a cluster of our own. Its files lie in a folder that no other user may enter, and that goes with it."""
    folder = Path(tempfile.mkdtemp(prefix=FOLDER, dir=_short()))
    before = dict(os.environ)
    watching = reaper.watch(folder)
    os.environ |= _SETTINGS | {"RAY_AUTH_TOKEN": _token()}
    try:
        # Ray opens its own folder to everybody
        _init(num_cpus=max(1, ceil(cpus)), _temp_dir=f"{folder}/r", **_QUIET)
        # our own children, such as those that run what a model wrote, get neither the token nor the mark
        _restore(before)
        yield
    finally:
        _shut_down()
        watching.terminate()
        watching.wait()
        reaper.reap(str(folder))
        _restore(before)


@contextmanager
def _joined(address: str) -> Iterator[None]:
    """A cluster that is there already, and stays there."""
    if address != "auto":
        check_address(address)
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACHED).close()
        except OSError as error:
            raise ConfigError(
                f"scale.address: no Ray cluster answers at {address} ({first_line(error)}): start one there "
                f"(ray start --head --port {port}), or leave address away to start one here"
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
    """ConfigError unless this is `auto`, or a host and a port."""
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise ConfigError(f"scale.address: {address!r} is neither auto nor host:port, such as 10.0.0.1:6379")


def _init(**settings: Any) -> None:
    """`ray.init`, with this process's signal handlers as they were, and a working directory that nobody imports from.

    Ray puts the driver's working directory first in its workers' path.
    """
    handler = signal.getsignal(signal.SIGTERM)
    try:
        import ray

        # log_to_driver is no answer to all of it: deaths of actors, which we tell of ourselves, would go to stdout
        ray._private.worker.print_to_stdstream = lambda *given, **named: None
        # its core repeats on stderr what the exception says
        with chdir("/"), stderr_to(Path(os.devnull)):
            ray.init(**settings)
    except Exception as error:  # noqa: BLE001 Ray has many ways to fail, all of which end the command with a line
        where = settings.get("address")
        fix = (
            "is one running there, with this RAY_AUTH_TOKEN and this version of Ray (arena doctor --scale)?"
            if where
            else "is there room in /dev/shm, in the temporary folder, and for more processes?"
        )
        told = f"could not be joined at {where}" if where else "could not be started"
        raise ConfigError(f"scale: Ray {told} ({type(error).__name__}: {first_line(error)[:300]}): {fix}") from None
    finally:
        with suppress(ValueError):  # outside of the main thread nothing was changed
            signal.signal(signal.SIGTERM, handler)


def _shut_down() -> None:
    import ray

    handler = signal.getsignal(signal.SIGTERM)
    ray.shutdown()
    with suppress(ValueError):
        signal.signal(signal.SIGTERM, handler)


def _restore(environ: Mapping[str, str]) -> None:
    for name in (reaper.MARK, "RAY_AUTH_TOKEN", *_SETTINGS):
        os.environ.pop(name, None)
        if name in environ:
            os.environ[name] = environ[name]


@cache
def _token() -> str:
    """The secret of this process's clusters: Ray reads it once in a process."""
    return secrets.token_hex(32)


def _short() -> str | None:
    """Return /tmp if paths of Ray's sockets in the temporary folder would be too long, else None."""
    path = f"{tempfile.gettempdir()}/{FOLDER}12345678{SOCKET}"
    return "/tmp" if len(os.fsencode(path)) > 107 and os.access("/tmp", os.W_OK) else None


def check_scale(spec: ScaleSpec, engine: EngineSpec) -> None:
    """ConfigError where Ray is not installed, or no cluster could give what is asked for; Ray is not loaded."""
    check_installed()
    if spec.address is not None:
        check_address(spec.address)
    asked = spec.resources
    if asked.trainer.gpus > 1:
        raise ConfigError(
            f"scale.resources.trainer.gpus: {asked.trainer.gpus:g}: a rank computes on one: ask for more trainers"
        )
    if asked.engine.gpus > 1 and engine.kind != "vllm":
        raise ConfigError(
            f"scale.resources.engine.gpus: {asked.engine.gpus:g}: only vllm spreads a model over several GPUs: "
            "set engine.kind to vllm, or ask for more engines"
        )
    for kind, one in (("engine", asked.engine), ("task", asked.task), ("trainer", asked.trainer)):
        if one.gpus > 1 and one.gpus != int(one.gpus):
            raise ConfigError(f"scale.resources.{kind}.gpus: {one.gpus:g}: more than one GPU is given whole")
    if spec.address is None:
        _check_here(spec)


def _check_here(spec: ScaleSpec) -> None:
    """ConfigError where this machine has too few GPUs; processors can be shared."""
    wanted = total(bundles(spec))
    if not wanted["GPU"]:
        return
    import torch

    if wanted["GPU"] > (there := torch.cuda.device_count()):
        raise ConfigError(
            f"scale: {processes(spec)} take {described(wanted)}, and this machine has {there} GPUs: "
            f"join a cluster with scale.address, ask for "
            f"{ceil(wanted['GPU'] - there)} fewer, or for shares of one in scale.resources"
        )
