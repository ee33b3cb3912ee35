"""What vLLM's worker processes do for the vLLM engine: load weights anew, and end when their owner is gone.

vLLM mixes `Publishing` into its workers; `vllm` itself is imported within them only.
"""

import os
import select
import shutil
import signal
import threading
from contextlib import suppress
from typing import Any

OWNER, SCRATCH = "ARENA_VLLM_OWNER", "ARENA_VLLM_SCRATCH"
"""In the environment of vLLM's processes: the process that they work for, and the folder which it keeps for them."""


class Publishing:
    """An extension of vLLM's worker."""

    model_runner: Any

    def arena_reload(self, folder: str) -> None:
        """Load a folder's weights in place of the present ones."""
        self.model_runner.reload_weights(weights_path=folder)
        model = self.model_runner.model
        from vllm.platforms import current_platform

        if current_platform.is_cpu() and getattr(model.config, "tie_word_embeddings", False):
            # The CPU build keeps the head in a form of its own, which a reload forgets where head and embedding are
            # one: replies would come from the new body and the old head.
            from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

            model.lm_head.weight = model.model.embed_tokens.weight
            dispatch_cpu_unquantized_gemm(model.lm_head, remove_weight=False)


def _leave_with(owner: int) -> None:
    """Wait for the owner's end, however it comes; then end vLLM's core, which started this worker, and this worker."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(owner)
        select.select([handle], [], [])
    if scratch := os.environ.get(SCRATCH):
        shutil.rmtree(scratch, ignore_errors=True)
    for process in (os.getppid(), os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


if (_owner := os.environ.get(OWNER)) and int(_owner) != os.getpid():
    threading.Thread(target=_leave_with, args=(int(_owner),), daemon=True).start()
