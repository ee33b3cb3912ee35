"""The trainer: DeepSpeed's update equals a plain PyTorch loop's and uses only the policy's own tokens."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from agents.costs import estimate_costs
from agents.engines.in_process import InProcessEngine
from agents.precision import Precision
from agents.scoring import StreamScorer, score_streams
from agents.stream import Stream
from arena.cli.loop import wait
from arena.config.experiment import LearnSpec
from arena.config.kinds import choose
from arena.errors import GateError
from arena.learn.samples import Sample
from arena.learn.settings import ImitateSpec
from arena.learn.trainer import PolicyTrainer
from tests.factories.models import VOCABULARY, are_equal, assert_nearly_equal, copy_weights, make_tiny_llama
from tests.factories.requests import generate, make_request
from tests.factories.samples import STAGES, Stage, compute_plain_scores, make_regularisers, make_samples
from tests.factories.updating import run_imitation, run_update


def compute_plain_loss(
    model: torch.nn.Module, part: list[Sample], old: list[torch.Tensor], rule: LearnSpec
) -> torch.Tensor:
    """Return the objective written out: mean over the part's tokens of clipped surrogate, KL and entropy."""
    clip = rule.loss.with_defaults().settings["clip"].with_defaults().settings
    weight = {name: r.settings["weight"].to_plain() for name, r in rule.regularisers.items()}
    total, count = torch.zeros(()), 0
    for sample, before in zip(part, old, strict=True):
        now, entropy = compute_plain_scores(model, sample)
        advantage = torch.from_numpy(sample.advantages)
        ratio = (now - before).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - clip["low"], 1 + clip["high"]) * advantage)
        total = total - gain.sum() - weight["entropy"] * entropy.sum()
        if sample.reference is not None:
            d = torch.from_numpy(sample.reference) - now
            total = total + weight["kl"] * (d.exp() - d - 1).sum()
        count += len(now)
    return total / count


