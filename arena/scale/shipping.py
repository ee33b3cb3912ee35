"""Transfer of model folders from the driver to other nodes, without a shared file system.

A node that already has the same folder, by the hashes of its files, uses that. Otherwise the driver reads the files
bucket by bucket, and Ray tasks on the node store them.
"""

import asyncio
import json
import os
import secrets
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import sha256 as hash_of
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agents.adapter_config import CONFIG, is_adapter
from agents.errors import EngineError
from agents.model_folder import hash_file
from agents.weights import MANIFEST, home, resolve_base
from arena.scale.layout import FILE_BUCKET
from arena.scale.worker import WorkerDied

KEPT_SECONDS = 7 * 24 * 3600.0
"""Seconds since its last use after which a node deletes a received folder."""
_NOT_SENT = (MANIFEST, "optimizer.safetensors")
"""Files that are not sent: the manifest, which has a creation time, and the optimiser moments, which ranks receive in
buckets."""


class FileInfo(NamedTuple):
    """Name, size in bytes and hash of a file in a model folder. Nodes compare these instead of contents."""

    name: str
    size: int
    hash: str
    """SHA-256 in hexadecimal."""


class FolderInfo(NamedTuple):
    """Model folder of the driver: its path, and its files, by which other nodes recognise copies."""

    path: Path
    files: tuple[FileInfo, ...]

    @property
    def key(self) -> str:
        """Identifier derived from the files' names, sizes and hashes."""
        return hash_of(repr(self.files).encode()).hexdigest()[:32]


class FolderSender:
    """Sends model folders of the driver to the nodes of a connected cluster."""

    def __init__(self) -> None:
        self._locks: dict[Any, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Lock by event loop and node. A node receives one folder at a time, so no folder is sent twice."""

    async def send(self, node: str, path: Path) -> Path:
        """Send the driver's folder `path` to the node with this Ray id if it lacks it. Returns its path on that node.

        An adapter's base is sent, too. Raises WorkerDied if the node is gone, and EngineError if it cannot store files.
        """
        import ray

        if node == ray.get_runtime_context().get_node_id():
            return path
        async with self._locks[asyncio.get_running_loop(), node]:
            new_path = await self._send(node, path)
            if not is_adapter(path):
                return new_path
            base_folder = await asyncio.to_thread(resolve_base, path)
            base = await self._send(node, base_folder)
            return (
                new_path
                if (new_path, base) == (path, base_folder)
                else await run_on_node(node, rebase_adapter, new_path, base)
            )

    async def _send(self, node: str, path: Path) -> Path:
        folder = await asyncio.to_thread(describe_folder, path)
        found: Path | None = await run_on_node(node, find_folder, folder)
        if found is None:
            unfinished = f".{folder.key}-{secrets.token_hex(4)}"
            for file in folder.files:
                for offset in range(0, max(1, file.size), FILE_BUCKET):
                    data = await asyncio.to_thread(_read, path / file.name, offset)
                    await run_on_node(node, store_part, unfinished, file.name, offset, data)
            found = await run_on_node(node, complete_folder, folder, unfinished)
        return found


async def run_on_node(node: str, work: Any, *arguments: Any) -> Any:
    """Run a function as a Ray task on a node. Returns its result or raises its exception, or WorkerDied."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    try:
        task = ray.remote(work).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)
        return await task.remote(*arguments)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise WorkerDied(f"node {node[:8]} does not answer ({type(error).__name__})") from None


def describe_folder(path: Path) -> FolderInfo:
    """Describe a model folder by the files that are sent, with their hashes."""
    names = sorted(file.name for file in path.iterdir() if file.is_file() and file.name not in _NOT_SENT)
    stats = [(name, (path / name).stat()) for name in names]
    return _hash_files(path, tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats))


@lru_cache(maxsize=256)
def _hash_files(path: Path, stats: tuple[tuple[str, int, int], ...]) -> FolderInfo:
    """Describe a folder whose files are given as (name, size, modification time). Cached, so each is hashed once."""
    return FolderInfo(path, tuple(FileInfo(name, size, hash_file(path / name)) for name, size, _ in stats))


def _read(path: Path, offset: int) -> np.ndarray:
    with path.open("rb") as file:
        file.seek(offset)
        return np.frombuffer(file.read(FILE_BUCKET), np.uint8)


# -- on the other node ---------------------------------------------------------------------------------------


def find_folder(folder: FolderInfo) -> Path | None:
    """Return the path of an identical folder on this node, or None if there is none.

    Looks at the driver's path, among the built-in models, and among the folders received before.
    """
    received = _sent_root() / folder.key
    for path in (folder.path, home() / "models" / folder.path.name, received):
        try:
            has_sizes = all((path / file.name).stat().st_size == file.size for file in folder.files)
            if has_sizes and {*folder.files} <= {*describe_folder(path).files}:
                os.utime(received) if path == received else None
                return path
        except OSError:
            continue
    return None


def store_part(unfinished: str, name: str, offset: int, data: np.ndarray) -> None:
    """Write a part of a received file at a byte offset. `unfinished` is the name of the unfinished folder."""
    with _convert_errors():
        if offset == 0:
            _discard_old()
            (_sent_root() / unfinished).mkdir(parents=True, exist_ok=True)
        with (_sent_root() / unfinished / name).open("wb" if offset == 0 else "r+b") as file:
            file.seek(offset)
            file.write(data.data)


def complete_folder(folder: FolderInfo, unfinished: str) -> Path:
    """Check the hashes of the files in `unfinished`, rename it to the folder's final path, and return that path."""
    path = _sent_root() / folder.key
    with _convert_errors():
        for file in folder.files:
            if hash_file(_sent_root() / unfinished / file.name) != file.hash:
                raise EngineError(f"scale: {folder.path / file.name} changed while it was sent: start again")
        if find_folder(folder) == path:  # another run sent it meanwhile
            shutil.rmtree(_sent_root() / unfinished)
            return path
        shutil.rmtree(path, ignore_errors=True)
        (_sent_root() / unfinished).rename(path)
    return path


def rebase_adapter(adapter: Path, base: Path) -> Path:
    """Copy an adapter's folder on this node and set its base model's path to `base`. Returns the copy's path."""
    path = adapter.with_name(f"{adapter.name}-on-{hash_of(str(base).encode()).hexdigest()[:8]}")
    if adapter.parent != _sent_root():
        path = _sent_root() / path.name
    with _convert_errors():
        _sent_root().mkdir(parents=True, exist_ok=True)
        shutil.copytree(adapter, path, dirs_exist_ok=True)
        settings = json.loads((path / CONFIG).read_text("utf-8"))
        (path / CONFIG).write_text(json.dumps(settings | {"base_model_name_or_path": str(base)}), "utf-8")
    return path


def _sent_root() -> Path:
    return home() / "sent"


@contextmanager
def _convert_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EngineError(
            f"scale: a node cannot store a model in {_sent_root()} ({error}): set ARENA_HOME there"
        ) from None


def _discard_old() -> None:
    """Remove folders that have not been used for `KEPT_SECONDS`."""
    for path in _sent_root().glob("*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > KEPT_SECONDS:
                shutil.rmtree(path)
