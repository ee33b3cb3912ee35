"""DPO and KTO on rows of data sets: hand-worked values, finite differences, and TRL's losses from the same rows."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.chat import ChatFrame
from agents.nano import build_nano_tokenizer
from agents.stream import Stream
from agents.training_template import build_frame_template
from arena.config.experiment import LearnSpec
from arena.data.rows import DataSet
from arena.data.samples import RowEncoder
from arena.learn.batches import TokenBatch
from arena.learn.gradients import Gradients, UpdateMetrics
from arena.learn.plan import Plan
from arena.learn.samples import Sample
from arena.learn.trainer import PolicyTrainer
from arena.parts.schedules import Clock
from tests.factories.data_sets import make_chats, make_labels, make_pairs, write_rows
from tests.factories.models import make_tiny_llama

FRAME = ChatFrame(build_nano_tokenizer())
RULES: dict[str, dict[str, Any]] = {
    "chats": {"loss": "likelihood"},
    "pairs": {"loss": {"dpo": {"beta": 0.3, "reference": "initial"}}, "aggregate": "turn_mean"},
    "labels": {"loss": {"kto": {"beta": 0.3, "desirable": 1.5, "undesirable": 0.5}}, "aggregate": "turn_mean"},
}


def make_rule(kind: str, **settings: Any) -> LearnSpec:
    return LearnSpec.model_validate({**RULES[kind], "regularisers": {}, **settings})


def make_batch(
    now: list[float], reference: list[float], advantages: list[float], turns: list[int], **fields: Any
) -> Any:
    count = len(now)
    logprobs = torch.tensor(now, dtype=torch.float64, requires_grad=True)
    return TokenBatch(
        logprobs=logprobs, entropy=torch.zeros(count), old=logprobs.detach(), behaviour=torch.zeros(count),
        advantages=torch.tensor(advantages), turns=torch.tensor(turns), streams=torch.tensor(turns),
        places=torch.zeros(count, dtype=torch.int64), learned=torch.ones(count, dtype=torch.bool),
        reference=torch.tensor(reference, dtype=torch.float64), **fields,
    )  # fmt: skip


def test_kto_by_hand() -> None:
    """δ is .4 + .2 = .6 of the desirable and -.5 of the other, z is .1, β is .5."""
    tokens = make_batch([-1.0, -2.0, -3.0], [-1.4, -2.2, -2.5], [1, 1, -1], [0, 0, 1], rivals=torch.full((3,), 0.1))
    rule = LearnSpec.model_validate({"loss": {"kto": {"beta": 0.5, "desirable": 2.0}}, "aggregate": "turn_mean"})
    loss = rule.loss(tokens).loss
    desirable_loss = 2.0 * (1 - 1 / (1 + math.exp(-0.5 * (0.6 - 0.1))))
    undesirable_loss = 1 - 1 / (1 + math.exp(-0.5 * (0.1 + 0.5)))
    assert loss.tolist() == pytest.approx([desirable_loss, desirable_loss, undesirable_loss])
    weights = rule.aggregate(np.array([0, 0, 1]), np.array([0, 0, 1]), np.ones(3, bool))
    assert float((loss.detach() * torch.from_numpy(weights)).sum()) == pytest.approx(
        (desirable_loss + undesirable_loss) / 2
    )


def test_dpo_against_the_initial_weights_by_hand() -> None:
    """δ is .5 of the chosen and -.25 of the rejected one; both have the loss -log σ(β .75)."""
    rivals = torch.tensor([-0.25, 0.5])
    tokens = make_batch([-1.0, -2.0], [-1.5, -1.75], [1, -1], [0, 1], rivals=rivals)
    loss = make_rule("pairs").loss(tokens).loss
    assert loss.tolist() == pytest.approx([math.log1p(math.exp(-0.3 * 0.75))] * 2)
    same = LearnSpec.model_validate({"loss": "dpo"}).loss
    assert same.needs == {"pairs"} and make_rule("pairs").loss.needs == {"pairs", "reference"}
    assert same(tokens).loss.tolist() == pytest.approx(
        [math.log1p(math.exp(0.1 * -0.25)), math.log1p(math.exp(0.1 * -0.5))]
    ), "relative to the start of the update only the rivals changed"


def encode_rows(kind: str, tmp_path: Path, count: int = 6) -> list[Sample]:
    rows = {"chats": make_chats, "pairs": make_pairs, "labels": make_labels}[kind](count)
    data = DataSet(write_rows(tmp_path / "rows.jsonl", rows))
    return RowEncoder(data, FRAME, 200).samples(range(count)).samples


def with_reference_scores(samples: list[Sample], model: Any) -> list[Sample]:
    scores = PolicyTrainer("reference", model, make_rule("chats")).compute_scores(
        [s.stream for s in samples], [1.0] * len(samples)
    )
    return [s.with_reference(score.logprobs) for s, score in zip(samples, scores, strict=True)]


def add_gradient(model: Any, rule: LearnSpec, samples: list[Sample]) -> tuple[float, Plan]:
    """Add the gradient of an update's only step to the model, and return the loss."""
    trainer = PolicyTrainer("p", model, rule)
    plan = trainer.plan(samples, np.random.default_rng(0), Clock())
    losses: list[torch.Tensor] = []
    gradients = Gradients(engine=trainer.optimiser.engine, rule=rule, plan=plan, memory={}, metrics=UpdateMetrics())
    original = gradients._backpropagate

    def record_loss(loss: torch.Tensor) -> None:
        losses.append(loss.detach())
        original(loss)

    gradients._backpropagate = record_loss  # type: ignore[method-assign]
    for step in plan.steps:
        for _ in gradients.add(step):
            pass
    return float(sum(losses)), plan


