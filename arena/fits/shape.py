"""Sizes of a model from its config alone, counted on a model without weights (on torch's meta device)."""

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agents.adapter_config import is_adapter, read_adapter
from agents.errors import WeightsError
from agents.model_config import LAYERS, SIZES, check_keys, first_line, read_json
from agents.model_folder import convert_errors, select_auto_model
from agents.weights import DEFAULT, find_built_in
from arena.fits.formulas import Shape

MOST_LAYERS, MOST_EXPERTS, MOST_MODULES, MOST_SIZE = 1024, 4096, 1 << 16, 1 << 28
"""Limits on the sizes in a config. Models with larger ones would take too long to build."""
MOST_SECONDS = 60.0
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def read_shape(model: str) -> tuple[Shape, int]:
    """Return a model's sizes, and the bytes of its weight files (0 if they are not on this machine).

    `model` is a built-in name, a folder, a config.json, or a name on the Hugging Face hub, from which only the config
    is fetched. An adapter's folder stands for its base model. Raises WeightsError if there is no such model or its
    config is invalid.
    """
    if built_in := find_built_in(model):
        return count_shape(built_in.config(), model), 4 * built_in.parameters
    path = Path(os.path.expanduser(model))  # unlike Path.expanduser, it leaves ~nobody as it is
    if os.path.isdir(path) and is_adapter(path):
        base = read_adapter(path).base
        if is_adapter(Path(os.path.expanduser(base))):
            raise WeightsError(f"{path} is an adapter on another adapter, {base}: merge that into its model first")
        return read_shape(base)
    if os.path.isdir(path):
        return _read_shape_in(path, "config.json"), _sum_weight_bytes(path)
    if os.path.exists(path):
        return _read_shape_in(path.parent, path.name), 0
    if HUB_NAME.fullmatch(model) and not os.path.exists(path.parent):
        return _read_shape_in(_fetch_config(model), "config.json"), 0
    raise WeightsError(f"no model {model[:80]!r}: give {DEFAULT}, nano, a folder, its config.json, or owner/name")


def _read_shape_in(folder: Path, file: str) -> Shape:
    settings = read_json(folder, file)
    check_keys(settings, f"{folder}/{file}")
    return count_shape(settings, f"{folder}/{file}")


def _sum_weight_bytes(folder: Path) -> int:
    """Return the total bytes of the folder's safetensors files, links included."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors") if path.is_file())


def _fetch_config(name: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(name, "config.json")).parent
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise WeightsError(
            f"{name!r} is not a local folder, and could not be fetched from the hub ({first_line(error)})"
        ) from error


def count_shape(settings: dict[str, Any], source: str) -> Shape:
    """Return the sizes of the model that transformers builds from config settings.

    The model is built without memory for its weights. `source` names the config in errors. Raises WeightsError for
    settings without a model type or with invalid sizes.
    """
    kind = settings.get("model_type")
    if not isinstance(kind, str):
        raise WeightsError(f"{source} has no model_type, so it is not a transformers model")
    text = settings.get("text_config")
    _check_sizes(settings, text if isinstance(text, dict) else {}, source)
    auto_model = select_auto_model(settings)  # imports fewer modules of transformers if done before the next import
    import torch
    from transformers import AutoConfig

    with convert_errors(Path(source)), _silence_transformers(), _time_limit(MOST_SECONDS):
        config = AutoConfig.for_model(kind, **{k: v for k, v in settings.items() if k != "model_type"})
        with torch.device("meta"):
            model = auto_model.from_config(config, trust_remote_code=False)
    return _measure(model, source)


@contextmanager
def _silence_transformers() -> Iterator[None]:
    """Silence transformers' log messages within the context. Relevant problems also raise exceptions."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(before)


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the context after this many seconds. Some models compute tables slowly.

    Does nothing outside the main thread, because only that receives signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_timeout(*_: object) -> None:
        raise TimeoutError(f"counting its sizes takes over {seconds:g} s, too long for a real model")

    before = signal.signal(signal.SIGALRM, raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _check_sizes(settings: dict[str, Any], text: dict[str, Any], source: str) -> None:
    """Raise WeightsError if a size is missing, not a number, or above the limits of this module."""
    layers = experts = 1
    for key, value in {**settings, **text}.items():
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, bool) or not isinstance(number, int | float):
                continue
            is_layer_count = LAYERS.fullmatch(key)
            limit = MOST_LAYERS if is_layer_count else MOST_EXPERTS if "experts" in key else MOST_SIZE
            if is_layer_count or "experts" in key or SIZES.fullmatch(key):
                if not 0 <= number <= limit:
                    raise WeightsError(f"{source}: {key} is {str(number)[:24]}: must be from 0 to {limit:,}")
                layers = max(layers, int(number)) if is_layer_count else layers
                experts = max(experts, int(number)) if "experts" in key else experts
    if layers * experts > MOST_MODULES:
        raise WeightsError(f"{source}: {layers:,} layers of {experts:,} experts are too many")
    for names in (("num_hidden_layers", "n_layer", "n_layers", "num_layers"), ("hidden_size", "n_embd", "d_model")):
        present = next((n for n in names if n in settings or n in text), None)
        value = None if present is None else text.get(present, settings.get(present))
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            fault = f"{present} is {json.dumps(value)[:24]}, not a number" if present else f"there is no {names[0]}"
            raise WeightsError(f"{source}: {fault}: fetch the model's config.json again")


def _measure(model: Any, source: str) -> Shape:
    """Return the sizes of a model on the meta device. Raises WeightsError if it has no attention or no head."""
    import torch

    text, head = model.config.get_text_config(decoder=True), model.get_output_embeddings()
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear) and module is not head]
    experts = getattr(text, "num_experts_per_tok", None)
    get: Callable[[str], Any] = lambda name: getattr(text, name, None)  # noqa: E731
    width, heads = get("hidden_size"), get("num_attention_heads")
    if not (isinstance(width, int) and isinstance(heads, int) and heads and head is not None):
        raise WeightsError(f"{source}: no attention or no head found in a {type(model).__name__}")
    inner = get("intermediate_size") or get("ffn_dim") or get("n_inner") or 4 * width
    if experts:
        inner = (get("moe_intermediate_size") or inner) * experts
    return Shape(
        layers=get("num_hidden_layers"),
        width=width,
        inner=inner,
        heads=heads,
        kv_heads=get("num_key_value_heads") or heads,
        head_width=get("head_dim") or width // heads,
        vocabulary=head.weight.shape[0],
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        linear=sum(layer.weight.numel() for layer in layers),
        edges=sum(sum(layer.weight.shape) for layer in layers),
        tied=head.weight is model.get_input_embeddings().weight,
    )
