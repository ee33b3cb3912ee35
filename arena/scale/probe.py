"""A look at a cluster: which nodes it has, what is installed on each, and whether there is room for a run."""

import asyncio
import os
import platform
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from arena.errors import ConfigError
from arena.scale.cluster import bundles, connected, described, room, total
from arena.scale.settings import ScaleSpec

ANSWERED = 120.0
"""Seconds that a node has to answer."""
_PACKAGES = ("arena-selfplay", "torch", "transformers", "deepspeed", "ray", "vllm")


@dataclass(frozen=True)
class Node:
    """A node of a cluster."""

    address: str
    resources: str
    """Processors and GPUs, in words."""
    installed: dict[str, str]
    """Versions of Python and of what a run needs; `missing` where there is none."""
    trouble: str = ""
    """Why it does not answer."""

    def differs(self, own: dict[str, str]) -> list[str]:
        """What is installed there in another version than here."""
        return [f"{name} {has}, here {own[name]}" for name, has in self.installed.items() if has != own[name]]


def installed() -> dict[str, str]:
    """Versions of Python and of what a run on several processes needs, in this process."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def standing() -> tuple[dict[str, str], int]:
    """What is installed on this node, and the bytes free in memory for Ray's store; Arena has to be there for that."""
    return installed(), shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0


async def probe(spec: ScaleSpec) -> tuple[list[Node], str]:
    """The nodes, and why there is no room for such a run; "" where there is. ConfigError where there is no cluster."""
    with connected(spec.address, total(bundles(spec))["CPU"]):
        import ray  # which reads its settings then

        alive = [node for node in ray.nodes() if node["Alive"]]
        nodes = await asyncio.gather(*(_looked(node) for node in alive))
        try:
            ray.util.remove_placement_group(await room(spec))
        except ConfigError as error:
            return nodes, str(error)
        return nodes, ""


async def _looked(node: dict[str, Any]) -> Node:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    address, resources = node["NodeManagerAddress"], described(node["Resources"])
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    call = ray.remote(standing).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote()
    try:
        async with asyncio.timeout(ANSWERED):
            found, free = await call
    except TimeoutError:
        return Node(address, resources, {}, f"it did not answer for {ANSWERED:g} s")
    except ray.exceptions.RayTaskError as error:
        return Node(address, resources, {}, f"Arena cannot be used there: {type(error.cause).__name__}: {error.cause}")
    except ray.exceptions.RayError as error:
        return Node(address, resources, {}, f"it does not answer ({type(error).__name__})")
    return Node(address, f"{resources}, {free / 1e9:.1f} GB free in /dev/shm", found)
