"""One DeepSpeed rank: a process with all trained policies, or its ZeRO share of them."""

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from agents.adapter import low_rank_layers
from agents.heap import trim_memory
from agents.model_folder import save_settings
from agents.packing import Costs, Pass
from agents.policy import Bases, Origin, trainable_parameters
from agents.scoring import StreamScores, score_passes
from arena.learn.distributed import join_ranks
from arena.learn.optimiser import gather_parameters
from arena.learn.ranks import get_rank
from arena.learn.settings import UpdateSpec
from arena.learn.trainer import PolicyTrainer
from arena.scale.layout import FILE_BUCKET, Layout, Spec
from arena.scale.parcels import Parcel, Streams, unpack
from arena.scale.transfer import Link, Rendezvous, gpu_of_this_process, send

Kind = Literal["weights", "moments"]
"""Tensors of a trainer."""


class RankLocation(NamedTuple):
    """Where a rank runs: node, network address, process and GPU ("" for none)."""

    node: str
    """Ray's id of the node."""
    address: str
    pid: int
    gpu: str


class Learner(NamedTuple):
    """Policy to train with its update settings, as sent to every rank, which loads the weights itself."""

    name: str
    origin: Origin
    rule: UpdateSpec
    bf16: bool
    """True to compute in bfloat16."""


class Form(NamedTuple):
    """Description of a policy on the ranks, without the values of its weights."""

    costs: Costs
    weights: Layout
    """Layout of all weights of a full model, or of the matrices of an adapter."""
    learned: Layout
    """Layout of the trained weights; all others come from the folder."""
    scale: float | None
    """Scale of an adapter; None for a full model."""
    settings: dict[str, bytes]
    """Files of a full model's folder besides its weights and tokenizer, such as config.json."""