def vocabulary_size() -> int:
    return len(build_nano_tokenizer())


def compute_logprobs(model: Any, stream: Stream) -> torch.Tensor:
    """Log-probabilities of a stream's masked tokens, by the model's own forward pass."""
    ids = torch.tensor([stream.ids])
    scores = model(ids).logits.log_softmax(-1)[0, :-1].gather(-1, ids[0, 1:, None])[:, 0]
    return scores[torch.tensor(stream.mask[1:])]


@pytest.mark.parametrize("kind", ["pairs", "labels"])
def test_gradient_equals_that_of_the_loss(kind: str, tmp_path: Path) -> None:
    """The trainer's gradient equals that of the loss written out, and finite differences."""
    model, initial = make_tiny_llama(1, vocabulary=vocabulary_size()), make_tiny_llama(0, vocabulary=vocabulary_size())
    rule, samples = make_rule(kind), with_reference_scores(encode_rows(kind, tmp_path), initial)
    value, _ = add_gradient(model, rule, samples)
    trainer_gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    total = compute_loss(kind, model, samples)
    total.backward()
    assert value == pytest.approx(total.item(), abs=1e-5)
    for name, p in model.named_parameters():
        torch.testing.assert_close(trainer_gradients[name], p.grad, atol=1e-6, rtol=1e-4)
    direction = {
        n: torch.randn(p.shape, generator=torch.Generator().manual_seed(1)) for n, p in model.named_parameters()
    }
    directional_derivative = sum(float((trainer_gradients[n] * direction[n]).sum()) for n in trainer_gradients)
    ends = []
    for sign in (1.0, -1.0):
        moved = make_tiny_llama(1, vocabulary=vocabulary_size()).double()
        with torch.no_grad():
            for n, p in moved.named_parameters():
                p += sign * 1e-5 * direction[n].double()
            ends.append(compute_loss(kind, moved, samples, fixed=model).item())
    assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(directional_derivative, rel=1e-2, abs=1e-4)


def compute_loss(kind: str, model: Any, samples: list[Sample], fixed: Any = None) -> torch.Tensor:
    """Return the mean loss over the rows; `fixed` is the model of the KL estimate, without gradient."""
    ratios = [
        compute_logprobs(model, s.stream).sum() - float(s.reference.sum()) for s in samples if s.reference is not None
    ]
    if kind == "pairs":
        gaps = torch.stack(ratios[::2]) - torch.stack(ratios[1::2])
        return -torch.nn.functional.logsigmoid(0.3 * gaps).mean()
    with torch.no_grad():
        crossed = [s for s in samples if not s.learned.any()]
        sums = [compute_logprobs(fixed or model, s.stream).sum() - float(s.reference.sum()) for s in crossed]  # type: ignore[union-attr]
        z = torch.stack(sums).mean().clamp(min=0)
    learned_rows = [(r, s.advantages[0]) for r, s in zip(ratios, samples, strict=True) if s.learned.any()]
    losses = [(1.5 if sign > 0 else 0.5) * (1 - torch.sigmoid(0.3 * sign * (r - z))) for r, sign in learned_rows]
    return torch.stack(losses).mean()


