"""A trainer in a process of its own, plugged in where runs make theirs: what is learned is the same, to the bit."""

import asyncio
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import agents.attention  # noqa: F401 a model that comes over a pipe computes with it
from agents.costs import estimate_costs
from agents.policy import Policy, load_module
from agents.published import ModuleWeights
from agents.scoring import StreamScores
from agents.stream import Stream
from arena.config.experiment import LearnSpec
from arena.errors import GateError
from arena.learn.base import Trainer
from arena.learn.plan import Plan, Planner
from arena.learn.samples import Sample
from arena.learn.settings import ImitateSpec, UpdateSpec
from arena.learn.trainer import local_trainer
from arena.parts.schedules import Clock
from tests.factories.labs import run_with_trainers

CONFIG = """\
name: elsewhere
iterations: 2
threads: 1
game: {name: negotiation, options: {illegal: retry, max_turns: 4, talk: false}}
policies: {shared: {model: nano, imitate: {scripted: [random], matches: 6, epochs: 2, minibatches: 2, lr: 1e-3}}}
seats:
  opener: {role: nano_opener, policy: shared}
  responder: {role: nano_responder, policy: shared}
play: {matches: 6, in_flight: 4}
learn: {lr: 1e-3, minibatches: 2, warmup_steps: 3, regularisers: {kl: {}, entropy_band: {}}, gate_tolerance: 0.01}
credit: {estimator: {gae_turn: {}}, critic: value_head}
checkpoint: {every: 1, keep: 9}
"""


def served(pipe: Connection, threads: int) -> None:
    """What runs there: the trainer of a process, asked over a pipe."""
    torch.set_num_threads(threads)
    trainer: Any = local_trainer(*pipe.recv())

    async def weights() -> dict[str, np.ndarray]:
        return {name: p.detach().numpy() for name, p in trainer.model.named_parameters()}

    async def save() -> dict[str, np.ndarray]:
        return {name: value.numpy() for name, value in (await trainer.save()).items()}

    instead = {"weights": weights, "save": save}

    while asked := pipe.recv():
        name, given = asked
        try:
            told = asyncio.run(instead.get(name, getattr(trainer, name))(*given))
            pipe.send((told, trainer.state(), None))
        except GateError as error:
            pipe.send((None, trainer.state(), error))


class TrainerElsewhere:
    """A `Trainer` whose weights and optimiser live in a child process."""

    def __init__(self, policy: Policy, rule: LearnSpec, bf16: bool) -> None:
        policy.load_model()
        self._planner = Planner(policy.name, rule, estimate_costs(policy.model))
        self._source = policy.source
        self._pipe, theirs = multiprocessing.Pipe()
        spawn = multiprocessing.get_context("spawn")
        self._child = spawn.Process(target=served, args=(theirs, torch.get_num_threads()), daemon=True)
        self._child.start()
        theirs.close()
        self._pipe.send((policy, rule, bf16))
        self._state: dict[str, Any] = {"steps": 0, "memory": {}}
        policy.model = None  # from here on it is in the child alone

    def plan(self, samples: Sequence[Sample], rng: np.random.Generator, clock: Clock = Clock()) -> Plan:
        return self._planner.update(samples, rng, clock, self._state["steps"])

    def plan_imitation(self, samples: Sequence[Sample], spec: ImitateSpec, rng: np.random.Generator) -> Plan:
        return self._planner.imitation(samples, spec, rng)

    async def update(self, plan: Plan, stepped: Callable[[], None] = lambda: None) -> dict[str, float]:
        told: dict[str, float] = await self._ask("update", plan)
        for _ in plan.steps:
            stepped()
        return told

    async def score(self, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[StreamScores]:
        scores: list[StreamScores] = await self._ask("score", streams, temperatures)
        return scores

    async def save(self) -> Mapping[str, torch.Tensor]:
        moments: dict[str, np.ndarray] = await self._ask("save")
        return {name: torch.from_numpy(value.copy()) for name, value in moments.items()}

    async def load(self, folder: Path, state: Mapping[str, Any]) -> None:
        await self._ask("load", folder, dict(state))

    def state(self) -> dict[str, Any]:
        return self._state

    async def weights(self) -> ModuleWeights:
        module, arrays = load_module(self._source), await self._ask("weights")
        module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()}, strict=False)
        return ModuleWeights(module)

    async def close(self) -> None:
        await asyncio.to_thread(self._pipe.send, None)
        await asyncio.to_thread(self._child.join)

    async def _ask(self, name: str, *given: Any) -> Any:
        def asked() -> Any:
            self._pipe.send((name, given))
            return self._pipe.recv()

        told, self._state, error = await asyncio.to_thread(asked)
        if error:
            raise error
        return told


def elsewhere(policy: Policy, rule: UpdateSpec, bf16: bool) -> Trainer:
    assert isinstance(rule, LearnSpec)
    return TrainerElsewhere(policy, rule, bf16)


def committed(folder: Path, k: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], bytes]:
    """Weights, moments, and what the state says of an iteration's commit."""
    there = folder / "checkpoints" / f"{k:04d}"
    mine = there / "policies" / "shared"
    return *(load_file(mine / f) for f in ("model.safetensors", "optimizer.safetensors")), (
        there / "state.json"
    ).read_bytes()


@pytest.mark.slow  # a run on two ranks of Ray is fast enough: tests/arena/scale/test_run.py
def test_a_run_with_a_trainer_elsewhere_ends_at_the_same_weights(tmp_path: Path) -> None:
    """Warm start, learning, a critic that begins as the policy, checkpoints; then taken up again by the other kind."""
    run_with_trainers(CONFIG, tmp_path / "here", local_trainer)
    run_with_trainers(CONFIG, tmp_path / "there", elsewhere)
    run_with_trainers(CONFIG, tmp_path / "here", elsewhere, "iterations=3")
    run_with_trainers(CONFIG, tmp_path / "there", local_trainer, "iterations=3")
    for k in (0, 1, 2, 3):
        (weights, moments, state), (others, other_moments, other_state) = (
            committed(tmp_path / name, k) for name in ("here", "there")
        )
        assert weights.keys() == others.keys() and all(torch.equal(value, others[n]) for n, value in weights.items())
        assert all(torch.equal(value, other_moments[n]) for n, value in moments.items())
        assert state == other_state
    before, after = (committed(tmp_path / "here", k)[0] for k in (0, 2))
    assert not all(torch.equal(value, after[name]) for name, value in before.items()), "something was learned"


@pytest.mark.slow
def test_what_goes_wrong_there_is_told_here(tmp_path: Path) -> None:
    with pytest.raises(GateError, match=r"'shared'.*log-probabilities differ"):
        run_with_trainers(
            CONFIG, tmp_path / "run", elsewhere, "learn.gate_tolerance=1e-30", "policies.shared.imitate=null"
        )