def apply_plain_updates(model: torch.nn.Module, rounds: list[list[Sample]], rule: LearnSpec, seed: int) -> None:
    """Apply the same updates with torch's AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rule.lr, betas=rule.betas, weight_decay=rule.weight_decay)
    for number, batch in enumerate(rounds):
        rng = np.random.default_rng(seed + number)
        with torch.no_grad():
            old = [compute_plain_scores(model, s)[0] for s in batch]
        for _ in range(rule.epochs):
            for part in np.array_split(rng.permutation(len(batch)), rule.minibatches):
                optimizer.zero_grad()
                compute_plain_loss(model, [batch[i] for i in part], [old[i] for i in part], rule).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), rule.grad_clip)
                optimizer.step()


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_update_moves_tokens_in_the_direction_of_their_advantage(advantage: float) -> None:
    model = make_tiny_llama()
    batch = make_samples(model, advantage=advantage)
    run_update(PolicyTrainer("p", model, LearnSpec(lr=1e-3)), batch, np.random.default_rng(0))
    after = score_streams(StreamScorer(model), [s.stream for s in batch], [s.temperature for s in batch])
    change = np.concatenate([a - s.behaviour for a, s in zip(after, batch, strict=True)])
    assert advantage * change.mean() > 0.005


@pytest.mark.parametrize("budget", [1, 10**6], ids=["one by one", "packed"])
def test_gradient_is_of_masked_tokens_only(tmp_path: Path, budget: int) -> None:
    model = make_tiny_llama()
    batch = make_samples(model)
    rule = LearnSpec(
        regularisers=make_regularisers(kl=0.1, entropy=0.05), grad_clip=0.0, token_budget=budget, betas=(0.5, 0.9)
    )
    batch = [s.with_reference(s.behaviour + np.float32(0.3)) for s in batch]
    compute_plain_loss(model, batch, [torch.from_numpy(s.behaviour) for s in batch], rule).backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    trainer = PolicyTrainer("p", model, rule)
    run_update(trainer, batch, np.random.default_rng(0))
    save(trainer, tmp_path)
    first = load_file(tmp_path / "optimizer.safetensors")
    for name, gradient in expected.items():  # after one step exp_avg is (1 - beta1) times the gradient
        torch.testing.assert_close(first[f"{name}.exp_avg"] / 0.5, gradient, atol=1e-5, rtol=1e-4)


def test_training_a_stream_equals_training_each_turn_with_its_history(tmp_path: Path) -> None:
    """One pass over a match has the gradient of one sample per turn, each with its whole history."""
    gradients = []
    for split in (lambda batch: batch, lambda batch: [one for s in batch for one in split_by_turn(s)]):
        model = make_tiny_llama()
        trainer = PolicyTrainer("p", model, LearnSpec(grad_clip=0.0, betas=(0.5, 0.9)))
        run_update(trainer, split(make_samples(model)), np.random.default_rng(0))
        save(trainer, tmp_path)
        moments = load_file(tmp_path / "optimizer.safetensors")
        gradients.append(
            torch.cat([moments[f"{name}.exp_avg"].flatten() / 0.5 for name, _ in model.named_parameters()])
        )
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-5)


def save(trainer: PolicyTrainer, folder: Path) -> None:
    """Save weights and optimiser as a checkpoint does."""
    with trainer.gather():
        trainer.model.save_pretrained(folder)
    save_file(wait(trainer.save()), folder / "optimizer.safetensors")


def split_by_turn(sample: Sample) -> list[Sample]:
    """Split a sample into one per turn, each ending with its turn."""
    parts, stream = [], sample.stream
    for turn in np.unique(sample.turns).tolist():
        end = max(k for k, index in enumerate(stream.turns) if index == turn) + 1
        mask = [index == turn for index in stream.turns[:end]]
        turn_stream = Stream(
            stream.ids[:end], mask, stream.logprobs[:end], [turn if own_tokens else -1 for own_tokens in mask]
        )
        own_tokens = sample.turns == turn
        columns = {name: getattr(sample, name)[own_tokens] for name in ("advantages", "behaviour", "places", "learned")}
        parts.append(replace(sample, stream=turn_stream, **columns))
    return parts


def test_tokens_without_advantage_carry_no_gradient() -> None:
    """Each token's gradient is its own: with all but one turn's advantages 0, only that turn's tokens count."""
    model, reference = make_tiny_llama(), make_tiny_llama()
    batch = make_samples(model)
    masked = [replace(s, advantages=s.advantages * (i == 2)) for i, s in enumerate(batch)]
    # The mean is over all tokens, so the lone sample by itself weighs more by this factor.
    share = sum(len(s.advantages) for s in batch) / len(batch[2].advantages)
    single = [replace(batch[2], advantages=batch[2].advantages / np.float32(share))]
    rule = LearnSpec(lr=1e-3, grad_clip=0.0)
    run_update(PolicyTrainer("p", model, rule), masked, np.random.default_rng(0))
    run_update(PolicyTrainer("p", reference, rule), single, np.random.default_rng(0))
    assert_nearly_equal(model, reference, rule.lr)
    assert not are_equal(copy_weights(model), copy_weights(make_tiny_llama()))


def test_zero_advantages_change_no_weights() -> None:
    model = make_tiny_llama()
    before = copy_weights(model)
    run_update(
        PolicyTrainer("p", model, LearnSpec(lr=1e-2, epochs=2, minibatches=2)),
        make_samples(model, advantage=0.0),
        np.random.default_rng(0),
    )
    assert are_equal(copy_weights(model), before)


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (3, 2)])
def test_two_updates_equal_those_of_a_plain_loop(stage: Stage, epochs: int, minibatches: int) -> None:
    model, plain_model = make_tiny_llama(), make_tiny_llama()
    rule = LearnSpec.model_validate(dict(
        lr=1e-3, epochs=epochs, minibatches=minibatches, zero_stage=stage, grad_clip=0.3, weight_decay=0.01,
        gate_tolerance=1.0, token_budget=200, regularisers=make_regularisers(kl=0.1, entropy=0.01),
        loss=choose("loss", "policy_gradient", clip={"ppo": {"low": 0.01, "high": 0.02}}),
    ))  # fmt: skip
    rounds = [[s.with_reference(s.behaviour - np.float32(0.2)) for s in make_samples(model, seed)] for seed in (1, 2)]
    trainer = PolicyTrainer("p", model, rule)
    for number, batch in enumerate(rounds):
        figures = run_update(trainer, batch, np.random.default_rng(10 + number))
    apply_plain_updates(plain_model, rounds, rule, 10)
    with trainer.gather():
        assert_nearly_equal(model, plain_model, rule.lr)
    assert (figures["clipped"] > 0) == (epochs > 1), "the clip was active"
    assert trainer.steps == 2 * epochs * minibatches
    assert {"loss", "kl", "entropy", "clipped", "logprob_gap"} <= set(figures)
    assert all(np.isfinite(v) for v in figures.values())


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("stage", STAGES)
def test_gradient_checkpointing_changes_no_update(stage: Stage) -> None:
    moved = []
    for is_checkpointing in (False, True):
        model = make_tiny_llama()
        rule = LearnSpec(
            lr=1e-3, zero_stage=stage, minibatches=2, token_budget=60, gradient_checkpointing=is_checkpointing
        )
        trainer = PolicyTrainer("p", model, rule)
        run_update(trainer, make_samples(model), np.random.default_rng(0))
        with trainer.gather():
            moved.append(copy_weights(model))
    assert are_equal(*moved) and not are_equal(moved[0], copy_weights(make_tiny_llama()))