def test_baselines_cross_the_prompts_and_completions_of_a_step(tmp_path: Path) -> None:
    samples = encode_rows("labels", tmp_path, 4)
    originals, crossed = samples[::2], samples[1::2]
    assert all(s.learned.all() for s in originals) and not any(s.learned.any() for s in crossed)
    replies = [[t for t, m in zip(s.stream.ids, s.stream.mask, strict=True) if m] for s in samples]
    assert replies[1::2] == [replies[6], replies[0], replies[2], replies[4]]
    model = make_tiny_llama(vocabulary=vocabulary_size())
    _, plan = add_gradient(
        model,
        make_rule("labels", minibatches=2),
        with_reference_scores(samples, make_tiny_llama(3, vocabulary=vocabulary_size())),
    )
    for step in plan.steps:
        learned = [i for one in step.played[0] for i in one.index]
        assert len(step.pairs) == len(learned) == 2
        assert {int(plan.samples[i].pairs[0]) for i in step.pairs} == {int(plan.samples[i].pairs[0]) for i in learned}  # type: ignore[index]


def test_single_completion_has_no_baseline_and_no_kl(tmp_path: Path) -> None:
    samples = encode_rows("labels", tmp_path, 1)
    assert len(samples) == 1
    model = make_tiny_llama(1, vocabulary=vocabulary_size())
    value, _ = add_gradient(
        model, make_rule("labels"), with_reference_scores(samples, make_tiny_llama(0, vocabulary=vocabulary_size()))
    )
    assert math.isfinite(value)


# -- TRL --------------------------------------------------------------------------------------------------------


def compute_trl_loss(kind: str, tmp_path: Path, model: Any, initial: Any) -> float:
    """Return the loss of TRL's trainer on a batch of the same token ids."""
    trl = pytest.importorskip("trl", reason="no trl: pip install 'trl>=1.16'")
    datasets = pytest.importorskip("datasets", reason="no datasets: pip install datasets")
    tokenizer = build_nano_tokenizer()
    tokenizer.chat_template = build_frame_template(FRAME)
    shared = {
        "output_dir": str(tmp_path), "use_cpu": True, "bf16": False, "report_to": [], "gradient_checkpointing": False,
        "per_device_train_batch_size": 6,
    }  # fmt: skip
    if kind == "chats":
        config = trl.SFTConfig(**shared, assistant_only_loss=True, packing=False)
        data = {"train_dataset": datasets.Dataset.from_list(make_chats(6))}
        trainer = trl.SFTTrainer(model=model, args=config, processing_class=tokenizer, **data)
    else:
        rows = {"pairs": make_pairs, "labels": make_labels}[kind](6)
        if kind == "pairs":
            config = trl.DPOConfig(**shared, beta=0.3)
            trainer_class = trl.DPOTrainer
        else:
            config = trl.KTOConfig(**shared, beta=0.3, desirable_weight=1.5, undesirable_weight=0.5)
            trainer_class = trl.KTOTrainer
        chat_rows = [{k: [{"role": "user" if k == "prompt" else "assistant", "content": v}] if isinstance(v, str) else v
                    for k, v in row.items()} for row in rows]  # fmt: skip
        trainer = trainer_class(
            model=model, ref_model=initial, args=config, processing_class=tokenizer,
            train_dataset=datasets.Dataset.from_list(chat_rows),
        )  # fmt: skip
    batch = next(iter(torch.utils.data.DataLoader(
        trainer.train_dataset, batch_size=6, shuffle=False, collate_fn=trainer.data_collator
    )))  # fmt: skip
    trainer.model.eval()
    with torch.no_grad():
        return float(trainer.compute_loss(trainer.model, batch))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chats", "pairs", "labels"])
def test_loss_equals_that_of_trl(kind: str, tmp_path: Path) -> None:
    model, initial = make_tiny_llama(1, vocabulary=vocabulary_size()), make_tiny_llama(0, vocabulary=vocabulary_size())
    samples = with_reference_scores(encode_rows(kind, tmp_path), initial)
    loss, _ = add_gradient(make_tiny_llama(1, vocabulary=vocabulary_size()), make_rule(kind), samples)
    assert loss == pytest.approx(compute_trl_loss(kind, tmp_path, model, initial), abs=1e-6)
