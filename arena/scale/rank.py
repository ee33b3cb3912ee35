"""One DeepSpeed rank: a process of its own that holds every trained policy, or its share of them."""

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
"""Weights or moments by name."""


class Place(NamedTuple):
    """Node, address and process of a rank."""

    node: str
    """Ray's id of the machine."""
    address: str
    pid: int


class Learner(NamedTuple):
    """A policy that is about to learn, as it is sent to every rank."""

    name: str
    weights: ArrayWeights | AdapterArrays
    bf16_weights: bool
    """Whether whole weights are held in bfloat16."""
    rule: UpdateSpec
    bf16: bool
    """Whether it computes in bfloat16."""


class Rank:
    """A Ray actor. All ranks are asked the same in the same order; what they answer, rank 0 answers for all."""

    def __init__(self) -> None:
        self._trainers: dict[str, PolicyTrainer] = {}
        self._listener: socket.socket | None = None
        self._bases = Bases()

    def place(self) -> Place:
        """Tell where this rank runs; the first that it is asked."""
        return Place(ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), os.getpid())

    @ray.method(concurrency_group="signs")  # type: ignore[untyped-decorator]
    def ping(self) -> None:
        """Give a sign of life, also in the middle of an update."""

    def listen(self, address: str) -> int:
        """Open the port at which the ranks meet, on this address alone; kept open, so that nobody else takes it."""
        self._listener = socket.create_server((address, 0), family=_family(address))
        return int(self._listener.getsockname()[1])

    def join(self, number: int, count: int, address: str, port: int, timeout: float, threads: int) -> None:
        """Become one of the ranks; returns when all have."""
        torch.set_num_threads(threads)
        join_ranks(number, count, address, self._listener or port, timedelta(seconds=timeout))

    def add(self, learner: Learner) -> None:
        """Hold another policy."""
        model, base = self._built(learner)
        trainer = PolicyTrainer(learner.name, model, learner.rule, learner.bf16, base)
        self._trainers[learner.name] = trainer

    def drop(self, policy: str) -> None:
        """Hold a policy no more."""
        self._trainers.pop(policy, None)

    def update(self, policy: str, plan: Plan) -> tuple[dict[str, float], dict[str, Any]]:
        """Carry a plan out; metrics over all ranks, and the trainer's state afterwards."""
        trainer = self._trainers[policy]
        metrics = trainer.carry_out(plan)
        return metrics, trainer.state()

    def score(
        self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float], shares: Shares
    ) -> dict[int, StreamScores]:
        """Scores of this rank's share of the streams, by their number."""
        engine = self._trainers[policy].optimiser.engine
        return scan(engine, streams, temperatures, shares[this_rank().number])

    def save(self, policy: str) -> Arrays:
        """The optimiser's state; of other ranks than 0 nothing."""
        return _gathered(self._trainers[policy].optimiser.moments.each())

    def load(self, policy: str, moments: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> dict[str, Any]:
        """Restore the optimiser's state, each rank its part; the trainer's state as `update` gives it."""
        trainer = self._trainers[policy]
        trainer.restore({name: torch.tensor(array) for name, array in moments.items()}, state)
        return trainer.state()

    def weights(self, policy: str) -> Arrays:
        """The parameters that learn; of other ranks than 0 nothing."""
        return _gathered(self._trainers[policy].learned())

    def _built(self, learner: Learner) -> tuple[Any, OnBase | None]:
        """The module to be trained, and an adapter's base."""
        weights = learner.weights
        if isinstance(weights, AdapterArrays):
            if learner.rule.zero_stage == 3:  # each of the policies cuts the base's parameters up for itself
                self._bases = Bases()
            self._bases.precision = Precision.BF16 if learner.bf16 else Precision.FP32
            on = weights.on(self._bases(weights.folder))
            return on.model, on
        model = load_module(weights.folder, bf16_weights=learner.bf16_weights)
        with torch.no_grad():
            for name, parameter in trainable(model).items():
                parameter.copy_(torch.tensor(weights.arrays[name]))
        return model, None


def _gathered(parts: Any) -> Arrays:
    """Copies of what the ranks put together, kept by rank 0 alone; numpy has no bfloat16."""
    own, found = this_rank().number == 0, {}
    for name, value in parts:
        if own:
            found[name] = value.float().cpu().numpy().copy()
    return found


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
