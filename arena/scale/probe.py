"""Inspection of a cluster for `arena doctor`: its nodes, their installed versions, and free resources."""

import asyncio
import os
import platform
import shutil
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from agents.model_config import first_line
from agents.weights import home
from arena.errors import ConfigError
from arena.scale.cluster import bundles, connect, describe_resources, reserve, sum_resources
from arena.scale.settings import ScaleSpec

NODE_SECONDS = 120.0
"""Timeout for a node's answer."""
ARENA = ("agents", "arena", "games", "simulators")
"""Arena's packages."""
_PACKAGES = ("arena-selfplay", "torch", "transformers", "deepspeed", "ray", "vllm")


@dataclass(frozen=True)
class Node:
    """Node of a Ray cluster, as `arena doctor` reports it."""

    address: str
    resources: str
    """Processors and GPUs, as text."""
    installed: dict[str, str]
    """Versions of Python and of the packages that a run needs, or `missing`."""
    trouble: str = ""
    """Why the node cannot be used; "" if it can."""

    def find_differences(self, own: dict[str, str]) -> list[str]:
        """Return a text for each package whose version on this node differs from `own`, the versions here."""
        return [f"{name} {has}, here {own[name]}" for name, has in self.installed.items() if has != own[name]]


def read_versions() -> dict[str, str]:
    """Return this process's versions of Python and of what a scaled run needs; `missing` if absent.

    The hash of Arena's code tells two checkouts of one version apart.
    """
    found = {"python": platform.python_version(), "Arena's code": _hash_code()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def inspect_here() -> tuple[dict[str, str], str, str]:
    """Return this node's installed versions, free room as text, and why no model can be kept there. Runs as a task."""
    room, trouble = [], ""
    if os.path.isdir("/dev/shm"):
        room.append(f"{shutil.disk_usage('/dev/shm').free / 1e9:.1f} GB free in /dev/shm")
    try:
        home().mkdir(parents=True, exist_ok=True)
        room.append(f"{shutil.disk_usage(home()).free / 1e9:.1f} GB free in {home()}")
        if not os.access(home(), os.W_OK):
            trouble = f"nothing can be written in {home()}, where models are kept: set ARENA_HOME there"
    except OSError as error:
        trouble = f"models cannot be kept in {home()} ({first_line(error)}): set ARENA_HOME there"
    return read_versions(), ", ".join(room), trouble


def _hash_code() -> str:
    """Return the beginning of the hash of all modules of Arena's packages."""
    root, found = Path(__file__).parents[2], sha256()
    for path in sorted(path for package in ARENA for path in (root / package).rglob("*.py")):
        found.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:8]


async def probe(spec: ScaleSpec) -> tuple[list[Node], str]:
    """Inspect the cluster of a run: return its live nodes, and why it has no room for the run ("" if it has).

    Starts a cluster on this machine if the settings have no address. Raises ConfigError if none can be reached.
    """
    with connect(spec.address, sum_resources(bundles(spec))["CPU"]):
        import ray  # after `connect` has set its environment

        alive = [node for node in ray.nodes() if node["Alive"]]
        nodes = await asyncio.gather(*(_inspect(node) for node in alive))
        try:
            ray.util.remove_placement_group(await reserve(spec))
        except ConfigError as error:
            return nodes, str(error)
        return nodes, ""


async def _inspect(node: dict[str, Any]) -> Node:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    address, resources = node["NodeManagerAddress"], describe_resources(node["Resources"])
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    call = ray.remote(inspect_here).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote()
    try:
        async with asyncio.timeout(NODE_SECONDS):
            found, room, trouble = await call
    except TimeoutError:
        return Node(address, resources, {}, f"it did not answer for {NODE_SECONDS:g} s")
    except ray.exceptions.RayTaskError as error:
        return Node(address, resources, {}, f"Arena cannot be used there: {type(error.cause).__name__}: {error.cause}")
    except ray.exceptions.RayError as error:
        return Node(address, resources, {}, f"it does not answer ({type(error).__name__})")
    return Node(address, f"{resources}, {room}", found, trouble)
