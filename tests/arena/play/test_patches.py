"""Patches as demonstrations: what is imitated is the expert's act where it was put, and it reaches no other loss."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from agents.weights import load_tokenizer, resolve
from arena.config.experiment import LearnSpec
from arena.config.layers import compose
from arena.config.sources import text_layer
from arena.credit.assign import assign
from arena.credit.batch import TurnBatch
from arena.credit.samples import make_samples
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError
from arena.learn.samples import Sample
from arena.learn.settings import DemonstrationsSpec
from arena.learn.trainer import PolicyTrainer
from arena.play.branches import Branch
from arena.play.demonstrations import patch_samples
from arena.records import MatchRecord, is_patch, trained_trajectories
from tests.factories.babble import FRAME, POLICIES
from tests.factories.models import are_equal, copy_weights, make_tiny_llama
from tests.factories.samples import compute_plain_scores
from tests.factories.texts import MAZE
from tests.factories.updating import run_update
from tests.factories.walks import PATCHED, RandomWalkEngine, play_walk

ROLE = {"nano_player": 1.0}
SIZE = len(load_tokenizer(resolve("nano")))
WEIGHT = 0.7


def shown(records: list[MatchRecord]) -> list[Sample]:
    return patch_samples(records, POLICIES["p"], ROLE)


def test_a_sample_is_the_experts_act_where_the_policy_was_asked() -> None:
    engines = [RandomWalkEngine() for _ in range(10)]
    records = [play_walk(number, engine, **PATCHED) for number, engine in enumerate(engines)]
    put = [(e, r, turn) for e, r in zip(engines, records, strict=True) for turn in r.turns if is_patch(turn)]
    samples = shown(records)
    assert len(samples) == len(put) > 10
    for sample, (engine, record, turn) in zip(samples, put, strict=True):
        asked = {request.seed[-1]: list(request.ids) for request in engine.requests}
        stream, before = sample.stream, asked[turn.index - 1]
        assert record.turns[turn.index - 1].source == "replaced" and sample.source == "demonstration"
        assert stream.ids == [*before, *FRAME.encode(turn.raw), FRAME.stop_id]
        assert stream.mask == [False] * len(before) + [True] * (len(stream) - len(before))
        assert sample.learned.all() and set(sample.turns) == {turn.index}


def test_a_branch_shows_only_patches_of_its_own() -> None:
    record = play_walk(3, **PATCHED)
    for turn in (t.index for t in record.turns if t.source != "patch"):
        again = play_walk(3, branch=Branch(record, turn), **PATCHED)
        own = [t.index for t in again.turns if is_patch(t) and t.index > turn]
        assert [int(sample.turns[0]) for sample in shown([again])] == own


def test_matches_without_patches_and_other_policies_show_nothing() -> None:
    assert shown([play_walk(1)]) == []
    assert patch_samples([play_walk(1, **PATCHED)], POLICIES["q"], ROLE) == []


# -- the gradient ------------------------------------------------------------------------------------------


def walked() -> tuple[list[Sample], list[Sample]]:
    """What is learned by reward, and the patches, of ten matches."""
    records = [play_walk(number, **PATCHED) for number in range(10)]
    credited = assign(
        TurnBatch(trained_trajectories(records)), CreditSpec.model_validate({"estimator": "step_episode"})
    )
    return make_samples(credited, ROLE), shown(records)


def as_sampled(model: Any, played: list[Sample]) -> list[Sample]:
    """The same as if the model had sampled them."""
    with torch.no_grad():
        return [replace(s, behaviour=compute_plain_scores(model, s)[0].numpy()) for s in played]


def rule(weight: float | None = WEIGHT) -> LearnSpec:
    given = None if weight is None else DemonstrationsSpec(weight=weight, patches=True)  # type: ignore[arg-type]
    return LearnSpec(demonstrations=given, regularisers={}, grad_clip=0.0, betas=(0.5, 0.9), token_budget=10**6)


def gradient(given: list[Sample], folder: Path) -> dict[str, torch.Tensor]:
    """Of the first step: exp_avg is then (1 - beta1) times it."""
    trainer = PolicyTrainer("p", make_tiny_llama(vocabulary=SIZE), rule())
    run_update(trainer, given, np.random.default_rng(0))
    trainer.write(folder)
    found = load_file(folder / "optimizer.safetensors")
    return {n.removesuffix(".exp_avg"): v / 0.5 for n, v in found.items() if n.endswith(".exp_avg")}


def objective(model: Any, played: list[Sample], lesson: list[Sample]) -> float:
    """The loss by its definition: -A p/p_old over what was played, and the weight times -log p over patches, means."""
    with torch.no_grad():
        ratios = [torch.exp(compute_plain_scores(model, s)[0] - torch.from_numpy(s.behaviour)) for s in played]
        gains = torch.cat([-torch.from_numpy(s.advantages) * r for s, r in zip(played, ratios, strict=True)])
        imitated = torch.cat([-compute_plain_scores(model, s)[0] for s in lesson])
        return float(gains.double().mean() + WEIGHT * imitated.double().mean())


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_gradient_is_that_of_finite_differences(seed: int, tmp_path: Path) -> None:
    model = make_tiny_llama(vocabulary=SIZE)
    played, lesson = walked()
    played = as_sampled(model, played)
    found, rng = gradient([*played, *lesson], tmp_path), torch.Generator().manual_seed(seed)
    ways = {n: torch.randn(p.shape, generator=rng) for n, p in model.named_parameters()}
    expected, step = sum(float((found[n] * way).sum()) for n, way in ways.items()), 1e-3
    ends = []
    for sign in (1, -1):
        moved = make_tiny_llama(vocabulary=SIZE)
        with torch.no_grad():
            for name, parameter in moved.named_parameters():
                parameter += sign * step * ways[name]
        ends.append(objective(moved, played, lesson))
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(expected, rel=0.02, abs=1e-3)
    assert abs(expected) > 0.01


@pytest.mark.slow
def test_patches_reach_the_loss_by_imitation_alone() -> None:
    """Mutations: whatever else is said of patches changes nothing to the bit, and with weight 0 they do nothing."""
    model = make_tiny_llama(vocabulary=SIZE)
    played, lesson = walked()
    played = as_sampled(model, played)
    wild = [replace(s, advantages=s.advantages + 1e6, behaviour=s.behaviour - 5, places=s.places + 3) for s in lesson]

    def after(given: list[Sample], weight: float | None) -> dict[str, torch.Tensor]:
        learner = make_tiny_llama(vocabulary=SIZE)
        run_update(PolicyTrainer("p", learner, rule(weight)), given, np.random.default_rng(0))
        return copy_weights(learner)

    imitated, left_out = after([*played, *lesson], WEIGHT), after(played, None)
    assert are_equal(imitated, after([*played, *wild], WEIGHT))
    assert are_equal(left_out, after([*played, *wild], 0.0)) and not are_equal(imitated, left_out)


# -- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("learn: {demonstrations: {patches: true}}", "learn.demonstrations.patches: set play.parts"),
        ("learn: {demonstrations: {}}", "one of them demonstrates"),
        (
            "play: {parts: [{patch: {expert: oracle}}]}\nlearn: {demonstrations: {patches: true, scripted: [oracle]}}",
            "one of them",
        ),
    ],
)
def test_what_cannot_be_imitated_is_refused_in_a_line(settings: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        compose([text_layer("here", f"{MAZE}{settings}\n")])
    assert "\n" not in str(error.value)
