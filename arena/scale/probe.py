"""Inspection of a cluster for `arena doctor`: its nodes, their installed versions, and free resources."""

import asyncio
import os
import platform
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from arena.errors import ConfigError
from arena.scale.cluster import bundles, connected, described, reserve, total
from arena.scale.settings import ScaleSpec

NODE_SECONDS = 120.0
"""Timeout for a node's answer."""
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

    def differs(self, own: dict[str, str]) -> list[str]:
        """Return a text for each package whose version on this node differs from `own`, the versions here."""
        return [f"{name} {has}, here {own[name]}" for name, has in self.installed.items() if has != own[name]]


def installed() -> dict[str, str]:
    """Return this process's versions of Python and of the packages that a scaled run needs; `missing` if absent."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def inspected() -> tuple[dict[str, str], int]:
    """Return this node's installed versions and the free bytes of /dev/shm (0 without one). Runs as a Ray task."""
    return installed(), shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0


async def probe(spec: ScaleSpec) -> tuple[list[Node], str]:
    """Inspect the cluster of a run: return its live nodes, and why it has no room for the run ("" if it has).

    Starts a cluster on this machine if the settings have no address. Raises ConfigError if none can be reached.
    """
    with connected(spec.address, total(bundles(spec))["CPU"]):
        import ray  # after `connected` has set its environment

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

    address, resources = node["NodeManagerAddress"], described(node["Resources"])
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    call = ray.remote(inspected).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote()
    try:
        async with asyncio.timeout(NODE_SECONDS):
            found, free = await call
    except TimeoutError:
        return Node(address, resources, {}, f"it did not answer for {NODE_SECONDS:g} s")
    except ray.exceptions.RayTaskError as error:
        return Node(address, resources, {}, f"Arena cannot be used there: {type(error.cause).__name__}: {error.cause}")
    except ray.exceptions.RayError as error:
        return Node(address, resources, {}, f"it does not answer ({type(error).__name__})")
    return Node(address, f"{resources}, {free / 1e9:.1f} GB free in /dev/shm", found)
