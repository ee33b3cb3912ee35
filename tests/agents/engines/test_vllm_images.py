"""Image prompts for vLLM: one placeholder and one scaled picture per image, with the other tokens unchanged."""

from dataclasses import replace
from pathlib import Path

import pytest

from agents.engines.base import Request
from agents.engines.vllm import VLLMEngine
from agents.engines.vllm_images import copy_processor, make_image_prompt
from agents.errors import EngineError
from agents.eyes.layout import Vision
from agents.layouts import create_vision
from tests.factories.eyes import FAMILIES, IMAGE, QWENS, make_config, make_picture, make_stream


def make_image_request(vision: Vision) -> Request:
    stream = make_stream(vision, [[make_picture(1)], [make_picture(2, 300, 500), make_picture(3, 40, 24)]])
    return Request(
        policy="p", ids=tuple(stream.ids), media=tuple(stream.media), key="k", max_tokens=1, temperature=1.0, top_p=1.0,
        top_k=0, stop_ids=frozenset(), seed=(),
    )  # fmt: skip


@pytest.mark.parametrize("family", QWENS)
def test_a_prompt_has_a_placeholder_and_a_picture_per_image(family: str) -> None:
    vision = create_vision(make_config(family))
    assert vision and VLLMEngine.capabilities.has_vision
    request = make_image_request(vision)
    prompt = make_image_prompt(vision, request)
    assert prompt.keys() == {"prompt_token_ids", "multi_modal_data"}, "vllm.inputs.TokensPrompt"
    ids, pictures = prompt["prompt_token_ids"], prompt["multi_modal_data"]["image"]
    assert ids.count(IMAGE) == len(pictures) == 3
    assert [id for id in ids if id != IMAGE] == [id for id in request.ids if id != IMAGE]
    for picture, one in zip(pictures, request.media, strict=True):
        assert (picture.height, picture.width) == one.size and picture.mode == "RGB"
        assert vision.fit(picture.height, picture.width) == (one.length, one.size), "its processor keeps the size"


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in QWENS])
def test_other_families_are_refused_in_one_line(family: str) -> None:
    vision = create_vision(make_config(family))
    assert vision
    with pytest.raises(EngineError, match=r"set engine\.kind to in_process"):
        make_image_prompt(vision, make_image_request(vision))


def test_an_image_that_cannot_be_read_is_named() -> None:
    vision = create_vision(make_config("qwen2_vl"))
    assert vision
    request = make_image_request(vision)
    first = replace(request.media[0], data=b"https://example.org/cat.png")
    with pytest.raises(ValueError, match=f"image {first.hash}: the image cannot be read: its format is unknown"):
        make_image_prompt(vision, replace(request, media=(first, *request.media[1:])))


def test_a_server_gets_the_files_of_tokenizer_and_processor(tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "export"
    source.mkdir()
    folder.mkdir()
    for name in (
        "config.json",
        "tokenizer.json",
        "preprocessor_config.json",
        "chat_template.jinja",
        "model.safetensors",
    ):
        (source / name).write_text("theirs")
    (folder / "config.json").write_text("ours")
    copy_processor(source, folder)
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.json", "tokenizer.json", "preprocessor_config.json", "chat_template.jinja"}
    assert (folder / "config.json").read_text() == "ours"
