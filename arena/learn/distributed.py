"""DeepSpeed's environment: accelerator, process group and log levels. Import this module before deepspeed."""

import logging
import os
import socket
import warnings
from datetime import timedelta
from functools import cache
from typing import Any

import torch
from torch import distributed

from arena.learn.ranks import Rank, set_rank


@cache
def get_deepspeed() -> Any:
    """Return the deepspeed module, initialised for this process, as the only rank unless `join_ranks` was called."""
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    if not distributed.is_initialized():
        _create_single_rank()
    import deepspeed

    # shared-memory collectives need a compiler and most of a minute to build, and a killed rank leaves files behind
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    logging.getLogger("deepspeed").setLevel(logging.ERROR)  # arena/process.py silences the logger "DeepSpeed"
    # torch 2.13 deprecates the collectives that DeepSpeed 0.19 calls; the user can do nothing about it
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    deepspeed.init_distributed(dist_backend=distributed.get_backend(), verbose=False)
    return deepspeed


def join_ranks(
    number: int, count: int, address: str, listener: socket.socket | int, timeout: timedelta, shares_gpu: bool = False
) -> None:
    """Make this process rank `number` of `count`, before it trains anything. Waits for the other ranks.

    They meet at `address`: rank 0 passes the bound socket `listener`, the others its port. `timeout` limits the
    rendezvous and every later collective operation. Ranks that share a GPU (`shares_gpu`) use gloo: NCCL refuses them.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    os.environ |= {"RANK": str(number), "LOCAL_RANK": "0", "WORLD_SIZE": str(count), "MASTER_ADDR": address}
    if address == "127.0.0.1":
        _stay_on_loopback()
    port, descriptor = (listener, None) if isinstance(listener, int) else (listener.getsockname()[1], listener.detach())
    os.environ["MASTER_PORT"] = str(port)
    store = TCPStore(address, port, count, number == 0, timeout, master_listen_fd=descriptor)
    backend = "gloo" if shares_gpu else _choose_backend()
    distributed.init_process_group(backend, store=store, rank=number, world_size=count, timeout=timeout)
    set_rank(Rank(number, count, distributed.new_group(backend="gloo", timeout=timeout)))
    get_deepspeed()


def _create_single_rank() -> None:
    """Create a process group of one rank. Its store is in memory, without a port that others could connect to."""
    from torch.distributed import HashStore  # type: ignore[attr-defined]

    os.environ.setdefault("LOCAL_RANK", "0")
    _stay_on_loopback()
    distributed.init_process_group(_choose_backend(), store=HashStore(), rank=0, world_size=1)


def _stay_on_loopback() -> None:
    """Bind collectives to loopback unless the user's environment names an interface."""
    for library in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")


def _choose_backend() -> str:
    return "nccl" if torch.cuda.is_available() else "gloo"