class Rank:
    """Ray actor of one DeepSpeed rank. All ranks get the same calls in the same order.

    Of most calls, callers use only rank 0's result.
    """

    def __init__(self) -> None:
        self._trainers: dict[str, PolicyTrainer] = {}
        self._tensors: dict[str, dict[str, torch.Tensor]] = {}
        """Weights of each policy by name, partitioned under ZeRO-3."""
        self._arriving: dict[str, torch.Tensor] = {}
        """Moments of which the first part has arrived."""
        self._listener: socket.socket | None = None
        self._rendezvous: dict[str, Rendezvous] = {}
        self._bases = Bases()

    def place(self) -> RankLocation:
        """Return the node, address, process id and GPU of this rank. This is the first call to each rank."""
        import ray

        node, address = ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()
        return RankLocation(node, address, os.getpid(), gpu_of_this_process())

    def ping(self) -> None:
        """Return at once, even during an update, to show that the process is alive."""

    def meet(self, address: str) -> int:
        """Return the port on this address at which engines meet rank 0 for a broadcast."""
        if address not in self._rendezvous:
            self._rendezvous[address] = Rendezvous(address)
        return self._rendezvous[address].port

    def listen(self, address: str) -> int:
        """Open the rendezvous port on this address and return its number. It stays open, so it cannot be taken."""
        self._listener = socket.create_server((address, 0), family=_family(address))
        return int(self._listener.getsockname()[1])

    def join(
        self, number: int, count: int, address: str, port: int, timeout: float, threads: int, shares: bool
    ) -> None:
        """Join the process group as rank `number` of `count`, and return when all ranks have joined.

        `timeout` is the maximum seconds of a collective operation; `threads` is torch's number of threads; `shares`
        says that ranks share a GPU.
        """
        torch.set_num_threads(threads)
        join_ranks(number, count, address, self._listener or port, timedelta(seconds=timeout), shares)

    def add(self, learner: Learner) -> Form:
        """Load a policy, store its trainer and return its form."""
        if learner.rule.zero_stage == 3:  # ZeRO 3 partitions the base's parameters once per policy: it is not shared
            self._bases = Bases()
        self._bases.precision = learner.origin.precision
        model, base = learner.origin.load(self._bases)
        trainer = PolicyTrainer(learner.name, model, learner.rule, learner.bf16, base)
        own = trainable_parameters(model) if base else _named_tensors(model)
        self._trainers[learner.name], self._tensors[learner.name] = trainer, own
        return Form(
            costs=trainer.costs,
            weights=Layout.of(own),
            learned=Layout.of(trainable_parameters(model)),
            scale=next((layer.scale for _, layer in low_rank_layers(model)), None),
            settings={} if base else _read_settings(model),
        )

    def drop(self, policy: str) -> None:
        """Remove a policy's trainer, if there is one."""
        self._trainers.pop(policy, None)
        self._tensors.pop(policy, None)

    def update(self, policy: str, parcel: Parcel) -> tuple[dict[str, float], dict[str, Any]]:
        """Run this rank's part of an update's plan; return metrics over all ranks and the trainer's new state."""
        trainer = self._trainers[policy]
        metrics = trainer.carry_out(unpack(parcel))
        torch.cuda.empty_cache()  # an engine on the same card may need it
        return metrics, trainer.state()

    def score(
        self, policy: str, streams: Streams, temperatures: Mapping[int, float], share: Sequence[Pass]
    ) -> dict[int, StreamScores]:
        """Return the scores of this rank's share of the streams, by stream number."""
        return score_passes(self._trainers[policy].optimiser.engine, streams.unpack(), temperatures, share)

    # -- tensors, a bucket at a time ---------------------------------------------------------------------

    def send(self, policy: str, layout: Layout, link: Link) -> str:
        """Broadcast the weights of a layout from rank 0 to engines. Returns the reason if it failed, else ""."""
        whole = partial(self._gather, policy, "weights")
        if get_rank().number == 0:
            failure = send(link, self._rendezvous[link.address], layout, whole)
            trim_memory()
            return failure
        if self._trainers[policy].rule.zero_stage == 3:
            for number in layout.buckets(link.bucket):
                layout.fill(number, link.bucket, whole, None)
        return ""

    def moments(self, policy: str) -> Layout:
        """Return the layout of the optimiser's moments."""
        return Layout(tuple(Spec(*one, torch.float32) for one in self._trainers[policy].optimiser.moments.shapes()))

    def bucket(self, policy: str, kind: Kind, layout: Layout, number: int) -> np.ndarray | None:
        """Return a bucket of a policy's weights or moments as bytes on rank 0, and None on other ranks."""
        own = get_rank().number == 0
        bucket = torch.empty(layout.length(number, FILE_BUCKET), dtype=torch.uint8) if own else None
        layout.fill(number, FILE_BUCKET, partial(self._gather, policy, kind), bucket)
        return None if bucket is None else bucket.numpy()

    def resume(self, policy: str, state: Mapping[str, Any]) -> dict[str, Any]:
        """Restore and return the trainer's state of a checkpoint, without the moments, which follow in buckets."""
        self._arriving = {}
        self._trainers[policy].resume(state)
        return self._trainers[policy].state()

    def restore(self, policy: str, layout: Layout, number: int, bucket: np.ndarray) -> dict[str, Any]:
        """Restore this rank's part of the moments in the next bucket of a layout, and return the trainer's state."""
        trainer = self._trainers[policy]
        for part in layout.slices(number, FILE_BUCKET):
            spec = part.spec
            tensor = self._arriving.setdefault(spec.name, torch.empty(spec.shape, dtype=spec.dtype))
            tensor.view(-1)[part.start : part.stop] = part.view(torch.tensor(bucket))
            if part.stop == spec.elements:
                trainer.load_moments({spec.name: self._arriving.pop(spec.name)})
        return trainer.state()

    def _gather(self, policy: str, kind: Kind, name: str) -> AbstractContextManager[torch.Tensor]:
        """Return a context in which a tensor of a policy is complete; all ranks must enter it together."""
        trainer = self._trainers[policy]
        if kind == "moments":
            return nullcontext(trainer.optimiser.moments.get(name))
        return _gather_tensor(self._tensors[policy][name], trainer.rule.zero_stage)


@contextmanager
def _gather_tensor(tensor: torch.Tensor, zero_stage: int) -> Iterator[torch.Tensor]:
    with gather_parameters([tensor] if isinstance(tensor, torch.nn.Parameter) else [], zero_stage):
        yield tensor


def _named_tensors(model: Any) -> dict[str, torch.Tensor]:
    """Return a model's parameters and buffers by name as its folder has them: each one once."""
    unique = {id(tensor): (name, tensor) for name, tensor in reversed(model.state_dict(keep_vars=True).items())}
    return dict(reversed(unique.values()))


def _read_settings(model: Any) -> dict[str, bytes]:
    with TemporaryDirectory(prefix="arena-form-") as folder:
        save_settings(model, Path(folder))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
