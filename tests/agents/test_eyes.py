"""All vision-language families: scores, gradients and replies equal those of transformers' forward pass."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.engines.base import Request
from agents.engines.in_process import InProcessEngine
from agents.eyes.layout import Vision
from agents.layouts import create_vision
from agents.packing import Costs, plan_passes
from agents.published import ModuleWeights
from agents.scoring import StreamScorer, build_batch, score_streams
from agents.stream import MediaSpan, Stream
from agents.vision import ImageFeatures, compute_jump
from tests.factories.eyes import (
    BYTES,
    FAMILIES,
    QWENS,
    WORDS,
    compute_reference_scores,
    make_picture,
    make_reference_inputs,
    make_span,
    make_stream,
    make_vision,
    make_vision_model,
)

NEAR = 1e-5


@pytest.fixture(scope="module", params=FAMILIES)
def eyes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Vision]]:
    model = make_vision_model(request.param)
    vision = make_vision(model, tmp_path_factory.mktemp("folder") if "qwen" in request.param else None)
    model.vision = vision
    yield model, vision


SMALL, WIDE, TALL = make_picture(1), make_picture(2, 16, 48), make_picture(3, 40, 24)


def make_streams(vision: Vision) -> list[Stream]:
    """Return streams with one or several images per turn, repeated images, and text before the first."""
    return [
        make_stream(vision, [[SMALL], [WIDE]]),
        make_stream(vision, [[SMALL], [WIDE]], seed=1),
        make_stream(vision, [[SMALL], [TALL, WIDE, SMALL], []], seed=2),
        make_stream(vision, [[], [TALL], [TALL]], seed=3),
        make_stream(vision, [[SMALL, SMALL]], seed=4),
    ]


@pytest.mark.parametrize("costs", [Costs(), Costs(scores=10**6)], ids=["rows", "trees"])
def test_scores_are_those_of_transformers(eyes: tuple[Any, Vision], costs: Costs) -> None:
    model, vision = eyes
    if vision.is_bidirectional:
        costs = Costs()
    streams = make_streams(vision)
    together = score_streams(StreamScorer(model), streams, [1.0] * len(streams), 10**5, costs)
    for one, scores in zip(streams, together, strict=True):
        with torch.no_grad():
            assert scores == pytest.approx(compute_reference_scores(model, vision, one).numpy(), abs=NEAR)
        (alone,) = score_streams(StreamScorer(model), [one], [1.0])
        assert scores == pytest.approx(alone, abs=NEAR)


def test_gradients_are_those_of_transformers(eyes: tuple[Any, Vision]) -> None:
    model, vision = eyes
    streams = make_streams(vision)[:3]
    for each in plan_passes(streams, 10**5):
        StreamScorer(model)(build_batch(streams, [1.0] * 3, each)).logprobs.sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    for one in streams:
        compute_reference_scores(model, vision, one).sum().backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    assert gradients.keys() == expected.keys() and any("vis" in name for name in gradients)
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, expected[name], atol=1e-4 * float(expected[name].abs().max()) + 1e-6), name


def make_request(stream: Stream, key: str, tokens: int = 4, temperature: float = 1.0) -> Request:
    return Request(
        policy="p", ids=tuple(stream.ids), media=tuple(stream.media), key=key, max_tokens=tokens,
        temperature=temperature, top_p=1.0, top_k=0, stop_ids=frozenset(), seed=(len(stream.ids),),
    )  # fmt: skip


def test_replies_have_the_log_probabilities_of_transformers(eyes: tuple[Any, Vision]) -> None:
    """Concurrent matches whose later turns add images to a cache."""
    model, vision = eyes
    turns = [[SMALL], [WIDE, TALL], [], [TALL]]

    async def play() -> list[Stream]:
        engine = InProcessEngine()
        await engine.open()
        await engine.publish("p", 1, ModuleWeights(model))
        streams = [Stream() for _ in range(4)]
        for number, images in enumerate(turns):
            for i, one in enumerate(streams):
                observe_images(vision, one, images[: 1 + i % 2] if i else images, number, i)
            requests = [make_request(one, str(i)) for i, one in enumerate(streams)]
            for one, completion in zip(streams, await engine.generate(requests), strict=True):
                one.append_sampled(completion.ids, completion.logprobs, number)
        scored = await engine.score("p", streams, [1.0] * len(streams))
        for one, scores in zip(streams, scored, strict=True):
            assert np.array(one.logprobs)[one.mask] == pytest.approx(scores, abs=NEAR), "the gate"
        await engine.close()
        return streams

    for one in asyncio.run(play()):
        with torch.no_grad():
            expected = compute_reference_scores(model, vision, one).numpy()
        assert np.array(one.logprobs)[one.mask] == pytest.approx(expected, abs=NEAR)


def observe_images(vision: Vision, stream: Stream, images: Sequence[Any], number: int, seed: int) -> None:
    """Append a turn of images; rows differ in length, so they are padded."""
    text = [int(id) for id in np.random.default_rng(number + 7 * (seed == 3)).integers(20, WORDS, 5 + seed)]
    ids, media = text[:2], []
    for image in images:
        media.append(make_span(vision, image, len(ids)))
        ids += [vision.image_token] * media[-1].length + text[2:3]
    stream.observe([*ids, *text[3:]], media)


def test_one_level_of_one_pixel_changes_log_probabilities(eyes: tuple[Any, Vision]) -> None:
    model, vision = eyes
    first, second = (make_stream(vision, [[make_picture(9, 32, 32, change)]]) for change in (0, 1))
    before, after = score_streams(StreamScorer(model), [first, second], [1.0, 1.0])
    assert 0 < np.abs(before - after).max() < 0.1


def test_a_surplus_or_missing_image_is_refused(eyes: tuple[Any, Vision]) -> None:
    model, vision = eyes
    stream = make_stream(vision, [[SMALL]])
    stream.media[0] = replace(stream.media[0], length=stream.media[0].length - 1)
    with pytest.raises(ValueError, match="tokens"):
        score_streams(StreamScorer(model), [stream], [1.0])


@pytest.mark.parametrize("size", [(10**9, 10**9), (1, 1), (10**6, 1)])
def test_refuses_invalid_image_size_of_a_log(eyes: tuple[Any, Vision], size: tuple[int, int]) -> None:
    model, vision = eyes
    stream = make_stream(vision, [[SMALL]])
    stream.media[0] = replace(stream.media[0], size=size)
    with pytest.raises(ValueError, match="pixels") as error:
        score_streams(StreamScorer(model), [stream], [1.0])
    assert "\n" not in str(error.value)


def test_black_image_changes_the_context(eyes: tuple[Any, Vision]) -> None:
    """SmolVLM's own forward pass takes it for padding and drops it."""
    model, vision = eyes
    pixels = torch.zeros((3, vision.size or 16, vision.size or 16))
    with torch.no_grad():
        alone, both = vision.features(model, [pixels]), vision.features(model, [pixels, pixels + 1])
    assert alone.isfinite().all() and len(both) == 2 * len(alone)
    assert torch.allclose(alone, both[: len(alone)], atol=1e-5)


