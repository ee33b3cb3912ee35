"""Images for vLLM: a prompt with one placeholder per image beside the pictures, and the files that its processor reads.

vLLM does not run the processor on token ids: it replaces each placeholder by as many as the image needs (vLLM 0.32,
"Multi-Modal Data Processing"). Pictures are scaled to the policy's size in advance, and vLLM's processor keeps it.
"""

import shutil
from pathlib import Path
from typing import Any

from agents.engines.base import Request
from agents.errors import EngineError
from agents.eyes.layout import Vision
from games.pictures import decode_picture

WEIGHT_FILES = ("config.json", "generation_config.json", "model.safetensors.index.json")
"""JSON files that belong to the weights and not to tokenizer or processor."""


def make_image_prompt(vision: Vision | None, request: Request) -> dict[str, Any]:
    """Return the fields of vLLM's `TokensPrompt` for a request with images.

    Raises EngineError if the model has no vision or vLLM surrounds its images with further tokens, and ValueError,
    naming the hash, for an image that cannot be read or does not fit the model.
    """
    if vision is None or not vision.expands_alone:
        raise EngineError("vLLM would write this model's images in its own way: set engine.kind to in_process")
    pictures, ids, end = list[Any](), list[int](), 0
    for span in request.media:
        height, width = (length * vision.side for length in vision.grid(span))
        try:
            picture = decode_picture(span.data)
        except ValueError as error:
            raise ValueError(f"image {span.hash}: {error}") from None
        pictures.append(picture.resize((width, height), vision.preprocessing.resample))
        ids += [*request.ids[end : span.start], vision.image_token]
        end = span.start + span.length
    return {"prompt_token_ids": [*ids, *request.ids[end:]], "multi_modal_data": {"image": pictures}}


def copy_processor(source: Path, folder: Path) -> None:
    """Copy the tokenizer and the image processor of a model folder to another, for vLLM's own processing of images."""
    for path in sorted(source.glob("*")):
        if path.suffix in (".json", ".jinja", ".txt", ".model") and path.name not in WEIGHT_FILES and path.is_file():
            shutil.copyfile(path, folder / path.name)