@pytest.mark.parametrize("stage", STAGES[1:])
def test_offloading_the_optimizer_changes_no_update(stage: Stage) -> None:
    """Up to rounding: DeepSpeed sums the offloaded gradient's norm, by which it clips, in another order."""
    models = []
    for offload in (False, True):
        model = make_tiny_llama()
        rule = LearnSpec(lr=1e-3, zero_stage=stage, minibatches=2, token_budget=60, offload_optimizer=offload)
        trainer = PolicyTrainer("p", model, rule)
        run_update(trainer, make_samples(model), np.random.default_rng(0))
        assert (trainer.optimiser.engine.zero_offload_optimizer() is not None) == offload
        models.append((trainer, model))
    (reference, model), (offloaded, offloaded_model) = models
    with reference.gather(), offloaded.gather():
        assert_nearly_equal(model, offloaded_model, 1e-3)
        assert not are_equal(copy_weights(model), copy_weights(make_tiny_llama()))


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(("stage", "offload"), [*((stage, False) for stage in STAGES), (2, True), (3, True)])
def test_saved_optimizer_resumes_bit_equal(tmp_path: Path, stage: Stage, offload: bool) -> None:
    model = make_tiny_llama()
    rule = LearnSpec(lr=1e-3, zero_stage=stage, minibatches=2, gate_tolerance=1.0, offload_optimizer=offload)
    trainer = PolicyTrainer("p", model, rule)
    run_update(trainer, make_samples(model, 1), np.random.default_rng(1))
    save(trainer, tmp_path)
    resumed_model = LlamaForCausalLM.from_pretrained(tmp_path).eval()
    resumed = PolicyTrainer("p", resumed_model, rule)
    wait(resumed.load(tmp_path, trainer.state()))
    batch = make_samples(model, 2)
    for current in (trainer, resumed):
        run_update(current, batch, np.random.default_rng(2))
    with trainer.gather(), resumed.gather():
        assert copy_weights(model)["model.embed_tokens.weight"].numel() == VOCABULARY * 16
        assert are_equal(copy_weights(model), copy_weights(resumed_model))
    assert trainer.steps == resumed.steps == 4


def make_bfloat16_model() -> LlamaForCausalLM:
    """Return a model with bfloat16 weights as from `load_model`; buffers such as rotary frequencies stay float32."""
    model = make_tiny_llama()
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    return model


MASTERS = [(stage, offload) for stage in (2, 3) for offload in (False, True)]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("stage", "offload"), MASTERS)
def test_master_weights_accumulate_steps_below_bfloat16_resolution(stage: Stage, offload: bool) -> None:
    model = make_bfloat16_model()
    rule = LearnSpec(lr=1e-3, zero_stage=stage, offload_optimizer=offload, gate_tolerance=1e9, regularisers={})
    trainer, moved = PolicyTrainer("p", model, rule, bf16=True), []
    for step in range(8):  # Adam's steps are about lr each
        run_update(trainer, make_samples(make_tiny_llama(), step, advantage=1.0), np.random.default_rng(step))
        with trainer.gather():
            now = copy_weights(model)["model.norm.weight"]
            assert now.dtype == torch.bfloat16
            moved.append(int((now != 1).sum()))  # its neighbours in bfloat16 are 0.0039 below and 0.0078 above
    assert moved[0] == 0 < moved[-1]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("stage", "offload"), MASTERS)
