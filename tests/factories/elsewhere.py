"""An engine in a child process: a second implementation of `Engine`, over a pipe."""

import asyncio
import multiprocessing
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

import agents.attention  # noqa: F401 unpickled models use it
from agents.engines.base import Completion, Request
from agents.engines.in_process import InProcessEngine
from agents.precision import Precision
from agents.published import FolderWeights, ModuleWeights, Weights
from agents.stream import Stream


def serve_engine(pipe: Connection, threads: int, precision: Precision) -> None:
    """Serve an engine over the pipe until it sends None."""
    torch.set_num_threads(threads)
    engine = InProcessEngine(precision)

    async def answer() -> None:
        while call := await asyncio.to_thread(pipe.recv):
            name, arguments = call
            reply = getattr(engine, name)(*arguments)
            pipe.send(await reply if asyncio.iscoroutine(reply) else reply)

    asyncio.run(answer())


class ProcessEngine:
    """Engine in a child process, which batches concurrent requests."""

    capabilities, max_context = InProcessEngine.capabilities, 10**9

    def __init__(self, precision: Precision = Precision.FP32) -> None:
        self.precision = precision
        self._pipe: Any = None
        self._child: Any = None
        self._waiting: list[tuple[Request, asyncio.Future[Completion]]] = []
        self._one_at_a_time = asyncio.Lock()

    async def open(self) -> None:
        """Start the process."""
        self._pipe, child_end = multiprocessing.Pipe()
        spawn = multiprocessing.get_context("spawn")
        self._child = spawn.Process(
            target=serve_engine, args=(child_end, torch.get_num_threads(), self.precision), daemon=True
        )
        self._child.start()
        child_end.close()

    async def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._pipe.send(None)
            await asyncio.to_thread(self._child.join)
            self._child = None

    def figures(self) -> dict[str, float]:
        """Return no figures."""
        return {"seconds": 0.0}

    async def publish(self, policy: str, version: int, weights: Weights) -> None:
        """Publish a folder, which the child reads, or a module, which goes through the pipe."""
        assert isinstance(weights, ModuleWeights | FolderWeights)
        await self._call("publish", policy, version, replace(weights, gather=nullcontext))

    async def release(self, policy: str) -> None:
        """Release the child's caches."""
        await self._call("release", policy)

    async def retire(self, policy: str) -> None:
        """Stop serving the policy."""
        await self._call("retire", policy)

    def forget(self, key: str) -> None:
        """Do nothing; the next publication frees the cache."""

    async def score(
        self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float], full_vocabulary: bool = False
    ) -> list[np.ndarray]:
        """Return log-probabilities of the sampled tokens."""
        scores: list[np.ndarray] = await self._call("score", policy, list(streams), list(temperatures), full_vocabulary)
        return scores

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Return one completion per request; waits briefly for further requests of the batch."""
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in requests]
        self._waiting += zip(requests, futures, strict=True)
        async with self._one_at_a_time:
            count = 0
            while count != len(self._waiting):
                count = len(self._waiting)
                for _ in range(3):
                    await asyncio.sleep(0)
            waiting, self._waiting = self._waiting, []
            replies = await self._exchange("generate", [request for request, _ in waiting]) if waiting else []
            for (_, future), reply in zip(waiting, replies, strict=True):
                future.set_result(reply)
        return [await future for future in futures]

    async def _call(self, name: str, *arguments: Any) -> Any:
        async with self._one_at_a_time:
            return await self._exchange(name, *arguments)

    async def _exchange(self, name: str, *arguments: Any) -> Any:
        def exchange() -> Any:
            self._pipe.send((name, arguments))
            return self._pipe.recv()

        return await asyncio.to_thread(exchange)
