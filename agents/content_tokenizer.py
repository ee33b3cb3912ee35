"""Tokenizers with few or none of a tokenizer's added tokens, on the same vocabulary."""

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer

STAGES = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}


def strip_blueprint(blueprint: dict[str, Any]) -> dict[str, Any]:
    """Change a parsed tokenizer.json to add no prefix blank, template, truncation or padding; return a copy."""
    for stage, parts in STAGES.items():
        node = blueprint.get(stage)
        steps = [] if node is None else node[parts] if node["type"] == "Sequence" else [node]
        kept = [_remove_prefix(step) for step in steps if step["type"] not in ("Prepend", "Strip")]
        blueprint[stage] = {"type": "Sequence", parts: kept} if kept else None
    return blueprint | {"post_processor": None, "truncation": None, "padding": None}


def _remove_prefix(step: dict[str, Any]) -> dict[str, Any]:
    if step["type"] == "Metaspace":
        return step | {"prepend_scheme": "never"}
    return step | {"add_prefix_space": False} if step["type"] == "ByteLevel" else step


def build_tokenizer(blueprint: dict[str, Any], added: Sequence[dict[str, Any]], model: Any) -> Tokenizer:
    """Return a tokenizer with the steps of a parsed tokenizer.json, these added tokens only, and an existing model."""
    nothing = {"type": "WordLevel", "vocab": {}, "unk_token": ""}
    tokenizer = Tokenizer.from_str(json.dumps(blueprint | {"model": nothing, "added_tokens": []}))
    tokenizer.model = model
    for token in added:
        add = tokenizer.add_special_tokens if token["special"] else tokenizer.add_tokens
        add([AddedToken(**{name: value for name, value in token.items() if name != "id"})])
    return tokenizer


def find_blank_tokens(added: Sequence[dict[str, Any]], backend: Tokenizer) -> list[dict[str, Any]]:
    """Return the added tokens that are only blanks (Gemma's newlines) and are part of the model's own vocabulary."""
    blanks = [token for token in added if token["content"].isspace() and not token["special"]]
    vocabulary = backend.get_vocab(with_added_tokens=False) if blanks else {}
    return [token for token in blanks if vocabulary.get(token["content"]) == token["id"]]
