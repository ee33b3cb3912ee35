"""Start and stop the processes of a vLLM server for one base model."""

import asyncio
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from agents.engines.base import EngineSettings
from agents.engines.reaper import stderr_to
from agents.errors import EngineError
from agents.layouts import sees
from agents.model_config import first_line, positions_in, read_json

LOG = "vllm.log"


def start(folder: Path, settings: EngineSettings, bf16: bool, rank: int, scratch: Path, gpus: int = 1) -> Any:
    """Start a vLLM engine on a folder's model, with room for adapters of up to `rank` (0: none).

    vLLM's stderr goes to `LOG` in `scratch`. Raises EngineError with the reason if it does not start.
    """
    try:
        with stderr_to(scratch / LOG):  # it would tear the live table
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.platforms import current_platform
            from vllm.v1.engine.async_llm import AsyncLLM

            length = min(settings.max_model_len, positions_in(folder))
            arguments: dict[str, Any] = {
                "model": str(folder),
                "dtype": "bfloat16" if bf16 else "float32",
                "max_model_len": length,
                "max_num_seqs": settings.max_batch,
                "kv_cache_memory_bytes": settings.cache_mb << 20,
                "skip_tokenizer_init": not sees(read_json(folder, "config.json")),  # images need its processor
                "logprobs_mode": "processed_logprobs",
                "generation_config": "vllm",
                "worker_extension_cls": "agents.engines.vllm_worker.Publishing",
                "disable_log_stats": True,
                "tensor_parallel_size": gpus,
            }
            if current_platform.is_cpu():
                # compiling takes minutes there; a seeded reply whose prompt comes in chunks ends the CPU build
                arguments |= {"enforce_eager": True, "enable_chunked_prefill": False}
                arguments["max_num_batched_tokens"] = max(length, 2048)
            if rank:
                # one slot stays empty: in the CPU build a reply without adapter would else get the last one's
                arguments |= {"enable_lora": True, "max_lora_rank": rank, "max_loras": settings.max_loras + 1}
            return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    except Exception as error:
        raise EngineError(f"engine vllm did not start on {folder}: {last_error(scratch, error)}") from error


async def stop(llm: Any) -> None:
    """Stop a vLLM engine and its processes, and wait for its output task."""
    handler = llm.output_handler
    llm.shutdown()
    llm.shutdown = _done  # it asks for that again when it is collected, perhaps after the interpreter has gone
    if handler is not None:
        await asyncio.gather(handler, return_exceptions=True)


def _done() -> None:
    """Do nothing, in place of the `shutdown` of a stopped engine."""


def last_error(scratch: Path, error: Exception) -> str:
    """Return the last error in the log of vLLM's processes in `scratch`, else the exception's message."""
    log = scratch / LOG
    said = log.read_text(errors="replace").splitlines() if log.exists() else []
    named = [line.rpartition("] ")[2].strip() for line in said if re.search(r"(Error|Exception)(: |$)", line)]
    named = [line for line in named if not re.search("See (root cause|stack trace)", line)]
    return (named[-1] if named else first_line(error))[:300]


def memory_folder() -> str | None:
    """Return /dev/shm if it is writable and has over 4 GiB free, as room for a model; else None."""
    shared = Path("/dev/shm")
    with suppress(OSError):
        if os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 4 << 30:
            return str(shared)
    return None