def test_saved_master_weights_resume_bit_equal(tmp_path: Path, stage: Stage, offload: bool) -> None:
    model = make_bfloat16_model()
    rule = LearnSpec(lr=1e-4, zero_stage=stage, minibatches=2, gate_tolerance=1.0, offload_optimizer=offload)
    trainer = PolicyTrainer("p", model, rule, bf16=True)
    run_update(trainer, make_samples(model, 1), np.random.default_rng(1))
    save(trainer, tmp_path)
    moments = load_file(tmp_path / "optimizer.safetensors")
    resumed_model = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16).eval()
    for name, parameter in resumed_model.named_parameters():
        master = moments[f"{name}.master"]
        assert master.dtype == torch.float32 and torch.equal(master.bfloat16(), parameter)
        assert not torch.equal(master, parameter.float())  # what was rounded off is in the master alone
    resumed = PolicyTrainer("p", resumed_model, rule, bf16=True)
    wait(resumed.load(tmp_path, trainer.state()))
    for seed in (2, 3):
        batch = make_samples(resumed_model, seed)
        for current in (trainer, resumed):
            run_update(current, batch, np.random.default_rng(seed))
    for folder, current in (("a", trainer), ("b", resumed)):
        (tmp_path / folder).mkdir()
        save(current, tmp_path / folder)
    assert are_equal(*(load_file(tmp_path / f / "optimizer.safetensors") for f in "ab"))
    with trainer.gather(), resumed.gather():
        assert are_equal(copy_weights(model), copy_weights(resumed_model))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("stage", [2, 3])
def test_update_with_master_weights_is_nearly_the_same(stage: Stage) -> None:
    full_model, half_model = make_tiny_llama(), make_bfloat16_model()
    batch, before = make_samples(full_model), copy_weights(full_model)
    for model, bf16 in ((full_model, False), (half_model, True)):
        rule = LearnSpec(lr=1e-2, zero_stage=stage, token_budget=60, gate_tolerance=1.0)
        trainer = PolicyTrainer("p", model, rule, bf16)
        run_update(trainer, batch, np.random.default_rng(0))
        with trainer.gather():
            ends = copy_weights(model)
        changes = torch.cat([(ends[name].float() - value).flatten() for name, value in before.items()])
        if model is full_model:
            expected = changes
    assert torch.nn.functional.cosine_similarity(changes, expected, dim=0) > 0.9


@pytest.mark.parametrize("minibatches", [1, 2])
def test_gate_stops_before_any_weight_changes(minibatches: int) -> None:
    model = make_tiny_llama()
    before = copy_weights(model)
    batch = [replace(s, behaviour=s.behaviour + np.float32(0.25)) for s in make_samples(model)]
    trainer = PolicyTrainer("seller", model, LearnSpec(lr=1e-2, gate_tolerance=0.05, minibatches=minibatches))
    with pytest.raises(GateError) as error:
        run_update(trainer, batch, np.random.default_rng(0))
    message = str(error.value)
    assert "'seller'" in message and "0.25 on average" in message and "0.05" in message and "\n" not in message
    assert f"over {sum(len(s.behaviour) for s in batch)} tokens" in message
    assert are_equal(copy_weights(model), before)


def test_gate_applies_to_every_loss() -> None:
    model = make_tiny_llama()
    batch = [replace(s, behaviour=s.behaviour + np.float32(0.25)) for s in make_samples(model)]
    with pytest.raises(GateError):
        run_update(
            PolicyTrainer("p", model, LearnSpec.model_validate(dict(loss="likelihood"))),
            batch,
            np.random.default_rng(0),
        )


def test_gate_stops_at_nan() -> None:
    model = make_tiny_llama()
    batch = make_samples(model)
    batch[0] = replace(batch[0], behaviour=batch[0].behaviour * np.float32("nan"))
    with pytest.raises(GateError):
        run_update(PolicyTrainer("p", model, LearnSpec()), batch, np.random.default_rng(0))


