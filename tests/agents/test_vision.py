"""Images in contexts: keys, packing, scores and gradients of a small SmolVLM against transformers."""

import hashlib
import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from agents.errors import WeightsError
from agents.layouts import create_vision
from agents.packing import Costs, plan_passes
from agents.scoring import StreamScorer, build_batch, score_streams
from agents.stream import MAX_IMAGE_TOKENS, MediaSpan, Stream, compute_keys
from games.pictures import MAX_SIDE
from tests.factories.eyes import mask_placeholder

IMAGE, TOKENS, SIZE = 15, 9, 48


def make_smolvlm(seed: int = 0) -> Any:
    """Return a random SmolVLM of a million parameters: 9 tokens per image of 48 pixels."""
    from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration

    torch.manual_seed(seed)
    text = {
        "model_type": "llama", "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 3, "vocab_size": 200,
        "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 512, "pad_token_id": 0,
    }  # fmt: skip
    vision = {
        "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
        "image_size": SIZE, "patch_size": 8,
    }  # fmt: skip
    config = SmolVLMConfig(
        vision_config=vision, text_config=text, scale_factor=2, image_token_id=IMAGE, tie_word_embeddings=False,
        pad_token_id=0, initializer_range=0.08,
    )  # fmt: skip
    return SmolVLMForConditionalGeneration(config).eval()


MODEL = make_smolvlm()
VISION = create_vision(MODEL.config)
BYTES: dict[str, bytes] = {}


def make_picture(seed: int, change: int = 0) -> str:
    """Return the hash of a random picture; `change` is added to one level of its first pixel."""
    levels = np.random.default_rng(seed).integers(1, 255, (SIZE, SIZE, 3), dtype=np.uint8)
    levels[0, 0, 0] += change
    file = io.BytesIO()
    Image.fromarray(levels).save(file, "PNG")
    name = hashlib.sha256(file.getvalue()).hexdigest()
    BYTES[name] = file.getvalue()
    return name


def make_span(name: str, start: int = 2, length: int = TOKENS) -> MediaSpan:
    return MediaSpan(start, length, name, BYTES.get(name, b""))


def make_stream(*images: str, turns: int = 3, seed: int = 0) -> Stream:
    """Return a stream with one image per turn, four tokens of text around it, and three sampled tokens."""
    rng, stream = np.random.default_rng(seed), Stream()
    for turn in range(turns):
        text = [int(id) for id in np.random.default_rng(turn).integers(20, 200, 4)]
        name = images[turn % len(images)]
        stream.observe([*text[:2], *[IMAGE] * TOKENS, *text[2:]], [make_span(name)])
        stream.append_sampled([int(id) for id in rng.integers(20, 200, 3)], [-1.0] * 3, turn)
    return stream


def compute_reference_scores(model: Any, stream: Stream) -> torch.Tensor:
    """Return the log-probabilities of the sampled tokens by transformers' own forward pass."""
    assert VISION
    pixels = torch.stack([VISION.scale_image(BYTES[span.hash]) for span in stream.media])
    logits = model(input_ids=torch.tensor([stream.ids]), pixel_values=pixels[None]).logits[0]
    own = [i for i, sampled in enumerate(stream.mask) if sampled]
    scores = torch.log_softmax(mask_placeholder(IMAGE, logits)[[i - 1 for i in own]], -1)
    return scores[torch.arange(len(own)), torch.tensor([stream.ids[i] for i in own])]


def test_scores_are_those_of_transformers() -> None:
    streams = [make_stream(make_picture(1), make_picture(2)), make_stream(make_picture(3), turns=2, seed=4)]
    for stream, scores in zip(streams, score_streams(StreamScorer(MODEL), streams, [1.0, 1.0]), strict=True):
        with torch.no_grad():
            assert scores == pytest.approx(compute_reference_scores(MODEL, stream).numpy(), abs=2e-5)


def test_gradients_are_those_of_transformers() -> None:
    model, stream = make_smolvlm(1), make_stream(make_picture(1), make_picture(2))
    (single,) = plan_passes([stream], 4096)
    StreamScorer(model)(build_batch([stream], [1.0], single)).logprobs.sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    compute_reference_scores(model, stream).sum().backward()
    expected = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert gradients.keys() == expected.keys() and any("vision_model" in name for name in gradients)
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, expected[name], atol=1e-4 * float(expected[name].abs().max()) + 1e-7), name


@pytest.mark.parametrize("costs", [Costs(), Costs(scores=10**6)])
def test_shared_image_contexts_score_as_separate_ones(costs: Costs) -> None:
    """A common prefix runs once and shared turns become a tree, but only if their images are equal too."""
    same, second = make_picture(1), make_picture(2)
    streams = [make_stream(same, seed=s) for s in range(3)] + [
        make_stream(same, second, seed=7),
        make_stream(second, seed=8),
    ]
    together = score_streams(StreamScorer(MODEL), streams, [1.0] * 5, 10**5, costs)
    for first, scores in zip(streams, together, strict=True):
        (alone,) = score_streams(StreamScorer(MODEL), [first], [1.0])
        assert scores == pytest.approx(alone, abs=2e-5)


