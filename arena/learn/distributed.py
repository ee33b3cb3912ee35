"""DeepSpeed's footing: accelerator, process group, quiet logs. Import this before deepspeed."""

import logging
import os
import socket
import warnings
from functools import cache
from typing import Any

import torch


@cache
def deepspeed() -> Any:
    """The deepspeed module, ready for use in this process: alone, or as a launcher's environment says."""
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}.items():
        os.environ.setdefault(name, value)
    if os.environ["WORLD_SIZE"] == "1" or "MASTER_PORT" not in os.environ:  # alone, an inherited port may be taken
        os.environ["MASTER_PORT"] = str(_free_port())
    import deepspeed

    if os.environ["WORLD_SIZE"] == "1":  # one process needs no shared-memory collectives: spare it their compiler
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    logging.getLogger("deepspeed").setLevel(logging.ERROR)  # "DeepSpeed" is quiet already: arena/process.py
    # torch 2.13 deprecates the collectives that DeepSpeed 0.19 calls; the user can do nothing about it
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    deepspeed.init_distributed(dist_backend="nccl" if torch.cuda.is_available() else "gloo", verbose=False)
    return deepspeed


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
