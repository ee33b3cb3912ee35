"""Build variants of a tokenizer, with the same vocabulary but only some of its added tokens."""

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer

STAGES = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}


def strip_blueprint(blueprint: dict[str, Any]) -> dict[str, Any]:
    """Return a parsed tokenizer.json without prefix blanks, post-processing, truncation and padding.

    Also changes the steps in `blueprint` itself.
    """
    for stage, parts in STAGES.items():
        node = blueprint.get(stage)
        steps = [] if node is None else node[parts] if node["type"] == "Sequence" else [node]
        steps = [_remove_prefix(step) for step in steps if step["type"] not in ("Prepend", "Strip")]
        blueprint[stage] = {"type": "Sequence", parts: steps} if steps else None
    return blueprint | {"post_processor": None, "truncation": None, "padding": None}


def _remove_prefix(step: dict[str, Any]) -> dict[str, Any]:
    if step["type"] == "Metaspace":
        return step | {"prepend_scheme": "never"}
    return step | {"add_prefix_space": False} if step["type"] == "ByteLevel" else step


def build_tokenizer(blueprint: dict[str, Any], added: Sequence[dict[str, Any]], model: Any) -> Tokenizer:
    """Build a tokenizer from a parsed tokenizer.json, with only these added tokens and an existing vocabulary model."""
    empty_model = {"type": "WordLevel", "vocab": {}, "unk_token": ""}
    tokenizer = Tokenizer.from_str(json.dumps(blueprint | {"model": empty_model, "added_tokens": []}))
    tokenizer.model = model
    for token in added:
        add = tokenizer.add_special_tokens if token["special"] else tokenizer.add_tokens
        add([AddedToken(**{name: value for name, value in token.items() if name != "id"})])
    return tokenizer


def find_blank_tokens(added: Sequence[dict[str, Any]], backend: Tokenizer) -> list[dict[str, Any]]:
    """Return the added tokens that are only blanks (Gemma's newlines) and are in the model's own vocabulary, too."""
    blanks = [token for token in added if token["content"].isspace() and not token["special"]]
    vocabulary = backend.get_vocab(with_added_tokens=False) if blanks else {}
    return [token for token in blanks if vocabulary.get(token["content"]) == token["id"]]
