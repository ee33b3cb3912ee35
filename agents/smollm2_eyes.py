"""SmolLM2-135M-Instruct with vision: its text weights unchanged, and a small vision tower drawn from a seed.

The layout is SmolVLM's. An image is scaled to 16 pixels and has 2 x 2 tokens, so a scene is shown as tiles with their
names as text. The placeholder is a reserved token of the vocabulary, so that no weight of the language model changes.
The tower is of no use until it is trained: the pipeline stage `ground` with `loss: words` does so in seconds.
"""

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from agents.model_folder import load_model, load_tokenizer

NAME = "smollm2-eyes"
PARAMETERS = 134_944_960
IMAGE = "<jupyter_script>"
"""Reserved token that serves as placeholder of an image; nothing else in SmolLM2's chats uses it."""
VISION: dict[str, Any] = {
    "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4,
    "image_size": 16, "patch_size": 8,
}  # fmt: skip
TOWER, CONNECTOR = 0.08, 0.03
"""Standard deviations of the weights of tower and connector."""


def parse_seed(name: str) -> int | None:
    """Return the seed in the model's name, such as `smollm2-eyes-7` (default seed 0); None for other names."""
    match = re.fullmatch(rf"{NAME}(?:-(0|[1-9]\d{{0,8}}))?", name)
    return None if match is None else int(match[1] or 0)


def hash_recipe() -> str:
    """Return a hash (8 hex digits) of what all these models share. A folder with another hash is rebuilt."""
    return sha256(json.dumps([IMAGE, VISION, TOWER, CONNECTOR]).encode()).hexdigest()[:8]


def build_config(text: dict[str, Any], image: int) -> dict[str, Any]:
    """Return settings of a SmolVLMConfig. `text` are those of its language model, `image` is the placeholder's id."""
    ids = {name: text.get(name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    vision = {"vision_config": VISION, "scale_factor": 1, "image_token_id": image, "tie_word_embeddings": True}
    return {"text_config": text, **vision, **ids}


def build_smollm2_eyes(folder: Path, source: Path, seed: int = 0) -> None:
    """Add a vision tower drawn from `seed` to SmolLM2, whose folder is `source`, and write both to `folder`.

    Raises WeightsError if the source is invalid.
    """
    import torch
    from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration

    language, tokenizer = load_model(source), load_tokenizer(source)
    model = SmolVLMForConditionalGeneration(
        SmolVLMConfig(**build_config(language.config.to_diff_dict(), tokenizer.convert_tokens_to_ids(IMAGE)))
    )
    model.model.text_model.load_state_dict(language.model.state_dict())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part, std in ((model.model.vision_model, TOWER), (model.model.connector, CONNECTOR)):
            for weight in part.parameters():
                if weight.dim() > 1:
                    weight.normal_(std=std, generator=generator)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
