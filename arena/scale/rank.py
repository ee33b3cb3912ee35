"""Ray actor of one DeepSpeed rank, which holds all trained policies or its ZeRO share of them."""

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
from arena.scale.layout import FILE_BUCKET, Layout, TensorSpec
from arena.scale.packed_plan import PackedPlan, PackedStreams, unpack_plan
from arena.scale.transfer import Link, Rendezvous, gpu_of_this_process, send

TensorKind = Literal["weights", "moments"]
"""Kind of a trainer's tensors: the policy's weights, or the optimiser's moments."""


class RankLocation(NamedTuple):
    """Where a rank runs: node, network address, process and GPU ("" for none)."""

    node: str
    """Ray's id of the node."""
    address: str
    pid: int
    gpu: str


class TrainerSpec(NamedTuple):
    """Policy to train and its settings, as sent to every rank. Each rank loads the weights itself."""

    name: str
    origin: Origin
    rule: UpdateSpec
    bf16: bool
    """True to compute in bfloat16."""


class PolicyDescription(NamedTuple):
    """Description of a policy on the ranks, without the values of its weights."""

    costs: Costs
    weights: Layout
    """Layout of all weights of a full model, or of the matrices of an adapter."""
    learned: Layout
    """Layout of the trained weights. All others stay as in the policy's folder."""
    scale: float | None
    """Scale of an adapter; None for a full model."""
    settings: dict[str, bytes]
    """Files of a full model's folder besides its weights and tokenizer, such as config.json."""


