"""Broadcast of weights from rank 0 to engines, bucket by bucket, in a process group that exists for one broadcast.

Receivers connect to the sender's store and wait there until it begins. The sender may not notice a receiver's death:
only the receiver's own answer to the driver shows that it has received everything.
"""

import mmap
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Self

import torch

from agents.model_config import first_line
from arena.scale.layout import Gather, Layout, PlainSpec, Slice

POLL = 0.01
"""Seconds between two checks of the store by a waiting receiver."""

CONNECT = timedelta(seconds=30)
"""Timeout for the members of a broadcast to connect. It is short, because all of them have just answered a call."""


class TransferFailed(Exception):
    """Raised if a broadcast ended early. Receivers may then hold weights of two versions."""


@dataclass(frozen=True)
class Link:
    """Connection settings of one member of a broadcast. Member 0 is the sender, rank 0."""

    key: str
    """Name of the broadcast, unique during the lifetime of the sender's store."""
    address: str
    """Address of the sender's store."""
    port: int
    count: int
    """Number of members."""
    timeout: float
    """Timeout of each collective operation in seconds."""
    patience: float
    """Seconds that receivers wait for the sender to begin."""
    bucket: int
    """Bytes of a bucket."""
    shared: bool = False
    """True if all members are on one machine and share the memory of two buckets."""
    nccl: bool = False
    """True to use NCCL, because each member has its own GPU; otherwise gloo is used."""
    member: int = 0
    """Index of this member."""
    own_address: str = "127.0.0.1"
    """Address of this member."""

    def for_member(self, member: int, address: str) -> Self:
        """Return the settings of another member, whose address is `address`."""
        return replace(self, member=member, own_address=address)


class Rendezvous:
    """Key-value store of rank 0 through which the members of broadcasts connect, on a free port of one address."""

    def __init__(self, address: str) -> None:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, 0), family=family)
        self.port = int(listener.getsockname()[1])
        self.store = TCPStore(
            address, self.port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach(),
            timeout=timedelta(seconds=60),
        )  # fmt: skip


def send(link: Link, rendezvous: Rendezvous, layout: Layout, gather: Gather) -> str:
    """Broadcast the tensors of a layout as rank 0. Returns the error message if that failed, else "".

    `gather` is called for all tensors even after a failure, because the other ranks wait in it.
    """
    failure, channel, descriptor = "", None, None
    try:
        if link.shared:
            descriptor = os.memfd_create("arena-weights")
            os.ftruncate(descriptor, 2 * link.bucket)
        rendezvous.store.set(f"{link.key}/begins", f"/proc/{os.getpid()}/fd/{descriptor}")
        channel = _Channel(link, rendezvous.store, layout, descriptor)
    except (RuntimeError, OSError) as error:  # errors of torch.distributed are RuntimeErrors
        failure = first_line(error)
    finally:
        if descriptor is not None:
            os.close(descriptor)
    for number in layout.buckets(link.bucket):
        bucket = None if channel is None or failure else channel.bucket(number)
        layout.fill(number, link.bucket, gather, bucket)
        try:
            if channel and bucket is not None:
                channel.exchange(bucket)
        except RuntimeError as error:
            failure = first_line(error)
    return failure


