"""Learning from another run's log: the on-policy gradient if the weights agree, else importance weights; and the
gradient of distillation by finite differences."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from agents.scoring import StreamScorer, score_distributions, score_streams
from agents.stream import Stream
from agents.token_scores import Divergence
from arena.cli.loop import wait
from arena.config.experiment import LearnSpec
from arena.learn.samples import Sample
from arena.learn.trainer import PolicyTrainer
from arena.play.logged import find_sparse_updates
from tests.factories.models import VOCABULARY, make_tiny_llama
from tests.factories.samples import compute_plain_scores, make_sample, make_samples
from tests.factories.updating import run_update

WEIGHTED = {"policy_gradient": {"correction": {"truncated": {"cap": 1e9}}}}


def update(model: torch.nn.Module, batch: Sequence[Sample], **rule: Any) -> tuple[torch.Tensor, Any]:
    """Return one step's gradient, taken from exp_avg = (1 - beta1) times the gradient, and the metrics."""
    spec = LearnSpec.model_validate({"regularisers": {}, **rule, "grad_clip": 0.0, "betas": (0.5, 0.9), "lr": 0.0})
    trainer = PolicyTrainer("p", model, spec)
    figures = run_update(trainer, batch, np.random.default_rng(0))
    moments = wait(trainer.save())
    return torch.cat([moments[f"{name}.exp_avg"].flatten() / 0.5 for name, _ in model.named_parameters()]), figures


