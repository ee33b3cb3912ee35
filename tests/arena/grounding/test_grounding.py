"""Grounding: labels belong to their cells' tokens, planted words are learned, and resume is bit-equal."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from agents.policy import load_tokenizer_and_frame
from agents.weights import resolve
from arena.cli.loop import wait
from arena.errors import ConfigError, StoreError
from arena.grounding.lessons import Lessons, apportion_batch, spread_labels
from arena.grounding.model import DISTANCE_WEIGHT, GroundingModel, make_batch
from arena.play.settings import GameSpec
from tests.factories.labs import RecordingWatcher
from tests.factories.lessons import GAME, make_grounding

FILES = ("policies/viewer/model.safetensors", "policies/viewer/optimizer.safetensors", "state.json")


def read_metrics(folder: Path) -> list[Any]:
    return [json.loads(line)["learn"]["viewer"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def make_lessons(kind: str = "cells", loss: Any = "tokens", model: str = "nano-vlm", positions: int = 1024) -> Lessons:
    frame = load_tokenizer_and_frame(resolve(model))[1]
    return Lessons(GameSpec.model_validate(GAME), [kind], frame, lambda span: (1, span.length), loss, "", positions)


@pytest.mark.slow
def test_planted_words_are_learned_and_resume_is_bit_equal(tmp_path: Path) -> None:
    uninterrupted = tmp_path / "whole"
    settings: dict[str, Any] = {"kinds": {"cells": 3.0, "count": 1.0}, "steps": 45}
    wait(make_grounding(uninterrupted, **settings).run())
    learned = read_metrics(uninterrupted)[-1]
    assert (
        learned["held_out_accuracy_cells"] > 0.9 and learned["held_out_loss"] < read_metrics(uninterrupted)[0]["loss"]
    )
    assert 0 <= learned["held_out_answered_count"] <= 1 and learned["steps"] == 45

    interrupted = tmp_path / "begun"
    stopped = RecordingWatcher(lambda what, value: what == "phase" and value == (3, "learn"))
    with pytest.raises(KeyboardInterrupt):
        wait(make_grounding(interrupted, stopped, **settings).run())
    assert len(read_metrics(interrupted)) == 2
    wait(make_grounding(interrupted, **settings).run())
    killed = tmp_path / "late"  # killed after the metrics of iteration 2, before its checkpoint
    shutil.copytree(uninterrupted, killed)
    for k in (2, 3):
        shutil.rmtree(killed / "checkpoints" / f"000{k}")
    wait(make_grounding(killed, **settings).run())
    for folder in (interrupted, killed):
        assert read_metrics(folder) == read_metrics(uninterrupted)
        for file in FILES:
            resumed_file, expected_file = (
                run_folder / "checkpoints/0003" / file for run_folder in (folder, uninterrupted)
            )
            assert resumed_file.read_bytes() == expected_file.read_bytes(), file
    with pytest.raises(StoreError, match="its setting lr changed"):
        wait(make_grounding(uninterrupted, **settings, lr=1e-4).run())


def test_words_loss_changes_only_the_vision_model(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    wait(make_grounding(folder, loss="words", steps=40, lr=1.5e-3).run())
    assert read_metrics(folder)[-1]["held_out_accuracy"] > 0.9
    before = load_file(resolve("nano-vlm") / "model.safetensors")
    after = load_file(folder / "checkpoints/0003/policies/viewer/model.safetensors")
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert changed and all("vision_model" in name or "connector" in name for name in changed)


def test_targets_are_the_words_of_the_image_tokens() -> None:
    lesson = make_lessons("count").draw("count", 3, 0)
    frame = load_tokenizer_and_frame(resolve("nano-vlm"))[1]
    (span,) = lesson.stream.media
    assert [place for place, _ in lesson.labels] == [*range(span.start, span.start + 9)]
    assert {frame.decode([word]) for _, word in lesson.labels} <= {"red", "green", "blue", "none"}
    (first, digit), (last, stop) = lesson.answer
    assert last == first + 1 == len(lesson.stream) - 1 and stop == frame.stop_id
    assert lesson.stream.ids[last] == digit and frame.decode([digit]).isdigit()
    batch = make_batch([lesson, make_lessons().draw("cells", 3, 1)])
    assert batch.targets.tolist()[:9] == [word for _, word in lesson.labels] and len(batch.targets) == 20
    assert (
        make_lessons("count").draw("count", 3, 0)
        == lesson
        != make_lessons("count").draw("count", 3, 0, is_held_out=True)
    )


def test_losses_by_hand() -> None:
    from agents.policy import load_module

    model = load_module(resolve("nano-vlm"), frozen=True)
    lesson = make_lessons(loss="words").draw("cells", 3, 0)
    graded = GroundingModel(model, "words")([lesson])
    vision = GroundingModel(model, "words").vision
    features = vision.features(model, [vision.load_pixels(lesson.stream.media[0])])
    word_ids = [word for _, word in lesson.labels]
    known = sorted({*word_ids})
    table = model.get_input_embeddings().weight[known]
    distances = torch.stack([(table - one).square().sum(-1) for one in features])
    right = torch.tensor([known.index(word) for word in word_ids])
    expected = (
        torch.nn.functional.cross_entropy(-distances, right) + DISTANCE_WEIGHT * distances[range(9), right].mean()
    )
    assert float(graded.loss) == pytest.approx(float(expected), rel=1e-5)
    token_losses = GroundingModel(model, "tokens")([lesson])
    logits = model(
        input_ids=torch.tensor([lesson.stream.ids]), pixel_values=vision.load_pixels(lesson.stream.media[0])[None, None]
    ).logits[0]
    positions = [place for place, _ in lesson.labels]
    assert float(token_losses.loss) == pytest.approx(
        float(torch.nn.functional.cross_entropy(logits[positions], torch.tensor(word_ids))), rel=1e-4
    )


def test_words_are_spread_over_the_tokens_of_their_cells() -> None:
    grid = ((("a", "b"), ()), (("c",), ("d", "e", "f")))
    assert spread_labels(grid, 2, 2) == ["a", "", "c", "d"]
    assert spread_labels(grid, 4, 2) == ["a", "", "b", "", "c", "d", "c", "e"]
    assert spread_labels(((("a", "b", "c", "d"),),), 2, 2) == ["a", "b", "c", "d"]
    assert spread_labels(((("a", "b"),),), 2, 2) == ["a", "b", "b", "b"]
    with pytest.raises(ConfigError, match="an image has 1 x 2 tokens, too few for labels of 2 x 2 cells"):
        spread_labels(grid, 1, 2)
    with pytest.raises(ValueError, match="differ in length"):
        spread_labels(((("a",), ("b",)), (("c",),)), 3, 3)


@given(st.dictionaries(st.sampled_from("abcd"), st.floats(1e-3, 1e6), min_size=1), st.integers(1, 200))
def test_every_kind_gets_its_share_of_a_batch(kinds: dict[str, float], batch: int) -> None:
    counts = apportion_batch(kinds, batch)
    assert sum(counts.values()) == max(batch, sum(counts.values())) and min(counts.values()) >= 1
    for kind, count in counts.items():
        assert count <= kinds[kind] / sum(kinds.values()) * batch + 1


def test_kind_rounded_up_to_one_gets_no_remainder() -> None:
    # Exact shares of 11: .88, 1.25 and 8.87. The first is rounded up to 1, so the last lesson is c's.
    assert apportion_batch({"a": 7008.0, "b": 10003.0, "c": 70898.0}, 11) == {"a": 1, "b": 1, "c": 9}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("long", "the label 'unpronounceable' of .*Blocks is [0-9]+ tokens of the policy's: a label must be one"),
        ("ragged", "ValueError: the rows of a grid of labels differ in length"),
        ("torn", "the lesson 'torn' of .* cannot be read: ChatError: image .* does not match its bytes"),
        ("text", "ValueError: 1 grids of labels for 0 images"),
    ],
)
def test_unlearnable_lessons_give_one_line(kind: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        make_lessons(kind).draw(kind, 0, 0)
    assert "\n" not in str(error.value)


def test_invalid_grounding_gives_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no lessons 'cell' — did you mean 'cells'"):
        make_lessons("cell")
    with pytest.raises(ConfigError, match="has no vision: choose one that sees, such as nano-vlm"):
        make_lessons(model="nano")
    with pytest.raises(ConfigError, match="game: nim has no lessons that ground words in images"):
        wait(make_grounding(tmp_path / "run", game={"name": "nim", "options": {}}).run())
    with pytest.raises(ConfigError, match="tokens, more than the model's 12"):
        make_lessons(positions=12).draw("cells", 0, 0)
