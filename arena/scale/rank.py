"""One DeepSpeed rank: a process with all trained policies, or its ZeRO share of them."""

import os
import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import ray
import torch

from agents.policy import Bases, OnBase, load_module, trainable
from agents.precision import Precision
from agents.published import AdapterArrays, ArrayWeights
from agents.scoring import StreamScores, scan
from agents.stream import Stream
from arena.learn.distributed import join_ranks
from arena.learn.plan import Plan, Shares
from arena.learn.ranks import this_rank
from arena.learn.settings import UpdateSpec
from arena.learn.trainer import PolicyTrainer

Arrays = dict[str, np.ndarray]
"""Weights or moments by parameter name."""


class Place(NamedTuple):
    """Where a rank runs: node, network address and process."""

    node: str
    """Ray's id of the node."""
    address: str
    pid: int


class Learner(NamedTuple):
    """Policy to train with its weights and update settings, as sent to every rank."""

    name: str
    weights: ArrayWeights | AdapterArrays
    bf16_weights: bool
    """True to hold full weights in bfloat16."""
    rule: UpdateSpec
    bf16: bool
    """True to compute in bfloat16."""


class Rank:
    """Ray actor of one DeepSpeed rank. All ranks get the same calls in the same order.

    Of `update`, `save`, `load` and `weights`, callers use only rank 0's results.
    """

    def __init__(self) -> None:
        self._trainers: dict[str, PolicyTrainer] = {}
        self._listener: socket.socket | None = None
        self._bases = Bases()

    def place(self) -> Place:
        """Return the node, address and process id of this rank. This is the first call to each rank."""
        return Place(ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), os.getpid())

    @ray.method(concurrency_group="signs")  # type: ignore[untyped-decorator]
    def ping(self) -> None:
        """Return at once, even during an update, to show that the process is alive."""

    def listen(self, address: str) -> int:
        """Open the rendezvous port on this address and return its number. It stays open, so it cannot be taken."""
        self._listener = socket.create_server((address, 0), family=_family(address))
        return int(self._listener.getsockname()[1])

    def join(self, number: int, count: int, address: str, port: int, timeout: float, threads: int) -> None:
        """Join the process group as rank `number` of `count`, and return when all ranks have joined.

        `timeout` is the maximum seconds of a collective operation; `threads` is torch's number of threads.
        """
        torch.set_num_threads(threads)
        join_ranks(number, count, address, self._listener or port, timedelta(seconds=timeout))

    def add(self, learner: Learner) -> None:
        """Build and store the trainer of a policy."""
        model, base = self._build(learner)
        trainer = PolicyTrainer(learner.name, model, learner.rule, learner.bf16, base)
        self._trainers[learner.name] = trainer

    def drop(self, policy: str) -> None:
        """Remove a policy's trainer, if there is one."""
        self._trainers.pop(policy, None)

    def update(self, policy: str, plan: Plan) -> tuple[dict[str, float], dict[str, Any]]:
        """Run an update's plan, and return its metrics over all ranks and the trainer's new state for checkpoints."""
        trainer = self._trainers[policy]
        metrics = trainer.carry_out(plan)
        return metrics, trainer.state()

    def score(
        self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float], shares: Shares
    ) -> dict[int, StreamScores]:
        """Return the scores of this rank's share of the streams, by stream index. `shares` has the indices by rank."""
        engine = self._trainers[policy].optimiser.engine
        return scan(engine, streams, temperatures, shares[this_rank().number])

    def save(self, policy: str) -> Arrays:
        """Return the optimiser's moments by parameter name as float32 arrays on rank 0, and {} on other ranks."""
        return _gathered(self._trainers[policy].optimiser.moments.each())

    def load(self, policy: str, moments: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> dict[str, Any]:
        """Restore this rank's part of the optimiser's moments and the trainer's state, and return that state."""
        trainer = self._trainers[policy]
        trainer.restore({name: torch.tensor(array) for name, array in moments.items()}, state)
        return trainer.state()

    def weights(self, policy: str) -> Arrays:
        """Return the trained parameters by name as float32 arrays on rank 0, and {} on other ranks."""
        return _gathered(self._trainers[policy].learned())

    def _build(self, learner: Learner) -> tuple[Any, OnBase | None]:
        """Return the module to train with the learner's weights, and an adapter's base model or None."""
        weights = learner.weights
        if isinstance(weights, AdapterArrays):
            if (
                learner.rule.zero_stage == 3
            ):  # ZeRO 3 partitions the base's parameters once per policy, so it cannot be shared
                self._bases = Bases()
            self._bases.precision = Precision.BF16 if learner.bf16 else Precision.FP32
            on = weights.on(self._bases(weights.folder))
            return on.model, on
        model = load_module(weights.folder, bf16_weights=learner.bf16_weights)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in weights.arrays)
        with torch.no_grad():
            for name, parameter in trainable(model).items():
                parameter.copy_(torch.tensor(weights.arrays[name]))
        return model, None


def _gathered(parts: Any) -> Arrays:
    """Return float32 copies of (name, value) pairs on rank 0, and {} elsewhere. All ranks must iterate over them."""
    own, found = this_rank().number == 0, {}
    for name, value in parts:
        if own:
            found[name] = value.float().cpu().numpy().copy()
    return found


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
