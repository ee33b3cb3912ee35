"""A nano policy learns a task in seconds, and fails to if the path from reward to weight is broken.

The task: three turns, each with the two cues in one of two orders and a reply of one token; a token of an even id is
right after one cue, of an odd id after the other. The order is drawn anew in every turn, so a turn's reward says
nothing about any other turn; both cues are always there, so that it is not enough to have them somewhere in sight.
"""

import inspect
import sys
import textwrap
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import arena.credit.assign
import arena.credit.samples
import arena.learn.clips
import arena.learn.gradients
from agents.model_folder import load_model
from agents.stream import Stream
from agents.weights import resolve
from arena.config.experiment import LearnSpec
from arena.credit.batch import TurnBatch
from arena.credit.settings import CreditSpec
from arena.errors import GateError
from arena.learn.trainer import PolicyTrainer
from arena.records import Trajectory
from tests.factories.records import make_turn, wrap_turns
from tests.factories.updating import run_update

TURNS, STREAMS, UPDATES = 3, 96, 15
CUES = (7, 8)
LEARNED_SHARE, UNLEARNED_SHARE = 0.8, 0.65
"""Shares of right words: guessing has 0.5, a learning policy above 0.9, a broken one at most 0.55."""
RULE = LearnSpec(lr=3e-3, minibatches=2, regularisers={}, token_budget=8192, gate_tolerance=1e9)
CREDIT = CreditSpec.model_validate(dict(estimator={"mars": {"gamma": 0.0}}))


@torch.no_grad()
def play_batch(model: Any, rng: np.random.Generator) -> list[Trajectory]:
    """Play one batch of matches of the task."""
    streams = [Stream() for _ in range(STREAMS)]
    right = np.zeros((STREAMS, TURNS))
    for k in range(TURNS):
        cues = rng.integers(0, 2, STREAMS)
        for stream, cue in zip(streams, cues, strict=True):
            stream.observe([CUES[1 - cue], CUES[cue]])
        logprobs = torch.log_softmax(model(torch.tensor([s.ids for s in streams])).logits[:, -1].float(), -1).numpy()
        for i, (stream, cue) in enumerate(zip(streams, cues, strict=True)):
            p = np.exp(logprobs[i].astype(np.float64))
            word = int(rng.choice(len(p), p=p / p.sum()))
            stream.append_sampled([word], [float(logprobs[i, word])], 2 * k)
            right[i, k] = word % 2 == cue
    return [
        wrap_turns(
            [make_turn(2 * k, {"right": r}, "one", policy="p", tokens=1) for k, r in enumerate(row)],
            match=f"{i}",
            game="task",
            streams=(s,),
        )
        for i, (row, s) in enumerate(zip(right.tolist(), streams, strict=True))
    ]


def train_policy(rule: LearnSpec = RULE, seed: int = 0) -> float:
    """Train a policy and return its share of right words in the last five batches (0.5 by chance)."""
    model, rng = load_model(resolve("nano")).eval(), np.random.default_rng(seed)
    trainer, shares = PolicyTrainer("p", model, rule), []
    for _ in range(UPDATES):
        trajectories = play_batch(model, rng)
        shares.append(np.mean([t.rewards["right"] for trajectory in trajectories for t in trajectory.turns]))
        credited = arena.credit.assign.assign(TurnBatch(trajectories), CREDIT)
        run_update(trainer, arena.credit.samples.make_samples(credited, {"one": 1.0}), rng)
    return float(np.mean(shares[-5:]))


@pytest.mark.slow
def test_nano_policy_learns_a_multi_turn_task() -> None:
    assert train_policy() > LEARNED_SHARE


MUTATIONS = {
    "sign of the advantage": (arena.learn.clips, "ppo", "-tokens.advantages", "tokens.advantages"),
    "mask shifted by one token": (
        arena.learn.gradients, "build_batch", "[k for k, is_sampled in", "[k - 1 for k, is_sampled in"
    ),
    "predicting position": (arena.learn.gradients, "build_batch", "path[k - prefix - 1]", "path[k - prefix]"),
    "turn of a token": (
        arena.credit.samples, "make_samples", "item.advantages[places]", "item.advantages[places - 1]"
    ),
    "turn of an advantage": (
        arena.credit.assign, "_split_by_trajectory", "np.split(advantages, cuts)",
        "np.split(np.roll(advantages, 1), cuts)"
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("broken", MUTATIONS)
def test_broken_path_prevents_learning(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, *MUTATIONS[broken])
    assert train_policy() < UNLEARNED_SHARE


def test_gate_stops_a_shifted_mask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, *MUTATIONS["mask shifted by one token"])
    with pytest.raises(GateError):
        train_policy(RULE.model_copy(update={"gate_tolerance": 0.05}))


def mutate(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, right: str, wrong: str) -> None:
    """Replace a function by a copy whose source has `wrong` instead of `right`."""
    function = getattr(module, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert right in source, f"{module.__name__}.{name} no longer says {right}: break it in another way"
    scope: dict[str, Any] = {**function.__globals__, "torch": torch}
    exec("from __future__ import annotations\n" + source.replace(right, wrong), scope)
    for target in {module, sys.modules[function.__module__]}:
        monkeypatch.setattr(target, name, scope[name])
    if name in getattr(module, "CLIPS", {}):
        monkeypatch.setitem(module.CLIPS, name, scope[name])
