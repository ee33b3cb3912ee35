"""Access from the driver to a policy's tensors on the trainer ranks, one bucket at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agents.adapter import save_matrices
from agents.policy import Origin
from agents.published import RemoteTensors, RemoteWeights
from arena.scale.layout import FILE_BUCKET, Layout
from arena.scale.rank import PolicyDescription
from arena.scale.ranks import Ranks
from arena.scale.transfer import Link

Fetch = Callable[[Layout, int], Awaitable[np.ndarray]]
"""(layout, bucket number) -> the bucket's bytes, gathered on rank 0 from all ranks."""


class WeightsGone(Exception):
    """Raised if the ranks no longer hold the weights, because their next update has begun."""


class RankTensors(RemoteTensors):
    """Mapping from names to tensors of a layout, which are fetched from the ranks when read.

    Read them in the layout's order, because only the last bucket is cached.
    """

    def __init__(self, layout: Layout, fetch: Fetch) -> None:
        self.layout, self._fetch = layout, fetch
        self._last: tuple[int, torch.Tensor] | None = None

    def __iter__(self) -> Iterator[str]:
        return (spec.name for spec in self.layout.specs)

    def __len__(self) -> int:
        return len(self.layout.specs)

    def __getitem__(self, name: str) -> torch.Tensor:
        spec = next((spec for spec in self.layout.specs if spec.name == name), None)
        if spec is None:
            raise KeyError(name)
        tensor = torch.empty(spec.shape, dtype=spec.dtype)
        for number in self.layout.buckets(FILE_BUCKET):
            for part in self.layout.slices(number, FILE_BUCKET):
                if part.spec is spec:
                    tensor.view(-1)[part.start : part.stop] = part.view(self._bucket(number))
        return tensor

    def _bucket(self, number: int) -> torch.Tensor:
        if self._last is None or self._last[0] != number:
            self._last = number, torch.tensor(run_blocking(self._fetch(self.layout, number)))
        return self._last[1]

    def write(self, path: Path, metadata: Mapping[str, str]) -> None:
        """Write the tensors to a safetensors file, bucket by bucket. Blocks the calling thread."""
        with path.open("wb") as file:
            file.write(self.layout.header(metadata))
            for number in self.layout.buckets(FILE_BUCKET):
                file.write(run_blocking(self._fetch(self.layout, number)).data)


@dataclass(frozen=True)
class RankWeights(RemoteWeights):
    """Published weights of a policy on the trainer ranks, valid until their next update."""

    name: str
    """Name of the policy."""
    origin: Origin
    description: PolicyDescription
    tensors: RankTensors
    """The policy's tensors, as a checkpoint stores them."""
    is_current: Callable[[], bool]
    """Return True while the ranks hold these weights, which is until the next update begins."""
    ranks: Ranks
    send: Callable[[Layout, Link], Awaitable[str]]
    """Broadcast a layout's tensors from rank 0. Returns the error message if that failed, else ""."""

    def write(self, folder: Path) -> None:
        """Write a full model in Hugging Face layout without its tokenizer, or an adapter in peft's layout."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.description.scale is not None:
            matrices = dict(self.tensors)
            layers = dict.fromkeys(name.rpartition(".")[0] for name in matrices)
            pairs = {name: (matrices[f"{name}.a"], matrices[f"{name}.b"]) for name in layers}
            save_matrices(pairs, self.description.scale, folder, self.origin.base_name)
            return
        for name, data in self.description.settings.items():
            (folder / name).write_bytes(data)
        self.tensors.write(folder / "model.safetensors", {"format": "pt"})


def run_blocking(work: Awaitable[Any]) -> Any:
    """Wait for an awaitable in a separate thread with its own event loop, and return its result.

    Works even if an event loop is running in this thread.
    """

    async def await_work() -> Any:
        return await work

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, await_work()).result()