def test_patch_positions_are_exact_in_bfloat16() -> None:
    """SmolVLM's own forward pass misplaces 11 of 6 x 6 patches in bfloat16 by rounding."""
    model = make_vision_model("smolvlm")
    vision = create_vision(model.config)
    assert vision
    pixels = vision.scale_image(BYTES[make_picture(1, 48, 48).hash])[None]
    with torch.no_grad():
        exact = vision.features(model, pixels)
        model.bfloat16()
        ours = vision.features(model, pixels).float()
        reference = model.model.get_image_features(pixels[None].bfloat16(), return_dict=True).pooler_output.float()
    assert (ours - exact).norm() < 0.03 * exact.norm()
    assert (reference.reshape(ours.shape) - exact).norm() > 3 * (ours - exact).norm()


@pytest.mark.parametrize("family", QWENS)
def test_positions_are_those_of_the_whole_history(family: str, tmp_path: Path) -> None:
    """As from get_rope_index, in one piece, continued anywhere, and as a tree under bfloat16."""
    model = make_vision_model(family)
    vision = make_vision(model, tmp_path)
    stream = make_stream(vision, [[SMALL], [TALL, WIDE], [], [TALL]] * 40)
    inputs = make_reference_inputs(vision, stream.ids, stream.media)
    expected, _ = model.model.get_rope_index(
        inputs["input_ids"], mm_token_type_ids=inputs["mm_token_type_ids"], image_grid_thw=inputs["image_grid_thw"]
    )
    media = list({each.hash: each for each in stream.media}.values())
    grids = [(*vision.grid(each), place) for each in media for place in range(each.length)]
    seen = ImageFeatures(vision, torch.zeros((len(grids), 1)), torch.tensor(grids))
    rows = torch.tensor([[-1 if key >= 0 else make_row(media, key) for key in stream.keys]])
    positions = torch.arange(len(stream))[None]
    assert len(stream) > 600 and torch.equal(seen.positions(positions, rows), expected)
    with torch.autocast("cpu", torch.bfloat16):
        tree = torch.ones((1, len(stream), len(stream)), dtype=torch.bool).tril()
        assert torch.equal(seen.positions(positions, rows, tree=tree), expected)
    for cut in (1, 3, 4, 11, 300, len(stream) - 1):
        before = sum(compute_jump(vision, each) for each in stream.media if each.start + each.length <= cut)
        assert torch.equal(seen.positions(positions[:, cut:], rows[:, cut:], before), expected[:, :, cut:])


def make_row(media: Sequence[MediaSpan], key: int) -> int:
    return [key for each in media for key in each.token_keys()].index(key)
