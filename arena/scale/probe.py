"""Inspection of a cluster for `arena doctor`: its nodes, their installed versions, and their free resources."""

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
from arena.scale.cluster import connect, describe_resources, list_bundles, reserve, sum_resources
from arena.scale.settings import ScaleSpec
from arena.scale.shipping import run_on_node
from arena.scale.worker import WorkerDied

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
        """Describe each package whose version on this node differs from `own`, the versions on the driver."""
        return [f"{name} {has}, here {own[name]}" for name, has in self.installed.items() if has != own[name]]


def read_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a scaled run needs, by name; `missing` if not installed.

    A hash of Arena's code distinguishes two checkouts of one version.
    """
    versions = {"python": platform.python_version(), "Arena's code": _hash_code()}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "missing"
    return versions


def inspect_here() -> tuple[dict[str, str], str, str]:
    """Inspect this node, as a Ray task. Returns installed versions, free space as text, and a fault or "".

    The fault is why models cannot be stored here.
    """
    space, fault = [], ""
    if os.path.isdir("/dev/shm"):
        space.append(f"{shutil.disk_usage('/dev/shm').free / 1e9:.1f} GB free in /dev/shm")
    try:
        home().mkdir(parents=True, exist_ok=True)
        space.append(f"{shutil.disk_usage(home()).free / 1e9:.1f} GB free in {home()}")
        if not os.access(home(), os.W_OK):
            fault = f"nothing can be written in {home()}, where models are kept: set ARENA_HOME there"
    except OSError as error:
        fault = f"models cannot be kept in {home()} ({first_line(error)}): set ARENA_HOME there"
    return read_versions(), ", ".join(space), fault


def _hash_code() -> str:
    """Return the first 8 hexadecimal digits of a hash over all modules of Arena's packages."""
    root, digest = Path(__file__).parents[2], sha256()
    for path in sorted(path for package in ARENA for path in (root / package).rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:8]


async def probe(spec: ScaleSpec) -> tuple[list[Node], str]:
    """Inspect a run's cluster. Returns its live nodes, and why the run does not fit ("" if it does).

    Starts a cluster on this machine if the settings have no address. Raises ConfigError if no cluster can be reached.
    """
    with connect(spec.address, sum_resources(list_bundles(spec))["CPU"]):
        import ray  # after `connect` has set its environment

        alive = [node for node in ray.nodes() if node["Alive"]]
        nodes = await asyncio.gather(*(_inspect(node) for node in alive))
        try:
            ray.util.remove_placement_group(await reserve(spec))
        except ConfigError as error:
            return nodes, str(error)
        return nodes, ""


async def _inspect(node: dict[str, Any]) -> Node:
    address, resources = node["NodeManagerAddress"], describe_resources(node["Resources"])
    try:
        async with asyncio.timeout(NODE_SECONDS):
            found, room, trouble = await run_on_node(node["NodeID"], inspect_here)
    except TimeoutError:
        return Node(address, resources, {}, f"no answer within {NODE_SECONDS:g} s")
    except WorkerDied as error:
        return Node(address, resources, {}, str(error))
    except Exception as error:  # noqa: BLE001 the node may raise anything
        return Node(address, resources, {}, f"Arena cannot be used there: {type(error).__name__}: {error}")
    return Node(address, f"{resources}, {room}", found, trouble)