@pytest.mark.parametrize("stage", [0, 2])
def test_imitation_raises_likelihood_and_resets_moments(tmp_path: Path, stage: Stage) -> None:
    model = make_tiny_llama()
    demonstrations = make_samples(model, advantage=1.0)
    trainer = PolicyTrainer("p", model, LearnSpec(lr=1e-4, zero_stage=stage))
    run_imitation(
        trainer,
        demonstrations,
        ImitateSpec(scripted=["random"], lr=3e-3, epochs=5, minibatches=2),
        np.random.default_rng(0),
    )
    after = score_streams(
        StreamScorer(model), [s.stream for s in demonstrations], [s.temperature for s in demonstrations]
    )
    assert np.mean(np.concatenate([a - s.behaviour for a, s in zip(after, demonstrations, strict=True)])) > 0.1
    assert trainer.steps == 0 and trainer.rule.loss.name == "policy_gradient" and trainer.rule.lr == 1e-4
    save(trainer, tmp_path)
    assert not any(value.any() for value in load_file(tmp_path / "optimizer.safetensors").values())
    fresh = PolicyTrainer("p", LlamaForCausalLM.from_pretrained(tmp_path).eval(), LearnSpec(lr=1e-4, zero_stage=stage))
    batch = make_samples(model, 3)
    run_update(trainer, batch, np.random.default_rng(1))
    run_update(fresh, batch, np.random.default_rng(1))
    assert are_equal(copy_weights(model), copy_weights(fresh.model))


@pytest.mark.parametrize(("decay", "last"), [(False, 3e-3), (True, 3e-3 * (1 - 19 / 20))])
def test_imitation_can_decay_its_rate(decay: bool, last: float) -> None:
    model = make_tiny_llama()
    trainer = PolicyTrainer("p", model, LearnSpec())
    spec = ImitateSpec(scripted=["random"], lr=3e-3, epochs=10, minibatches=2, decay=decay)
    run_imitation(trainer, make_samples(model, advantage=1.0), spec, np.random.default_rng(0))
    assert trainer.optimiser.engine.optimizer.param_groups[0]["lr"] == pytest.approx(last)  # of the last of 20 steps


def test_more_minibatches_than_samples_skip_the_empty_ones() -> None:
    model = make_tiny_llama()
    trainer = PolicyTrainer("p", model, LearnSpec(minibatches=4))
    run_update(trainer, make_samples(model, count=2), np.random.default_rng(0))
    assert trainer.steps == 2


def test_warmup_begins_small() -> None:
    moved: dict[int, float] = {}
    for warmup in (0, 9):
        model: Any = make_tiny_llama()
        before = copy_weights(model)
        trainer = PolicyTrainer("p", model, LearnSpec(lr=1e-3, warmup_steps=warmup))
        run_update(trainer, make_samples(model), np.random.default_rng(0))
        moved[warmup] = float(max((p - before[n]).abs().max() for n, p in copy_weights(model).items()))
    assert moved[9] == pytest.approx(moved[0] / 10, rel=1e-2)


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("early", [True, False])
def test_engine_serves_sharded_weights(precision: Precision, early: bool) -> None:
    """Whether they are first published before the optimiser shards them, or after."""
    model = make_bfloat16_model() if precision.has_bf16_weights else make_tiny_llama()
    rule = LearnSpec(lr=1e-2, zero_stage=3, gate_tolerance=1e9, regularisers={})
    trainer, engine = PolicyTrainer("p", model, rule, bf16=precision.uses_bf16_products), InProcessEngine(precision)
    samples = make_samples(make_tiny_llama())
    streams, temperatures = [s.stream for s in samples], [s.temperature for s in samples]
    for version in (1, 2, 3):
        if version > 1:
            run_update(trainer, samples, np.random.default_rng(version))
        elif not early:
            continue
        weights = wait(trainer.weights())
        with weights.gather():
            wait(engine.publish("p", version, weights))
        requests = [make_request([1, 2, 3, 4], seed, str(seed), max_tokens=4) for seed in range(3)]
        assert [reply.version for reply in generate(engine, requests)] == [version] * 3
        for served, own in zip(
            wait(engine.score("p", streams, temperatures)), wait(trainer.score(streams, temperatures)), strict=True
        ):
            assert served == pytest.approx(own.logprobs, abs=1e-5 if precision is Precision.FP32 else 0.1)


def test_sharding_does_not_change_pass_costs() -> None:
    """A resumed run creates the optimiser before planning, a new one after; their passes must be equal."""
    trainer = PolicyTrainer("p", make_tiny_llama(), LearnSpec(regularisers={}, zero_stage=3))
    assert trainer.optimiser and trainer.costs == estimate_costs(make_tiny_llama()) and trainer.costs.scores > 0
    assert sum(parameter.numel() for parameter in trainer.model.parameters()) == 0, "the weights are sharded"