def await_sender(link: Link) -> Any:
    """Wait until the sender begins, and return its store. Raises TransferFailed on a timeout or error."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    with _convert_errors():
        timeout = timedelta(seconds=link.timeout)
        store = TCPStore(link.address, link.port, is_master=False, wait_for_workers=False, timeout=timeout)
        deadline = time.monotonic() + link.patience
        while not store.check([f"{link.key}/begins"]):
            if time.monotonic() > deadline:
                raise TransferFailed(f"the ranks did not begin to send within {link.patience:g} s")
            time.sleep(POLL)
    return store


def receive_slices(link: Link, store: Any, layout: Layout) -> Iterator[tuple[Slice, torch.Tensor]]:
    """Receive and yield each slice with its values, which the next bucket may overwrite.

    Raises TransferFailed.
    """
    with _convert_errors():
        descriptor = os.open(store.get(f"{link.key}/begins").decode(), os.O_RDWR) if link.shared else None
        try:
            channel = _Channel(link, store, layout, descriptor)
        finally:
            if descriptor is not None:
                os.close(descriptor)
    for number in layout.buckets(link.bucket):
        bucket = channel.bucket(number)
        with _convert_errors():
            channel.exchange(bucket)
        for part in layout.slices(number, link.bucket):
            yield part, part.view(bucket)


def receive_tensors(
    number: int, specs: Sequence[PlainSpec], link: Mapping[str, Any]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Receive a broadcast in process `number` of an engine, and yield names and complete tensors.

    `specs` is a layout from `to_plain`. `link` is the link of the engine's first process, as a dict. Tensors do not
    share memory. Raises TransferFailed.
    """
    first, layout, tensor = Link(**link), Layout.from_plain(specs), torch.empty(0)
    own_link = first.for_member(first.member + number, first.own_address)
    for piece, values in receive_slices(own_link, await_sender(own_link), layout):
        if piece.start == 0:
            tensor = torch.empty(piece.spec.elements, dtype=piece.spec.dtype, device=values.device)
        tensor[piece.start : piece.stop] = values
        if piece.stop == piece.spec.elements:
            yield piece.spec.name, tensor.view(piece.spec.shape)


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert errors of torch's collectives and of shared memory to TransferFailed."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        raise TransferFailed(first_line(error)) from None


class _Channel:
    """Connection of one member to a broadcast: its process group and its memory for buckets.

    On one machine, all members map the same two buckets. The sender fills one while the receivers read the other, and
    the process group only synchronises them.
    """

    def __init__(self, link: Link, store: Any, layout: Layout, descriptor: int | None) -> None:
        """Connect to the other members. `descriptor` is of a file with the shared buckets, None without sharing.

        Raises RuntimeError or OSError.
        """
        from torch import distributed
        from torch.distributed import PrefixStore  # type: ignore[attr-defined]

        self._link, self._layout = link, layout
        if descriptor is not None:
            self._memory = torch.frombuffer(mmap.mmap(descriptor, 2 * link.bucket), dtype=torch.uint8)
        else:
            size, device = min(link.bucket, layout.total), "cuda" if link.nccl else "cpu"
            self._memory = torch.empty(size, dtype=torch.uint8, device=device)
        timeout, prefixed_store = timedelta(seconds=link.timeout), PrefixStore(link.key, store)
        store.set_timeout(min(timeout, CONNECT))
        self._options = distributed.BroadcastOptions()
        self._options.rootRank, self._options.rootTensor = 0, 0
        self._group: Any
        if link.nccl:
            options = distributed.ProcessGroupNCCL.Options()
            options._timeout = timeout
            self._group = distributed.ProcessGroupNCCL(prefixed_store, link.member, link.count, options)
        else:
            gloo: Any = distributed.ProcessGroupGloo
            options = gloo._Options()
            options._timeout = timeout
            options._devices = [gloo.create_device(hostname=link.own_address)]
            self._group = gloo(prefixed_store, link.member, link.count, options)

    def bucket(self, number: int) -> torch.Tensor:
        """Return the memory of bucket `number`. The next bucket overwrites it; with shared memory, the next but one."""
        at = number % 2 * self._link.bucket if self._link.shared else 0
        return self._memory[at : at + self._layout.length(number, self._link.bucket)]

    def exchange(self, bucket: torch.Tensor) -> None:
        """Send or receive a bucket. Raises RuntimeError on a timeout or if a member is gone."""
        if self._link.shared:
            self._group.barrier().wait()
            return
        self._group.broadcast([bucket], self._options).wait()
        if bucket.is_cuda:
            torch.cuda.synchronize(bucket.device)


def gpu_of_this_process() -> str:
    """Return the unique id of this process's GPU, or "" if it has none."""
    return str(torch.cuda.get_device_properties(0).uuid) if torch.cuda.is_available() else ""
