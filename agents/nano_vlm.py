"""Nano policy with vision: a random SmolVLM of about a million parameters, with a tokenizer for terse scenes.

It is generated from a seed like the other nano policies. An image of any size is scaled to 48 pixels and has 3 x 3
tokens. Colours, forms, digits and names of cells are single tokens, so that an image token can stand for a word.
"""

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from agents.nano import ROLES, assign_ids, build_tokenizer

NAME = "nano-vlm"
PARAMETERS = 1_197_824
IMAGE = "<image>"
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{{ '<image>' if part['type'] == 'image' else part['text'] }}{% endfor %}"
    "{% endif %}"
    "{% if message['role'] == 'assistant' %}{{ '<|im_end|>' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Chat template of the nano policies, with `IMAGE` for an image among a content's parts."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
WORDS = """
find look crop zoom read answer query colour form digit cell none any empty nothing
red green blue yellow purple cyan orange pink brown white black grey
circle square triangle cross star ring diamond bar heart
is in at on of the a and or not no yes what which where there with see shows target object scene picture image frame
page go move stop done left right up down turn forward top bottom middle near far first last second next take play act
rotate flip dim bright crop choose between search time start end good bad wrong true false
zero one two three four five six seven eight nine
"""
SHAPE: dict[str, Any] = {
    "text_config": {
        "model_type": "llama", "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 1024,
    },
    "vision_config": {
        "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4,
        "image_size": 48, "patch_size": 8,
    },
    "scale_factor": 2,
    "tie_word_embeddings": False,
    "initializer_range": 0.08,
}  # fmt: skip
"""Settings of a SmolVLMConfig. With a smaller `initializer_range`, digits take three times as many steps to learn."""


def parse_seed(name: str) -> int | None:
    """Return the seed in the policy's name, such as `nano-vlm-7` (default seed 0); None for other names."""
    match = re.fullmatch(rf"{NAME}(?:-(0|[1-9]\d{{0,8}}))?", name)
    return None if match is None else int(match[1] or 0)


def hash_recipe() -> str:
    """Return a hash (8 hex digits) of what all these policies share. A folder with another hash is rebuilt."""
    return sha256(json.dumps([ROLES, TEMPLATE, WORDS, LETTERS, SHAPE]).encode()).hexdigest()[:8]


def build_config() -> dict[str, Any]:
    """Return the settings of the model's SmolVLMConfig, with the sizes and ids of its vocabulary."""
    tokenizer = build_vlm_tokenizer()
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    vision = SHAPE["vision_config"] | {"initializer_range": SHAPE["initializer_range"]}
    text = SHAPE["text_config"] | ends | {"vocab_size": len(tokenizer), "tie_word_embeddings": False}
    text["initializer_range"] = SHAPE["initializer_range"]
    image = {"image_token_id": tokenizer.convert_tokens_to_ids(IMAGE)}
    return SHAPE | ends | image | {"text_config": text, "vision_config": vision}


def build_nano_vlm(folder: Path, seed: int = 0) -> None:
    """Write a nano model with vision, drawn from `seed`, and its tokenizer to `folder`.

    The global random state does not change.
    """
    import torch
    from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SmolVLMForConditionalGeneration(SmolVLMConfig(**build_config()))
    model.save_pretrained(folder)
    build_vlm_tokenizer().save_pretrained(folder)


def build_vlm_tokenizer() -> Any:
    """Build the tokenizer: `WORDS`, digits and letters, with or without a blank, bytes, and the placeholder `IMAGE`."""
    words = list(dict.fromkeys(WORDS.split()))
    words = [word for word in words if len(word) > 1]
    vocabulary = assign_ids(words, ["|", *"0123456789", *LETTERS, "a", *words])
    tokenizer = build_tokenizer(vocabulary, TEMPLATE, SHAPE["text_config"]["max_position_embeddings"])
    tokenizer.add_tokens([IMAGE], special_tokens=True)
    return tokenizer
