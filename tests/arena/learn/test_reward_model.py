"""Reward models: hand-worked losses and gradients, scores as transformers computes them, TRL's loss, and folders."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agents.errors import WeightsError
from agents.policy import check_readable
from agents.stream import MediaSpan, Stream
from agents.weights import resolve
from arena.learn.reward_model import (
    RewardModel,
    append_score_token,
    bradley_terry,
    is_reward_model,
    logistic,
    squared_error,
)
from tests.factories.preferences import make_stream


def make_model(seed: int = 0) -> RewardModel:
    """Return a nano reward model with a non-zero head."""
    model = RewardModel.load(resolve("nano"))
    torch.nn.init.normal_(model.module.head.weight, generator=torch.Generator().manual_seed(seed))
    return model


def make_streams(count: int, seed: int = 0) -> list[Stream]:
    rng = np.random.default_rng(seed)
    return [make_stream([*rng.integers(5, 600, int(rng.integers(1, 30))).tolist(), 670]) for _ in range(count)]


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[RewardModel, Path]:
    model, folder = make_model(), tmp_path_factory.mktemp("scores")
    model.save(folder)
    return model, folder


def test_losses_by_hand() -> None:
    tensor = torch.tensor
    # σ(2 - 1 - 0.5) = 1 / (1 + e^-0.5) = .622459, and -log of it .474077; its slope is σ - 1 = -.377541
    chosen, rejected = tensor([2.0], requires_grad=True), tensor([1.0], requires_grad=True)
    loss = bradley_terry(chosen, rejected, tensor([0.5]))
    torch.autograd.backward(loss.sum())
    assert loss.item() == pytest.approx(0.474077, abs=1e-6)
    assert chosen.grad is not None and rejected.grad is not None
    assert chosen.grad.item() == pytest.approx(-0.377541, abs=1e-6) == -rejected.grad.item()
    assert bradley_terry(tensor([3.0]), tensor([3.0]), tensor([0.0])).item() == pytest.approx(math.log(2))
    assert logistic(tensor([2.0, 2.0]), tensor([1.0, 0.0])).tolist() == pytest.approx([0.126928, 2.126928], abs=1e-6)
    assert squared_error(tensor([2.0]), tensor([5.0])).item() == 4.5
    assert bradley_terry(tensor([-1e4]), tensor([1e4]), tensor([0.0])).item() == 2e4, "no overflow"


@given(st.lists(st.floats(-20, 20), min_size=3, max_size=3))
def test_gradient_agrees_with_finite_differences(values: list[float]) -> None:
    scores = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    torch.autograd.backward(bradley_terry(scores[0], scores[1], scores[2]))
    assert scores.grad is not None
    for index, gradient in enumerate(scores.grad.tolist()):
        step = torch.zeros(3, dtype=torch.float64).index_fill(0, torch.tensor(index), 1e-5)
        up, down = (bradley_terry(*(scores.detach() + sign * step)).item() for sign in (1, -1))
        assert (up - down) / 2e-5 == pytest.approx(gradient, abs=1e-8)


def test_scores_equal_those_of_transformers_under_any_packing(saved_model: tuple[RewardModel, Path]) -> None:
    from transformers import AutoModelForSequenceClassification

    model, folder = saved_model
    reference = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1)
    stream_list = [*make_streams(9), *make_streams(2)]  # two of them twice
    pad, longest = reference.config.pad_token_id, max(map(len, stream_list))
    ids = torch.tensor([s.ids + [pad] * (longest - len(s)) for s in stream_list])
    with torch.no_grad():
        expected = reference(input_ids=ids, attention_mask=(ids != pad).long()).logits.squeeze(-1).numpy()
    for budget in (32, 4096):
        assert np.abs(model.score(stream_list, budget) - expected).max() < 2e-5 * np.abs(expected).max()
    with torch.no_grad():
        assert model([append_score_token(s) for s in stream_list], 64).tolist() == pytest.approx(
            expected.tolist(), rel=1e-4, abs=1e-4
        )
    assert model.score([], 64).shape == (0,)


def test_padding_token_does_not_end_replies(saved_model: tuple[RewardModel, Path]) -> None:
    """SmolLM2 pads with the token that ends replies; transformers would then score the token before it."""
    from agents.policy import load_tokenizer_and_frame
    from arena.learn.reward_model import _set_padding

    model, folder = saved_model
    tokenizer, frame = load_tokenizer_and_frame(folder)
    tokenizer.pad_token = frame.stop
    _set_padding(model.module.model, tokenizer, frame.stop_ids)
    assert tokenizer.pad_token_id == model.module.model.config.pad_token_id not in frame.stop_ids
    tokenizer.pad_token = "<|pad|>"


def test_loss_equals_that_of_trl(saved_model: tuple[RewardModel, Path], tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from trl import RewardConfig, RewardTrainer

    model, folder = saved_model
    chosen, rejected, margins = make_streams(6, 1), make_streams(6, 2), [0.0, 0.5, 1.0, 2.0, 0.25, 0.125]
    rows = [
        {"chosen_ids": c.ids, "rejected_ids": r.ids, "margin": m}
        for c, r, m in zip(chosen, rejected, margins, strict=True)
    ]
    trainer = RewardTrainer(
        model=AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1),
        args=RewardConfig(
            output_dir=str(tmp_path), report_to=[], bf16=False, use_cpu=True, gradient_checkpointing=False,
            per_device_train_batch_size=6, max_length=None,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(folder),
    )  # fmt: skip
    batch = trainer.data_collator([trainer.train_dataset[n] for n in range(6)])
    with torch.no_grad():
        trl_loss = trainer.compute_loss(trainer.model.eval(), batch).item()
    scores = torch.from_numpy(model.score([*chosen, *rejected], 256))
    loss = bradley_terry(scores[:6], scores[6:], torch.tensor(margins)).mean().item()
    assert loss == pytest.approx(trl_loss, rel=1e-6)


def test_new_model_scores_zero_and_saving_preserves_scores(
    saved_model: tuple[RewardModel, Path], tmp_path: Path
) -> None:
    model, folder = saved_model
    fresh = RewardModel.load(resolve("nano"))
    assert not fresh.score(make_streams(3), 64).any() and not is_reward_model(resolve("nano"))
    assert is_reward_model(folder)
    assert (RewardModel.load(folder).score(make_streams(3), 64) == model.score(make_streams(3), 64)).all()
    check_readable(folder, resolve("nano"))


@pytest.mark.parametrize("damage", ["torn", "labels", "no head", "none"])
def test_damaged_folder_gives_one_line(saved_model: tuple[RewardModel, Path], tmp_path: Path, damage: str) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "model"
    shutil.copytree(saved_model[1], folder)
    weights = folder / "model.safetensors"
    if damage == "torn":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif damage == "none":
        weights.unlink()
    else:
        tensors: Any = load_file(weights)
        tensors["score.weight"] = torch.zeros(2, 128)
        if damage == "no head":
            del tensors["score.weight"]
        save_file(tensors, weights, {"format": "pt"})
    with pytest.raises(WeightsError) as error:
        RewardModel.load(folder)
    assert str(folder) in str(error.value) and "\n" not in str(error.value)


def test_other_tokenizer_or_shorter_context_is_refused(saved_model: tuple[RewardModel, Path], tmp_path: Path) -> None:
    for file, change, message in (
        ("tokenizer_config.json", {"chat_template": "x"}, "another tokenizer or chat template"),
        ("config.json", {"max_position_embeddings": 64}, "reads 64 tokens, but"),
    ):
        folder = tmp_path / file
        shutil.copytree(saved_model[1], folder)
        (folder / file).write_text(json.dumps(json.loads((folder / file).read_text()) | change))
        if "template" in message:
            template = (folder / "chat_template.jinja").read_text()
            (folder / "chat_template.jinja").write_text(template.replace("<|im_end|>", "<|im_end|><|im_end|>"))
        with pytest.raises(ValueError, match=message):
            check_readable(folder, resolve("nano"))


def test_streams_without_text_are_refused(saved_model: tuple[RewardModel, Path]) -> None:
    with_image = Stream()
    with_image.observe([1, 2], [MediaSpan(0, 1, "0" * 64)])
    for stream in (Stream(), with_image):
        with pytest.raises(ValueError, match="text of at least one token"):
            saved_model[0].score([stream], 64)
