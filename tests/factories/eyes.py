"""Small random models of every family of vision-language models, and their bare forward pass over a whole context."""

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image as Pixels

from agents.eyes.layout import Vision
from agents.layouts import create_vision
from agents.nano import build_nano_tokenizer
from agents.stream import MediaSpan, Stream
from games.contracts import Image

WIDTH, WORDS = 64, 240
IMAGE = 15
"""Id of the placeholder."""
# fmt: off
TEXT = {
    "hidden_size": WIDTH, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": WORDS, "max_position_embeddings": 1024, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}
QWEN: dict[str, Any] = {
    "text_config": {**TEXT, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}},
    "vision_start_token_id": 3, "vision_end_token_id": 4, "video_token_id": 16,
}
QWEN_VISION = {"depth": 2, "num_heads": 4, "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2}
VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SETTINGS: dict[str, dict[str, Any]] = {
    "smolvlm": {
        "text_config": {**TEXT, "model_type": "llama"},
        "vision_config": {**VISION, "image_size": 48, "patch_size": 8},
        "scale_factor": 2,
    },
    "qwen2_vl": {**QWEN, "vision_config": {**QWEN_VISION, "embed_dim": 32, "hidden_size": WIDTH, "mlp_ratio": 2}},
    "qwen2_5_vl": {
        **QWEN,
        "vision_config": {
            **QWEN_VISION, "hidden_size": 32, "intermediate_size": 48, "out_hidden_size": WIDTH, "window_size": 16,
            "fullatt_block_indexes": [1],
        },
    },
    "qwen3_vl": {
        **QWEN,
        "vision_config": {
            **QWEN_VISION, "depth": 3, "hidden_size": 32, "intermediate_size": 48, "out_hidden_size": WIDTH,
            "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1],
        },
    },
    "internvl": {
        "text_config": {**TEXT, "model_type": "qwen2"},
        "vision_config": {**VISION, "image_size": [32, 32], "patch_size": [8, 8]},
        "downsample_ratio": 0.5,
    },
    "gemma3": {
        "text_config": {**TEXT, "sliding_window": 12, "layer_types": ["sliding_attention", "full_attention"] * 2,
                        "num_hidden_layers": 4},
        "vision_config": {**VISION, "image_size": 32, "patch_size": 8, "model_type": "siglip_vision_model"},
        "mm_tokens_per_image": 4,
    },
}
# fmt: on
FAMILIES = tuple(SETTINGS)
QWENS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
PROCESSOR = {
    "size": {"shortest_edge": 64, "longest_edge": 4096}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    "patch_size": 4, "merge_size": 2, "temporal_patch_size": 2,
}  # fmt: skip
BYTES: dict[str, bytes] = {}


def make_config(family: str, words: int = WORDS, image: int = IMAGE, end: int = 2, pad: int = 0, head: int = 16) -> Any:
    """Return the config of a family's small model, with this vocabulary, these ids and this width of a head."""
    from transformers import AutoConfig

    settings = {"image_token_id": image, "tie_word_embeddings": False, "initializer_range": 0.1, **SETTINGS[family]}
    ends = {"eos_token_id": end, "pad_token_id": pad}
    settings["text_config"] = settings["text_config"] | {"vocab_size": words, **ends}
    settings["text_config"] |= {"head_dim": head, "num_attention_heads": 64 // head, "num_key_value_heads": 32 // head}
    if family in QWENS:
        section = [head * share // 16 for share in (2, 3, 3)]
        settings["text_config"]["rope_parameters"] = QWEN["text_config"]["rope_parameters"] | {"mrope_section": section}
    return AutoConfig.for_model(family, **settings, **ends)


def make_vision_model(family: str, seed: int = 0, config: Any = None) -> Any:
    """Return a random model of a family: three or four layers of width 64, some hundred thousand parameters."""
    from transformers import AutoModelForImageTextToText

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForImageTextToText.from_config(config or make_config(family)).eval()
        for name, parameter in model.named_parameters():
            if any(part in name for part in ("position_embedding", "lambda", "mm_input_projection")):  # they are zeros
                torch.nn.init.normal_(parameter, 0.5, 0.3)
    return model


def make_vision(model: Any, tmp_path: Path | None = None) -> Vision:
    """Return a model's vision, which scales images to 64 to 4,096 pixels if it keeps their proportions."""
    if tmp_path is not None:
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    vision = create_vision(model.config, tmp_path)
    assert vision
    return vision


def make_picture(seed: int, height: int = 24, width: int = 24, change: int = 0) -> Image:
    """Return a random picture; `change` is added to one level of its first pixel. `BYTES` holds its file."""
    levels = np.random.default_rng(seed).integers(1, 250, (height, width, 3), dtype=np.uint8)
    levels[0, 0, 0] += change
    file = io.BytesIO()
    Pixels.fromarray(levels).save(file, "PNG")
    name = hashlib.sha256(file.getvalue()).hexdigest()
    BYTES[name] = file.getvalue()
    return Image(name, "image/png", width, height)


def make_span(vision: Vision, image: Image, start: int) -> MediaSpan:
    fit = vision.make_token().fit_image(image)
    return MediaSpan(start, fit.tokens, image.hash, BYTES[image.hash], fit.size)


def make_stream(vision: Vision, turns: Sequence[Sequence[Image]], seed: int = 0) -> Stream:
    """Return a stream with the turns' images, text before and after each, and three sampled tokens per turn."""
    sample_rng, stream = np.random.default_rng(seed), Stream()
    for turn, images in enumerate(turns):
        text = [int(id) for id in np.random.default_rng(turn).integers(20, WORDS, 8)]
        ids, media = text[:3], list[MediaSpan]()
        for image in images:
            media.append(make_span(vision, image, len(ids)))
            ids += [*[IMAGE] * media[-1].length, text[3]]
        stream.observe([*ids, *text[4:]], media)
        stream.append_sampled([int(id) for id in sample_rng.integers(20, WORDS, 3)], [-1.0] * 3, turn)
    return stream


def make_reference_inputs(
    vision: Vision, ids: Sequence[int], media: Sequence[MediaSpan], image: int = IMAGE
) -> dict[str, torch.Tensor]:
    """Return the keyword arguments of transformers' own forward pass over a whole context."""
    inputs = {"input_ids": torch.tensor([list(ids)])}
    if not media:
        return inputs
    pixels = [vision.load_pixels(one) for one in media]
    token_types = (inputs["input_ids"] == image).int()
    if vision.has_grid_positions:
        patches, grids = vision.cut_patches(pixels)  # type: ignore[attr-defined]  # Qwen's
        return inputs | {"pixel_values": patches, "image_grid_thw": grids, "mm_token_type_ids": token_types}
    stacked = torch.stack(pixels)
    if vision.is_bidirectional:
        return inputs | {"pixel_values": stacked, "token_type_ids": token_types}
    return inputs | {"pixel_values": stacked[None] if type(vision).__name__ == "Idefics" else stacked}


def mask_placeholder(image: int, logits: torch.Tensor) -> torch.Tensor:
    """Return logits [..., V] in which the placeholder has probability 0, as it is never sampled."""
    return logits.index_fill(-1, torch.tensor([image]), -torch.inf)


def compute_reference_scores(model: Any, vision: Vision, stream: Stream, image: int = IMAGE) -> torch.Tensor:
    """Return the log-probabilities of a stream's sampled tokens by transformers' own forward pass."""
    inner = model.base_model
    logits = model(**make_reference_inputs(vision, stream.ids, stream.media, image)).logits[0]
    if hasattr(inner, "rope_deltas"):
        inner.rope_deltas = None  # what it keeps of one pass would spoil the next
    own = [i for i, sampled in enumerate(stream.mask) if sampled]
    scores = torch.log_softmax(mask_placeholder(image, logits)[[i - 1 for i in own]], -1)
    return scores[torch.arange(len(own)), torch.tensor([stream.ids[i] for i in own])]


def save_vision_model(
    folder: Path, family: str, seed: int = 0, tokens: Sequence[str] = ("<image>",), head: int = 16
) -> Path:
    """Write a random model of a family with nano's tokenizer and a small image processor to a folder.

    `tokens` are added to the vocabulary; the first is the placeholder of images. `head` is the width of a head.
    """
    tokenizer = build_nano_tokenizer()
    tokenizer.add_tokens([*tokens], special_tokens=True)
    image = tokenizer.convert_tokens_to_ids(tokens[0])
    config = make_config(family, len(tokenizer), image, tokenizer.eos_token_id, tokenizer.pad_token_id, head)
    make_vision_model(family, seed, config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR if family in QWENS else {}))
    return folder
