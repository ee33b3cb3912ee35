"""Composition of experiments from Python values: a recipe's name, YAML file, dict or Experiment, and overrides."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from os import PathLike
from os.path import expanduser
from pathlib import Path
from typing import Any

from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.saved_config import experiment_to_plain
from arena.config.sources import Layer, file_layer, load_layer, set_layer
from arena.errors import ConfigError

ExperimentLike = str | PathLike[str] | Mapping[str, Any] | Experiment
"""Recipe name, path of a YAML file, dict of settings, or experiment."""
Overrides = Mapping[str, Any] | Iterable[str]
"""Settings to override: `{"learn.lr": 1e-4}`, nested dicts, or texts as for `--set`."""


def compose_experiment(value: ExperimentLike, overrides: Overrides = (), seed: int | None = None) -> Experiment:
    """Compose and validate an experiment from `value`, overridden by `overrides` and then by `seed`.

    Raises ConfigError, in one line that names the key, if it is invalid.
    """
    layers = [_make_layer(value), *make_layers(overrides)]
    return compose(layers if seed is None else [*layers, make_setting("seed", seed)])


def make_setting(name: str, value: Any) -> Layer:
    """Return a layer with one top-level setting. Raises ConfigError if the value cannot be converted to YAML types."""
    return Layer(name, "", {name: _to_plain(value, name)})


def make_layers(overrides: Overrides) -> list[Layer]:
    """Return one layer of settings per override, in order. In `compose`, later layers override earlier ones.

    Keys of a dict may be dotted paths. Raises ConfigError for malformed texts, and for values that cannot be converted
    to YAML types.
    """
    if isinstance(overrides, str):
        raise ConfigError(f'overrides must not be a single text: write overrides=["{overrides[:80]}"], or a dict')
    if not isinstance(overrides, Iterable):
        kind = type(overrides).__name__
        raise ConfigError(f'overrides must be a dict such as {{"learn.lr": 1e-4}}, or a list of texts, not {kind}')
    if not isinstance(overrides, Mapping):
        return [set_layer(_require_text(text)) for text in overrides]
    layers = []
    for path, value in overrides.items():
        source, data = f"overrides: {_require_text(path)[:100]}", value
        for key in reversed(path.split(".")):
            data = {key: data}
        layers.append(Layer(source, "", _to_plain(data, source)))
    return layers


def _make_layer(value: ExperimentLike) -> Layer:
    if isinstance(value, Experiment):
        return Layer("the experiment", "", experiment_to_plain(value))
    if isinstance(value, Mapping):
        return Layer("the dict", "", _to_plain(value, "the dict"))
    if isinstance(value, str):
        return load_layer(expanduser(value))
    if isinstance(value, PathLike):
        return file_layer(Path(expanduser(value)))
    kinds = "a recipe's name, the path of a YAML file, a dict or an Experiment"
    raise ConfigError(f"the experiment must be {kinds}, not {type(value).__name__}")


def _require_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"overrides: a setting must be a text such as 'learn.lr', not {type(value).__name__}")
    return value


def _to_plain(value: Any, source: str) -> Any:
    """Convert the value to YAML types: paths to texts, NumPy numbers to numbers.

    Raises ConfigError, naming `source`, for other objects and for cycles.
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False, default=_as_text))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{source}: invalid value: {error}") from None


def _as_text(value: Any) -> Any:
    if isinstance(value, PathLike):
        return str(value)
    if hasattr(value, "item"):  # a NumPy number; arrays and tensors raise here
        return value.item()
    raise TypeError(f"{type(value).__name__} is not a text, number, list or dict")
