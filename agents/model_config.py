"""Check a model folder's settings before transformers loads them.

A folder may come from a stranger. Keys that make a library load code are refused by name, and so are sizes that do not
fit the weights: they would allocate memory or waste time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agents.errors import WeightsError
from games.plain_files import read_plain

MAX_BYTES = 64 * 10**6
MAX_DEPTH = 64
MAX_PARTS = 500_000
LOOSE_SIZE = 1 << 20
"""Maximum of a size in config.json, unless the model has more parameters than this."""
LOOSE_REACH = 1 << 24
"""The same for a number of positions or of tokens in an attention window; -1 means unlimited."""
REACHES = re.compile(r"(\w+_)?(positions?|position_embeddings|ctx|window)")
"""Settings that count positions or tokens in an attention window."""
CODE = (
    "compression_config", "custom_generate", "custom_pipelines", "kernel_config", "quantization_config",
    "trust_remote_code", "use_kernels",
)  # fmt: skip
"""Settings that make libraries load code."""
IMPLEMENTATION = re.compile(r"_?(\w+_)?implementation(_internal)?")
IMPLEMENTATIONS = (None, "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
LAYERS = re.compile(r"(?!max_window|vision_feature)(\w+_)?(layers?|blocks)")
"""Settings that count parts with tensors of their own. Qwen's max_window_layers is only a threshold, and InternVL's
vision_feature_layer is an index."""
SIZES = re.compile(
    r"(\w+_)?(size|dim|dims|heads?|experts?|embd|inner|rank|ctx|positions?|embeddings|window|width)|d_\w+"
)
FILES = ("config.json", "tokenizer_config.json", "generation_config.json", "processor_config.json")


def read_json(folder: Path, file: str) -> dict[str, Any]:
    """Return the JSON object in a model folder's file. Raises WeightsError if it is missing, malformed or too large."""
    try:
        content = json.loads(read_plain(folder / file, MAX_BYTES).decode())
    except FileNotFoundError:
        raise WeightsError(f"{folder} is no model folder: it has no {file}") from None
    except (OSError, ValueError) as error:
        raise WeightsError(f"{folder}/{file} cannot be read ({first_line(error)})") from error
    except RecursionError:
        raise WeightsError(f"{folder}/{file} is nested too deeply: it is no model's") from None
    if not isinstance(content, dict):
        raise WeightsError(f"{folder}/{file} is no JSON object")
    return content


def check_settings(folder: Path) -> None:
    """Raise WeightsError if a model folder's settings name code to load, or if it holds an adapter of another model."""
    if (folder / "adapter_config.json").exists():
        raise WeightsError(f"{folder} holds an adapter of another model: merge it into that model and save the whole")
    for file in FILES:
        if (folder / file).exists():
            check_keys(read_json(folder, file), f"{folder}/{file}")


def check_keys(settings: dict[str, Any], source: str) -> None:
    """Raise WeightsError, naming the file `source`, if settings (nested ones included) name code to load."""
    for key, value in _iterate_settings(settings, source):
        if key in CODE and value:
            raise WeightsError(f"{source}: {key} chooses code to load, which is never loaded: remove it")
        if IMPLEMENTATION.fullmatch(key) and not _is_built_in(value):
            text = first_line(ValueError(json.dumps(value)))[:80]
            raise WeightsError(f"{source}: {key}: {text} chooses code to load: remove it")


def check_sizes(folder: Path, tensors: int, numbers: int) -> None:
    """Raise WeightsError if sizes in a folder's config.json do not fit its weights.

    `tensors` is the number of tensors in the weights, `numbers` that of parameters.
    """
    for key, value in _iterate_settings(read_json(folder, "config.json"), f"{folder}/config.json"):
        layers, size, reach = LAYERS.fullmatch(key), SIZES.fullmatch(key), REACHES.fullmatch(key)
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, bool) or not isinstance(number, int | float) or not (layers or size):
                continue
            maximum = tensors if layers else max(numbers, LOOSE_REACH if reach else LOOSE_SIZE)
            if not (-1 if reach else 0) <= number <= maximum:
                weights = f"the weights are {tensors:,} tensors of {numbers:,} numbers"
                raise WeightsError(
                    f"{folder}/config.json: {key} is {str(number)[:24]}, but {weights}: fetch the folder again"
                )


POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len")
"""Settings that state the number of positions, by architecture."""
NO_LIMIT = 1 << 20
"""Positions or vocabulary size of a model that does not state them."""


def read_positions(folder: Path) -> int:
    """Return a model's maximum tokens of a context with its reply; NO_LIMIT if it states none.

    If config.json does not state it, this is transformers' default for the architecture.
    """
    config = _read_text_config(folder)
    positions = next((config[name] for name in POSITIONS if config.get(name)), None)
    return _or_no_limit(_find_default_positions(config.get("model_type")) if positions is None else positions)


def _find_default_positions(architecture: Any) -> Any:
    """Return transformers' default number of positions of an architecture (`model_type`), or None."""
    from transformers import CONFIG_MAPPING

    is_known = isinstance(architecture, str) and architecture in CONFIG_MAPPING
    known = CONFIG_MAPPING[architecture] if is_known else None
    return next((value for name in POSITIONS if isinstance(value := getattr(known, name, None), int)), None)


def read_vocabulary_size(folder: Path) -> int:
    """Return the vocabulary size of the folder's model, from config.json; NO_LIMIT if it is not stated."""
    return _or_no_limit(_read_text_config(folder).get("vocab_size"))


def _read_text_config(folder: Path) -> dict[str, Any]:
    config = read_json(folder, "config.json")
    inner = config.get("text_config")
    return config | (inner if isinstance(inner, dict) else {})


def _or_no_limit(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else NO_LIMIT


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, cut to 200 characters; its type's name if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def _is_built_in(value: Any) -> bool:
    """Return True if an attention implementation, or each one in a dict, is None or part of transformers."""
    if isinstance(value, dict):
        return all(_is_built_in(inner) for inner in value.values())
    return value is None or (isinstance(value, str) and value in IMPLEMENTATIONS)


def _iterate_settings(value: Any, source: str) -> Iterator[tuple[str, Any]]:
    """Yield all keys with their values, nested ones too. Raises WeightsError for implausible depth or size."""
    parts, seen = [(value, 0)], 0
    while parts:
        part, depth = parts.pop()
        inner = list(part.values() if isinstance(part, dict) else part if isinstance(part, list) else ())
        seen += 1 + len(inner)
        if depth > MAX_DEPTH or seen > MAX_PARTS:
            problem = "is nested too deeply" if depth > MAX_DEPTH else f"has more than {MAX_PARTS:,} parts"
            raise WeightsError(f"{source} {problem}: it is no model's")
        if isinstance(part, dict):
            yield from part.items()
        parts += [(each, depth + 1) for each in reversed(inner) if isinstance(each, dict | list)]