def test_contexts_diverge_at_a_different_image() -> None:
    streams = [make_stream(make_picture(1)), make_stream(make_picture(2))]
    assert streams[0].ids[:12] == streams[1].ids[:12], "the tokens are equal"
    assert streams[0].keys[:2] == streams[1].keys[:2] and streams[0].keys[2] != streams[1].keys[2]
    assert max(one.prefix for one in plan_passes(streams, 4096)) <= 2


def test_one_level_of_one_pixel_changes_log_probabilities() -> None:
    before, after = score_streams(
        StreamScorer(MODEL), [make_stream(make_picture(1)), make_stream(make_picture(1, 1))], [1.0, 1.0]
    )
    assert 0 < np.abs(before - after).max() < 0.05


def test_pixels_are_scaled_and_never_zero() -> None:
    assert VISION and (VISION.tokens, VISION.image_token, VISION.size) == (TOKENS, IMAGE, SIZE)
    file = io.BytesIO()
    Image.new("L", (7, 300), 128).save(file, "PNG")
    pixels = VISION.scale_image(file.getvalue())
    assert pixels.shape == (3, SIZE, SIZE) and float(pixels.min()) > 0
    assert VISION.scale_image(BYTES[make_picture(1)]).abs().min() > 1e-3


@pytest.mark.parametrize("data", [b"", b"no image", b"\x89PNG\r\n\x1a\n" + b"\0" * 40, None, "torn"])
def test_what_is_no_image_is_refused_in_one_line(data: Any) -> None:
    assert VISION
    if data == "torn":
        data = BYTES[make_picture(1)][:500]
    elif data is None:
        file = io.BytesIO()
        Image.new("L", (MAX_SIDE + 1, 1)).save(file, "PNG")
        data = file.getvalue()
    BYTES["ab" * 32] = data
    with pytest.raises(ValueError, match="image abab") as error:
        score_streams(StreamScorer(MODEL), [make_stream("ab" * 32)], [1.0])
    assert "\n" not in str(error.value)


def test_images_that_do_not_fit_the_model_are_refused() -> None:
    with pytest.raises(ValueError, match=r"image cdcdcd.* cannot be read"):
        score_streams(StreamScorer(MODEL), [make_stream("cd" * 32)], [1.0])
    short = Stream()
    short.observe([20, IMAGE, IMAGE], [make_span(make_picture(1), 1, 2)])
    short.append_sampled([30], [-1.0], 0)
    with pytest.raises(ValueError, match="images have 2 tokens, and the model has 9"):
        score_streams(StreamScorer(MODEL), [short], [1.0])
    with pytest.raises(ValueError, match="one image has different numbers of tokens"):
        score_streams(StreamScorer(MODEL), [short, make_stream(make_picture(1))], [1.0, 1.0], costs=Costs(start=10**6))


def test_a_text_model_has_no_vision_and_refuses_images() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM, LlavaConfig

    model = LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, vocab_size=200,
                                         num_attention_heads=2))  # fmt: skip
    assert create_vision(model.config) is None
    with pytest.raises(ValueError, match="the model has no vision"):
        score_streams(StreamScorer(model), [make_stream(make_picture(1))], [1.0])
    with pytest.raises(WeightsError, match="vision of model type llava is not supported"):
        create_vision(LlavaConfig())


def test_a_model_with_vision_scores_text_alone() -> None:
    text = Stream()
    text.observe([20, 30, 40])
    text.append_sampled([50, 60], [-1.0, -1.0], 0)
    (scores,) = score_streams(StreamScorer(MODEL), [text], [1.0])
    with torch.no_grad():
        logits = torch.log_softmax(mask_placeholder(IMAGE, MODEL(input_ids=torch.tensor([text.ids])).logits[0]), -1)
    assert scores == pytest.approx([float(logits[2, 50]), float(logits[3, 60])], abs=2e-5)


def test_a_layout_without_support_still_scores_text() -> None:
    """Only images need the layout."""
    model = make_smolvlm(2)
    model.config.model_type = "another"
    text = make_stream(make_picture(1))
    with pytest.raises(WeightsError, match="vision of model type another is not supported"):
        score_streams(StreamScorer(model), [text], [1.0])
    text.media.clear()
    assert len(score_streams(StreamScorer(model), [text], [1.0])[0]) == 9


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8), st.sampled_from("abcd")), max_size=6))
def test_keys_are_equal_exactly_if_contexts_are(spans: list[tuple[int, int, str]]) -> None:
    media = [MediaSpan(start, length, letter * 64) for start, length, letter in spans]
    ids, end = [7] * 40, 0
    fits = True
    for span in media:
        fits, end = fits and end <= span.start and span.start + span.length <= 40, span.start + span.length
    if not fits:
        with pytest.raises(ValueError, match="overlap or lie outside"):
            compute_keys(ids, media)
        return
    keys = compute_keys(ids, media)
    assert sum(key < 0 for key in keys) == sum(span.length for span in media)
    for span in media:
        other = [replace(s, hash="e" * 64) if s is span else s for s in media]
        assert compute_keys(ids, other)[span.start] != keys[span.start]
    assert all(key > -(1 << 61) for key in keys)


def test_a_span_has_at_most_so_many_tokens() -> None:
    with pytest.raises(ValueError, match="1 to 4096 tokens"):
        MediaSpan(0, MAX_IMAGE_TOKENS + 1, "ab" * 32).token_keys()