class Rank:
    """Ray actor of one DeepSpeed rank. All ranks get the same calls in the same order.

    Most calls return the same result on every rank, or the result on rank 0 only.
    """

    def __init__(self) -> None:
        self._trainers: dict[str, PolicyTrainer] = {}
        self._tensors: dict[str, dict[str, torch.Tensor]] = {}
        """Weights of each policy by name, partitioned under ZeRO-3."""
        self._arriving: dict[str, torch.Tensor] = {}
        """Partly received optimiser moments by name, during a restore."""
        self._listener: socket.socket | None = None
        self._rendezvous: dict[str, Rendezvous] = {}
        self._bases = Bases()

    def locate(self) -> RankLocation:
        """Return this rank's node, address, process id and GPU. This is the first call to each rank."""
        import ray

        node, address = ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()
        return RankLocation(node, address, os.getpid(), gpu_of_this_process())

    def ping(self) -> None:
        """Return at once, even during an update, to show that the process is alive."""

    def get_broadcast_port(self, address: str) -> int:
        """Return the port on this address at which engines connect to rank 0's store for a broadcast."""
        if address not in self._rendezvous:
            self._rendezvous[address] = Rendezvous(address)
        return self._rendezvous[address].port

    def listen(self, address: str) -> int:
        """Open a port on this address for the ranks' rendezvous and return its number.

        It stays open until `join`, so no other process can take it.
        """
        self._listener = socket.create_server((address, 0), family=_family(address))
        return int(self._listener.getsockname()[1])

    def join(
        self, number: int, count: int, address: str, port: int, timeout: float, threads: int, shares: bool
    ) -> None:
        """Join the process group as rank `number` of `count`, and return when all ranks have joined.

        `timeout` limits a collective operation, in seconds. `threads` is torch's number of threads. `shares` is True if
        ranks share a GPU.
        """
        torch.set_num_threads(threads)
        join_ranks(number, count, address, self._listener or port, timedelta(seconds=timeout), shares)

    def add(self, learner: TrainerSpec) -> PolicyDescription:
        """Load a policy, create its trainer and return its description."""
        if learner.rule.zero_stage == 3:  # ZeRO 3 partitions the base's parameters once per policy: it is not shared
            self._bases = Bases()
        self._bases.precision = learner.origin.precision
        model, base = learner.origin.load(self._bases)
        trainer = PolicyTrainer(learner.name, model, learner.rule, learner.bf16, base)
        tensors = trainable_parameters(model) if base else _named_tensors(model)
        self._trainers[learner.name], self._tensors[learner.name] = trainer, tensors
        return PolicyDescription(
            costs=trainer.costs,
            weights=Layout.of(tensors),
            learned=Layout.of(trainable_parameters(model)),
            scale=next((layer.scale for _, layer in low_rank_layers(model)), None),
            settings={} if base else _read_settings(model),
        )

    def drop(self, policy: str) -> None:
        """Remove a policy's trainer, if any."""
        self._trainers.pop(policy, None)
        self._tensors.pop(policy, None)

    def update(self, policy: str, packed: PackedPlan) -> tuple[dict[str, float], dict[str, Any]]:
        """Run this rank's part of an update. Returns metrics over all ranks and the trainer's new state."""
        trainer = self._trainers[policy]
        metrics = trainer.carry_out(unpack_plan(packed))
        torch.cuda.empty_cache()  # an engine on the same card may need it
        return metrics, trainer.state()

    def score(
        self, policy: str, streams: PackedStreams, temperatures: Mapping[int, float], share: Sequence[Pass]
    ) -> dict[int, StreamScores]:
        """Return the scores of this rank's share of the streams, by stream number."""
        return score_passes(self._trainers[policy].optimiser.engine, streams.unpack(), temperatures, share)

    # -- tensors, a bucket at a time ---------------------------------------------------------------------

    def send(self, policy: str, layout: Layout, link: Link) -> str:
        """Broadcast a policy's weights from rank 0 to engines. Returns the error message if that failed, else ""."""
        gather = partial(self._gather, policy, "weights")
        if get_rank().number == 0:
            failure = send(link, self._rendezvous[link.address], layout, gather)
            trim_memory()
            return failure
        if self._trainers[policy].rule.zero_stage == 3:
            for number in layout.buckets(link.bucket):
                layout.fill(number, link.bucket, gather, None)
        return ""

    def describe_moments(self, policy: str) -> Layout:
        """Return the layout of the optimiser's moments."""
        return Layout(
            tuple(TensorSpec(*one, torch.float32) for one in self._trainers[policy].optimiser.moments.shapes())
        )

    def gather_bucket(self, policy: str, kind: TensorKind, layout: Layout, number: int) -> np.ndarray | None:
        """Gather bucket `number` of a policy's weights or moments. Returns its bytes on rank 0, None on other ranks."""
        is_first = get_rank().number == 0
        bucket = torch.empty(layout.length(number, FILE_BUCKET), dtype=torch.uint8) if is_first else None
        layout.fill(number, FILE_BUCKET, partial(self._gather, policy, kind), bucket)
        return None if bucket is None else bucket.numpy()

    def resume(self, policy: str, state: Mapping[str, Any]) -> dict[str, Any]:
        """Restore the trainer's state from a checkpoint and return it. The moments follow in calls of `restore`."""
        self._arriving = {}
        self._trainers[policy].resume(state)
        return self._trainers[policy].state()

    def restore(self, policy: str, layout: Layout, number: int, bucket: np.ndarray) -> dict[str, Any]:
        """Restore this rank's part of the moments in bucket `number`, and return the trainer's state.

        Buckets must come in order.
        """
        trainer = self._trainers[policy]
        for part in layout.slices(number, FILE_BUCKET):
            spec = part.spec
            tensor = self._arriving.setdefault(spec.name, torch.empty(spec.shape, dtype=spec.dtype))
            tensor.view(-1)[part.start : part.stop] = part.view(torch.tensor(bucket))
            if part.stop == spec.elements:
                trainer.load_moments({spec.name: self._arriving.pop(spec.name)})
        return trainer.state()

    def _gather(self, policy: str, kind: TensorKind, name: str) -> AbstractContextManager[torch.Tensor]:
        """Return a context in which a policy's tensor is complete. All ranks must enter it together."""
        trainer = self._trainers[policy]
        if kind == "moments":
            return nullcontext(trainer.optimiser.moments.get(name))
        return _gather_tensor(self._tensors[policy][name], trainer.rule.zero_stage)


@contextmanager
def _gather_tensor(tensor: torch.Tensor, zero_stage: int) -> Iterator[torch.Tensor]:
    with gather_parameters([tensor] if isinstance(tensor, torch.nn.Parameter) else [], zero_stage):
        yield tensor


def _named_tensors(model: Any) -> dict[str, torch.Tensor]:
    """Return a model's parameters and buffers by name, as in its folder. A tied tensor has its first name only."""
    unique = {id(tensor): (name, tensor) for name, tensor in reversed(model.state_dict(keep_vars=True).items())}
    return dict(reversed(unique.values()))


def _read_settings(model: Any) -> dict[str, bytes]:
    """Return the files of a model's folder besides weights and tokenizer, by name."""
    with TemporaryDirectory(prefix="arena-form-") as folder:
        save_settings(model, Path(folder))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
