"""A trainer in a separate process, plugged into runs, gives bit-equal results."""

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
from arena.learn.trainer import create_local_trainer
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


def serve_trainer(pipe: Connection, threads: int) -> None:
    """Serve a trainer's methods over a pipe."""
    torch.set_num_threads(threads)
    trainer: Any = create_local_trainer(*pipe.recv())

    async def weights() -> dict[str, np.ndarray]:
        return {name: p.detach().numpy() for name, p in trainer.model.named_parameters()}

    async def save() -> dict[str, np.ndarray]:
        return {name: value.numpy() for name, value in (await trainer.save()).items()}

    overrides = {"weights": weights, "save": save}

    while call := pipe.recv():
        name, arguments = call
        try:
            result = asyncio.run(overrides.get(name, getattr(trainer, name))(*arguments))
            pipe.send((result, trainer.state(), None))
        except GateError as error:
            pipe.send((None, trainer.state(), error))


class RemoteTrainer:
    """A `Trainer` whose weights and optimiser live in a child process."""

    def __init__(self, policy: Policy, rule: LearnSpec, bf16: bool) -> None:
        policy.load_model()
        self._planner = Planner(policy.name, rule, estimate_costs(policy.model))
        self._source = policy.source
        self._pipe, child_pipe = multiprocessing.Pipe()
        spawn = multiprocessing.get_context("spawn")
        self._child = spawn.Process(target=serve_trainer, args=(child_pipe, torch.get_num_threads()), daemon=True)
        self._child.start()
        child_pipe.close()
        self._pipe.send((policy, rule, bf16))
        self._state: dict[str, Any] = {"steps": 0, "memory": {}}
        policy.model = None  # from here on only the child has it

    def plan(self, samples: Sequence[Sample], rng: np.random.Generator, clock: Clock = Clock()) -> Plan:
        return self._planner.plan_update(samples, rng, clock, self._state["steps"])

    def plan_imitation(self, samples: Sequence[Sample], spec: ImitateSpec, rng: np.random.Generator) -> Plan:
        return self._planner.plan_imitation(samples, spec, rng)

    async def update(self, plan: Plan, stepped: Callable[[], None] = lambda: None) -> dict[str, float]:
        result: dict[str, float] = await self._ask("update", plan)
        for _ in plan.steps:
            stepped()
        return result

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

    async def _ask(self, name: str, *arguments: Any) -> Any:
        def ask() -> Any:
            self._pipe.send((name, arguments))
            return self._pipe.recv()

        result, self._state, error = await asyncio.to_thread(ask)
        if error:
            raise error
        return result


def make_remote_trainer(policy: Policy, rule: UpdateSpec, bf16: bool) -> Trainer:
    assert isinstance(rule, LearnSpec)
    return RemoteTrainer(policy, rule, bf16)


def read_checkpoint(folder: Path, k: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], bytes]:
    """Return the weights, moments and state of an iteration's checkpoint."""
    checkpoint = folder / "checkpoints" / f"{k:04d}"
    policy_folder = checkpoint / "policies" / "shared"
    return *(load_file(policy_folder / f) for f in ("model.safetensors", "optimizer.safetensors")), (
        checkpoint / "state.json"
    ).read_bytes()


@pytest.mark.slow  # a run on two ranks of Ray is fast enough: tests/arena/scale/test_run.py
def test_run_with_remote_trainer_ends_with_the_same_weights(tmp_path: Path) -> None:
    """Includes warm start, a critic that starts as the policy, checkpoints and a resume by the other trainer."""
    run_with_trainers(CONFIG, tmp_path / "here", create_local_trainer)
    run_with_trainers(CONFIG, tmp_path / "there", make_remote_trainer)
    run_with_trainers(CONFIG, tmp_path / "here", make_remote_trainer, "iterations=3")
    run_with_trainers(CONFIG, tmp_path / "there", create_local_trainer, "iterations=3")
    for k in (0, 1, 2, 3):
        (weights, moments, state), (others, other_moments, other_state) = (
            read_checkpoint(tmp_path / name, k) for name in ("here", "there")
        )
        assert weights.keys() == others.keys() and all(torch.equal(value, others[n]) for n, value in weights.items())
        assert all(torch.equal(value, other_moments[n]) for n, value in moments.items())
        assert state == other_state
    before, after = (read_checkpoint(tmp_path / "here", k)[0] for k in (0, 2))
    assert not all(torch.equal(value, after[name]) for name, value in before.items()), "the weights changed"


@pytest.mark.slow
def test_remote_errors_are_raised_locally(tmp_path: Path) -> None:
    with pytest.raises(GateError, match=r"'shared'.*log-probabilities differ"):
        run_with_trainers(CONFIG, tmp_path / "run", make_remote_trainer, "learn.gate_tolerance=1e-30")