def compute_gradient(loss: torch.Tensor, model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


# -- another run's log -------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["policy_gradient", WEIGHTED, "likelihood"], ids=["plain", "weighted", "likelihood"])
def test_log_of_the_same_weights_gives_the_on_policy_gradient(loss: Any) -> None:
    model = make_tiny_llama()
    played = make_samples(model)
    logged = [replace(s, source="logged") for s in played]
    on_policy, _ = update(model, played, loss=loss)
    off_policy, figures = update(model, logged, loss=loss)
    assert on_policy.abs().max() > 0.01
    torch.testing.assert_close(off_policy, on_policy, atol=1e-6, rtol=1e-6)
    assert "logprob_gap" not in figures


def test_log_of_other_weights_is_importance_weighted() -> None:
    """The gradient of the mean of -ρ A log p, ρ = p now / p there of each token; without correction ρ = 1."""
    model, sampler = make_tiny_llama(), make_tiny_llama(1)
    played = make_samples(model)
    behaviour = score_streams(StreamScorer(sampler), [s.stream for s in played], [s.temperature for s in played])
    logged = [replace(s, source="logged", behaviour=b) for s, b in zip(played, behaviour, strict=True)]
    for loss, weighs in ((WEIGHTED, True), ("policy_gradient", False)):
        total = torch.zeros(())
        for current in logged:
            now = compute_plain_scores(model, current)[0]
            ratio = (now.detach() - torch.from_numpy(current.behaviour)).exp() if weighs else torch.ones(len(now))
            total = total - (ratio * torch.from_numpy(current.advantages) * now).sum()
        expected = compute_gradient(total / sum(len(s.advantages) for s in logged), model)
        gradient, _ = update(model, logged, loss=loss)
        torch.testing.assert_close(gradient, expected, atol=1e-5, rtol=1e-4)


def test_importance_weights_make_a_log_unbiased() -> None:
    """Averaged over all one-token replies of other weights, the gradient is that of the expected reward."""
    model, sampler = make_tiny_llama(), make_tiny_llama(1)
    prompt, reward = [3, 1, 4], torch.linspace(-1, 1, VOCABULARY)
    exact = -(torch.softmax(model(input_ids=torch.tensor([prompt])).logits[0, -1], -1) * reward).sum()
    mixed = torch.zeros(sum(p.numel() for p in model.parameters()))
    sampler_logprobs = torch.log_softmax(sampler(input_ids=torch.tensor([prompt])).logits[0, -1], -1).detach()
    for token in range(VOCABULARY):
        reply = make_one_token_sample(prompt, token, float(reward[token]), float(sampler_logprobs[token]))
        mixed += sampler_logprobs[token].exp() * update(model, [reply], loss=WEIGHTED)[0]
    torch.testing.assert_close(mixed, compute_gradient(exact, model), atol=1e-5, rtol=1e-4)


def make_one_token_sample(prompt: list[int], token: int, advantage: float, behaviour: float) -> Sample:
    stream = Stream()
    stream.observe(prompt)
    stream.append_sampled([token], [behaviour], 0)
    played = make_sample(stream, np.array([advantage], np.float32), np.array([behaviour], np.float32), 1.0)
    return replace(played, source="logged")


def test_effective_share_by_hand() -> None:
    """Four tokens of equal probability under both models, so the weights are |A|."""
    model = make_tiny_llama()
    uniform = [make_one_token_sample([3, 1, 4], k, 1.0, 0.0) for k in range(4)]
    now = score_streams(StreamScorer(model), [s.stream for s in uniform], [1.0] * 4)
    same = [replace(s, behaviour=b) for s, b in zip(uniform, now, strict=True)]
    for advantages, share in (([1, -1, 1, 1], 1.0), ([2, 0, 0, 0], 0.25), ([3, 1, 0, 0], 16 / 40), ([0, 0, 0, 0], 0.0)):
        batch = [replace(s, advantages=np.array([a], np.float32)) for s, a in zip(same, advantages, strict=True)]
        for loss in (WEIGHTED, "likelihood"):
            assert update(model, batch, loss=loss)[1]["effective"] == pytest.approx(share, abs=1e-5)
    rare = [replace(s, behaviour=s.behaviour - np.float32(4 * (k == 0))) for k, s in enumerate(same)]
    ratios = np.exp([4.0, 0, 0, 0])
    figures = update(model, rare, loss="policy_gradient")[1]
    assert figures["effective"] == pytest.approx(ratios.mean() ** 2 / (ratios**2).mean(), rel=1e-4)
    played = [replace(s, source="played") for s in same]
    assert "effective" not in update(model, played, loss=WEIGHTED)[1]


def test_log_with_few_effective_tokens_is_reported() -> None:
    messages = find_sparse_updates({"few": {"effective": 0.021}, "many": {"effective": 0.4}, "played": {}})
    assert list(messages) == ["few"] and messages["few"].startswith(
        "policy 'few': 2 % of the log's tokens carry its update"
    )


# -- a teacher ---------------------------------------------------------------------------------------------


def compute_reverse_kl(model: torch.nn.Module, teacher: torch.nn.Module, prompt: list[int]) -> torch.Tensor:
    logprobs, teacher_logprobs = (
        torch.log_softmax(m(input_ids=torch.tensor([prompt])).logits[0, -1], -1) for m in (model, teacher)
    )
    return (logprobs.exp() * (logprobs - teacher_logprobs.detach())).sum()


def test_on_policy_distillation_has_the_gradient_of_the_reverse_kl() -> None:
    """Averaged over the student's replies with advantages of 0; also by finite differences."""
    model, teacher, prompt = make_tiny_llama(), make_tiny_llama(1), [3, 1, 4]
    scores = [
        torch.log_softmax(m(input_ids=torch.tensor([prompt])).logits[0, -1], -1).detach() for m in (model, teacher)
    ]
    rule = {"regularisers": {"kl": {"weight": 1.0, "estimate": "k2"}}}
    mean = torch.zeros(sum(p.numel() for p in model.parameters()))
    for token in range(VOCABULARY):
        reply = make_one_token_sample(prompt, token, 0.0, float(scores[0][token]))
        reply = reply.with_reference(scores[1][token : token + 1].numpy())
        mean += scores[0][token].exp() * update(model, [reply], **rule)[0]
    torch.testing.assert_close(
        mean, compute_gradient(compute_reverse_kl(model, teacher, prompt), model), atol=1e-5, rtol=1e-4
    )
    double_model, double_teacher = make_tiny_llama().double(), make_tiny_llama(1).double()
    direction = torch.randn(len(mean), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    direction /= direction.norm()
    around = []
    for step in (3e-3, -3e-3):
        moved = torch.nn.utils.parameters_to_vector(double_model.parameters()).detach() + step * direction
        changed = make_tiny_llama().double()
        torch.nn.utils.vector_to_parameters(moved, changed.parameters())
        with torch.no_grad():
            around.append(compute_reverse_kl(changed, double_teacher, prompt))
    expected_slope = float(around[0] - around[1]) / 6e-3
    assert float(mean.double() @ direction) == pytest.approx(expected_slope, rel=1e-3)


@pytest.mark.slow
def test_distillation_approaches_the_teacher() -> None:
    model, teacher, rng = make_tiny_llama(), make_tiny_llama(1), np.random.default_rng(0)
    rule = LearnSpec.model_validate({"lr": 1e-2, "regularisers": {"kl": {"weight": 1.0, "estimate": "k2"}}})
    trainer, before = PolicyTrainer("p", model, rule), compute_reverse_kl(model, teacher, [3, 1, 4]).item()
    for _ in range(30):
        probabilities = torch.softmax(model(input_ids=torch.tensor([[3, 1, 4]])).logits[0, -1], -1).detach()
        tokens = torch.multinomial(
            probabilities, 32, replacement=True, generator=torch.Generator().manual_seed(int(rng.integers(99)))
        )
        batch = [make_one_token_sample([3, 1, 4], t, 0.0, float(probabilities[t].log())) for t in tokens.tolist()]
        teacher_logprobs = score_streams(StreamScorer(teacher), [s.stream for s in batch], [1.0] * len(batch))
        run_update(trainer, [s.with_reference(r) for s, r in zip(batch, teacher_logprobs, strict=True)], rng)
    assert compute_reverse_kl(model, teacher, [3, 1, 4]).item() < before / 2


def compute_distributions(model: torch.nn.Module, batch: Sequence[Sample]) -> list[np.ndarray]:
    return score_distributions(StreamScorer(model), [s.stream for s in batch], [s.temperature for s in batch])


def test_distributions_are_normalised_and_match_the_sampled_tokens() -> None:
    model, batch = make_tiny_llama(), make_samples(make_tiny_llama())
    for current, logprobs in zip(batch, compute_distributions(model, batch), strict=True):
        assert logprobs.shape == (len(current.advantages), VOCABULARY)
        np.testing.assert_allclose(np.exp(logprobs).sum(1), 1.0, atol=1e-5)
        sampled = current.with_reference(logprobs).reference
        assert sampled is not None
        np.testing.assert_allclose(sampled, compute_plain_scores(model, current)[0].detach(), atol=1e-5)


def compute_exact_kl(model: torch.nn.Module, teacher: torch.nn.Module, batch: Sequence[Sample]) -> torch.Tensor:
    """Return the mean over the samples' tokens of KL(model ‖ teacher), by separate forward passes."""
    terms = []
    for current in batch:
        ids, places = current.stream.ids, [k - 1 for k, logprobs in enumerate(current.stream.mask) if logprobs]
        logprobs, teacher_logprobs = (
            torch.log_softmax(m(input_ids=torch.tensor([ids])).logits[0, places] / current.temperature, -1)
            for m in (model, teacher)
        )
        terms.append((logprobs.exp() * (logprobs - teacher_logprobs.detach())).sum(-1))
    return torch.cat(terms).mean()


@pytest.mark.parametrize("token_budget", [4096, 16])
def test_exact_distillation_has_the_gradient_of_the_full_kl(token_budget: int) -> None:
    """Compare with autograd and with finite differences, for the full distribution at each sampled token."""
    model, teacher = make_tiny_llama(), make_tiny_llama(1)
    batch = [replace(s, advantages=np.zeros_like(s.advantages)) for s in make_samples(model)]
    taught = [s.with_reference(w) for s, w in zip(batch, compute_distributions(teacher, batch), strict=True)]
    rule = {"regularisers": {"kl": {"weight": 1.0, "estimate": "exact"}}, "token_budget": token_budget}
    gradient, figures = update(model, taught, **rule)
    value = compute_exact_kl(model, teacher, batch)
    torch.testing.assert_close(gradient, compute_gradient(value, model), atol=1e-6, rtol=1e-4)
    assert figures["kl_term"] == pytest.approx(value.item(), rel=1e-5) and figures["kl_term"] > 0.01
    direction, double_teacher = gradient.double() / gradient.double().norm(), make_tiny_llama(1).double()
    around = []
    for step in (1e-3, -1e-3):
        changed = make_tiny_llama().double()
        moved = torch.nn.utils.parameters_to_vector(changed.parameters()).detach() + step * direction
        torch.nn.utils.vector_to_parameters(moved, changed.parameters())
        with torch.no_grad():
            around.append(float(compute_exact_kl(changed, double_teacher, batch)))
    assert float(gradient.double() @ direction) == pytest.approx((around[0] - around[1]) / 2e-3, rel=1e-3)


def test_exact_kl_is_zero_at_the_teacher_and_ignores_banned_ids() -> None:
    logits = torch.tensor([[0.0, 1.0, -torch.inf], [2.0, 0.0, 1.0]], requires_grad=True)
    teacher = torch.log_softmax(logits.detach(), -1)
    divergence = Divergence.apply(logits, teacher, torch.ones(2))
    divergence.sum().backward()
    torch.testing.assert_close(divergence.detach(), torch.zeros(2))
    torch.testing.assert_close(logits.grad, torch.zeros(2, 3))
    log_p, uniform = torch.tensor([[0.75, 0.25]]).log(), torch.full((1, 2), 0.5).log()
    assert float(Divergence.apply(log_p, uniform, torch.ones(1))) == pytest.approx(
        0.75 * np.log(1.5) + 0.25 * np.log(0.5)
    )


def test_only_exact_kl_needs_full_distributions() -> None:
    def uses_distributions(**kl: Any) -> bool:
        return LearnSpec.model_validate({"regularisers": {"kl": kl}}).uses_distributions

    assert uses_distributions(estimate="exact") and not uses_distributions(estimate="exact", weight=0.0)
    assert not any(uses_distributions(estimate=name) for name in ("k1", "k2", "k3"))
