"""vLLM server of one base model: starting and stopping it, replacing its weights, and sleep while its GPU trains."""

import asyncio
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.engines.base import EngineSettings
from agents.engines.reaper import stderr_to
from agents.errors import EngineError
from agents.eyes.layout import Vision
from agents.layouts import is_vision_config
from agents.model_config import first_line, read_json, read_positions

LOG = "vllm.log"
SAFE_PATH = "PYTHONSAFEPATH"
TRANSFER = "arena"
"""Name under which `vllm_transfer` registers our weight transfer with vLLM."""
FREE_SHARE = 0.01
"""Share of a GPU's memory that must be free when a server starts. The cache has its own size limit."""


@dataclass(kw_only=True)
class Server:
    """Running vLLM server of one base model. To replace its weights, call `pause`, `reload` or `receive`, `resume`."""

    llm: Any
    folder: Path
    """Folder of its current weights."""
    vocabulary: int
    """Number of token ids that the model accepts."""
    positions: int
    """Maximum tokens of a context with its reply."""
    vision: Vision | None = None
    """Image processing of the model; None for a text model."""
    rank: int = 0
    """Maximum adapter rank; 0 for none."""
    can_sleep: bool = False
    """Whether `sleep` can free its GPU memory."""
    is_asleep: bool = False

    async def sleep(self) -> None:
        """Move weights and CUDA graphs to host memory and drop the caches until `wake`. No-op without `can_sleep`."""
        if self.can_sleep and not self.is_asleep:
            await self.llm.sleep(level=1, mode="wait")
            self.is_asleep = True

    async def wake(self) -> None:
        """Restore the weights and graphs that `sleep` moved to the host."""
        if self.is_asleep:
            await self.llm.wake_up()
            self.is_asleep = False

    async def pause(self) -> None:
        """Finish the replies in progress and hold back new ones. Wakes a sleeping server's weights, not its caches."""
        if self.is_asleep:
            await self.llm.wake_up(tags=["weights"])  # `resume` restores the caches, when memory is free again
        else:
            await self.llm.pause_generation(mode="wait", clear_cache=True)

    async def resume(self) -> None:
        """Resume generation after `pause`. Raises EngineError if vLLM keeps prefixes cached under the old weights."""
        if self.is_asleep:
            await self.llm.wake_up(tags=["kv_cache"])
            self.is_asleep = False
        if not await self.llm.reset_prefix_cache():
            raise EngineError("vLLM kept its prefix cache after a weight change: replies would mix old and new weights")
        await self.llm.resume_generation()

    async def reload(self, folder: Path) -> None:
        """Replace the weights of the paused server by those of a folder."""
        await self.llm.collective_rpc("arena_reload", args=(str(folder),))
        self.folder = folder

    async def receive(self, update: Mapping[str, Any]) -> None:
        """Replace the weights of the paused server by those that its processes receive; see `vllm_transfer`."""
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        await self.llm.start_weight_update()
        await self.llm.update_weights(WeightTransferUpdateRequest(update_info=dict(update)))
        await self.llm.finish_weight_update()


def can_sleep() -> bool:
    """Return True if vLLM can free GPU memory temporarily; its CPU build cannot."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_sleep_mode_available())


def start(folder: Path, settings: EngineSettings, bf16: bool, rank: int, scratch: Path, gpus: int = 1) -> Any:
    """Start a vLLM engine on a folder's model, with adapters of at most this rank (0: no adapters).

    vLLM's stderr goes to `LOG` in `scratch`. Raises EngineError with the reason if it does not start.
    """
    try:
        with stderr_to(scratch / LOG), set_safe_path():  # stderr would garble the live display
            from vllm.config import WeightTransferConfig
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.platforms import current_platform
            from vllm.v1.engine.async_llm import AsyncLLM

            length = min(settings.max_model_len, read_positions(folder))
            arguments: dict[str, Any] = {
                "model": str(folder),
                "dtype": "bfloat16" if bf16 else "float32",
                "max_model_len": length,
                "max_num_seqs": settings.max_batch,
                "kv_cache_memory_bytes": settings.cache_mb << 20,
                "skip_tokenizer_init": not is_vision_config(
                    read_json(folder, "config.json")
                ),  # images need its processor
                "logprobs_mode": "processed_logprobs",
                "generation_config": "vllm",
                "worker_extension_cls": "agents.engines.vllm_transfer.ReloadExtension",
                "weight_transfer_config": WeightTransferConfig(backend=TRANSFER),
                "disable_log_stats": True,
                "tensor_parallel_size": gpus,
            }
            if can_sleep():
                # Otherwise vLLM refuses to start on a GPU that a trainer also uses.
                arguments |= {"enable_sleep_mode": True, "gpu_memory_utilization": FREE_SHARE}
                arguments["sleep_mode_offload_cudagraph"] = True
            if current_platform.is_cpu():
                # The CPU build takes minutes to compile, and crashes on a seeded request whose prompt is chunked.
                arguments |= {"enforce_eager": True, "enable_chunked_prefill": False}
                arguments["max_num_batched_tokens"] = max(length, 2048)
            if rank:
                # One slot stays empty: in the CPU build, a request without adapter would use the last slot's adapter.
                arguments |= {"enable_lora": True, "max_lora_rank": rank, "max_loras": settings.max_loras + 1}
            return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    except Exception as error:
        raise EngineError(f"engine vllm did not start on {folder}: {find_last_error(scratch, error)}") from error


@contextmanager
def set_safe_path() -> Iterator[None]:
    """Keep Python processes started in the block from importing modules from the working directory.

    The environment variable is removed afterwards, because agent programs may import modules from their own folder.
    """
    is_set = SAFE_PATH in os.environ
    os.environ.setdefault(SAFE_PATH, "1")
    try:
        yield
    finally:
        if not is_set:
            os.environ.pop(SAFE_PATH, None)


async def stop(llm: Any) -> None:
    """Stop a vLLM engine and its processes, and wait for its output task."""
    handler = llm.output_handler
    llm.shutdown()
    llm.shutdown = _do_nothing  # its finaliser calls `shutdown` again, maybe after the interpreter has been torn down
    if handler is not None:
        await asyncio.gather(handler, return_exceptions=True)


def _do_nothing() -> None:
    """Do nothing, instead of the `shutdown` of a stopped engine."""


def find_last_error(scratch: Path, error: Exception) -> str:
    """Return the last error in vLLM's log in `scratch`, or the exception's message if the log has none."""
    log = scratch / LOG
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    errors = [line.rpartition("] ")[2].strip() for line in lines if re.search(r"(Error|Exception)(: |$)", line)]
    errors = [line for line in errors if not re.search("See (root cause|stack trace)", line)]
    return (errors[-1] if errors else first_line(error))[:300]


def find_memory_folder() -> str | None:
    """Return /dev/shm if it is writable and has over 4 GiB free, enough for a model; else None."""
    shared = Path("/dev/shm")
    with suppress(OSError):
        if os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 4 << 30:
            return str(shared)
    return None
