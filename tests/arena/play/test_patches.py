"""Patches as demonstrations: the expert's act is imitated where it was put, and enters no other loss."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from agents.model_folder import load_tokenizer
from agents.weights import resolve
from arena.cli.loop import wait
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


def make_patch_samples(records: list[MatchRecord]) -> list[Sample]:
    return patch_samples(records, POLICIES["p"], ROLE)


def test_sample_is_the_experts_act_in_the_policys_context() -> None:
    engines = [RandomWalkEngine() for _ in range(10)]
    records = [play_walk(number, engine, **PATCHED) for number, engine in enumerate(engines)]
    patched = [(e, r, turn) for e, r in zip(engines, records, strict=True) for turn in r.turns if is_patch(turn)]
    samples = make_patch_samples(records)
    assert len(samples) == len(patched) > 10
    for sample, (engine, record, turn) in zip(samples, patched, strict=True):
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
        assert [int(sample.turns[0]) for sample in make_patch_samples([again])] == own


def test_matches_without_patches_and_other_policies_show_nothing() -> None:
    assert make_patch_samples([play_walk(1)]) == []
    assert patch_samples([play_walk(1, **PATCHED)], POLICIES["q"], ROLE) == []


# -- the gradient ------------------------------------------------------------------------------------------


def make_samples_of_matches() -> tuple[list[Sample], list[Sample]]:
    """Return the samples of reward learning and the patches of ten matches."""
    records = [play_walk(number, **PATCHED) for number in range(10)]
    credited = assign(
        TurnBatch(trained_trajectories(records)), CreditSpec.model_validate({"estimator": "step_episode"})
    )
    return make_samples(credited, ROLE), make_patch_samples(records)


def with_model_logprobs(model: Any, samples: list[Sample]) -> list[Sample]:
    """Return the samples as if the model had sampled them."""
    with torch.no_grad():
        return [replace(s, behaviour=compute_plain_scores(model, s)[0].numpy()) for s in samples]


def make_spec(weight: float | None = WEIGHT) -> LearnSpec:
    demonstrations = None if weight is None else DemonstrationsSpec(weight=weight, patches=True)  # type: ignore[arg-type]
    return LearnSpec(
        demonstrations=demonstrations, regularisers={}, grad_clip=0.0, betas=(0.5, 0.9), token_budget=10**6
    )


def compute_gradient(samples: list[Sample]) -> dict[str, torch.Tensor]:
    """Return the gradient of the first step, from exp_avg, which is (1 - beta1) times it."""
    trainer = PolicyTrainer("p", make_tiny_llama(vocabulary=SIZE), make_spec())
    run_update(trainer, samples, np.random.default_rng(0))
    moments = wait(trainer.save())
    return {n.removesuffix(".exp_avg"): v / 0.5 for n, v in moments.items() if n.endswith(".exp_avg")}


def compute_objective(model: Any, samples: list[Sample], patches: list[Sample]) -> float:
    """Return the loss by its definition: means of -A p/p_old over samples and of WEIGHT * -log p over patches."""
    with torch.no_grad():
        ratios = [torch.exp(compute_plain_scores(model, s)[0] - torch.from_numpy(s.behaviour)) for s in samples]
        gains = torch.cat([-torch.from_numpy(s.advantages) * r for s, r in zip(samples, ratios, strict=True)])
        imitated = torch.cat([-compute_plain_scores(model, s)[0] for s in patches])
        return float(gains.double().mean() + WEIGHT * imitated.double().mean())


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("seed", [0, 1])
def test_gradient_matches_finite_differences(seed: int) -> None:
    model = make_tiny_llama(vocabulary=SIZE)
    samples, patches = make_samples_of_matches()
    samples = with_model_logprobs(model, samples)
    gradient, rng = compute_gradient([*samples, *patches]), torch.Generator().manual_seed(seed)
    directions = {n: torch.randn(p.shape, generator=rng) for n, p in model.named_parameters()}
    expected, step = sum(float((gradient[n] * direction).sum()) for n, direction in directions.items()), 1e-3
    losses = []
    for sign in (1, -1):
        moved = make_tiny_llama(vocabulary=SIZE)
        with torch.no_grad():
            for name, parameter in moved.named_parameters():
                parameter += sign * step * directions[name]
        losses.append(compute_objective(moved, samples, patches))
    assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(expected, rel=0.02, abs=1e-3)
    assert abs(expected) > 0.01


@pytest.mark.slow
def test_patches_enter_the_loss_only_by_imitation() -> None:
    """Other fields of patches change nothing, bit for bit, and with weight 0 patches have no effect."""
    model = make_tiny_llama(vocabulary=SIZE)
    samples, patches = make_samples_of_matches()
    samples = with_model_logprobs(model, samples)
    perturbed = [
        replace(s, advantages=s.advantages + 1e6, behaviour=s.behaviour - 5, places=s.places + 3) for s in patches
    ]

    def train(given: list[Sample], weight: float | None) -> dict[str, torch.Tensor]:
        learner = make_tiny_llama(vocabulary=SIZE)
        run_update(PolicyTrainer("p", learner, make_spec(weight)), given, np.random.default_rng(0))
        return copy_weights(learner)

    imitated, left_out = train([*samples, *patches], WEIGHT), train(samples, None)
    assert are_equal(imitated, train([*samples, *perturbed], WEIGHT))
    assert are_equal(left_out, train([*samples, *perturbed], 0.0)) and not are_equal(imitated, left_out)


# -- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("learn: {demonstrations: {patches: true}}", "learn.demonstrations.patches: set play.parts"),
        ("learn: {demonstrations: {}}", "give exactly one source"),
        (
            "play: {parts: [{patch: {expert: oracle}}]}\nlearn: {demonstrations: {patches: true, scripted: [oracle]}}",
            "exactly one source",
        ),
    ],
)
def test_impossible_demonstrations_are_refused_in_one_line(settings: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        compose([text_layer("here", f"{MAZE}{settings}\n")])
    assert "\n" not in str(error.value)
