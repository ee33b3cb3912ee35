"""Experiments from Python values: a recipe's name, a YAML file, a dict or an Experiment, with overrides."""

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
"""A recipe's name, the path of a YAML file, a dict of settings, or an experiment."""
Overrides = Mapping[str, Any] | Iterable[str]
"""Settings to override: `{"learn.lr": 1e-4}`, nested dicts, or texts as for `--set`."""


def compose_experiment(value: ExperimentLike, overrides: Overrides = (), seed: int | None = None) -> Experiment:
    """Compose and validate an experiment from `value`, overridden by `overrides` and then by `seed`.

    Raises ConfigError, in one line that names the key, if it is invalid.
    """
    layers = [_make_layer(value), *make_layers(overrides)]
    return compose(layers if seed is None else [*layers, make_setting("seed", seed)])


def make_setting(name: str, value: Any) -> Layer:
    """Return a layer of settings with one top-level key. Converts NumPy numbers and paths; ConfigError for objects."""
    return Layer(name, "", {name: _to_plain(value, name)})


def make_layers(overrides: Overrides) -> list[Layer]:
    """Return one layer of settings per override, in order: `compose` lets later layers win.

    Keys of a dict may be dotted paths. Raises ConfigError for values of other types and malformed texts.
    """
    if isinstance(overrides, str):
        raise ConfigError(f'overrides is a text: write overrides=["{overrides[:80]}"], or a dict')
    if not isinstance(overrides, Iterable):
        kind = type(overrides).__name__
        raise ConfigError(f'overrides are a dict such as {{"learn.lr": 1e-4}}, or texts, not {kind}')
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
    raise ConfigError(f"an experiment is {kinds}, not {type(value).__name__}")


def _require_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"overrides: a setting is a text such as 'learn.lr', not {type(value).__name__}")
    return value


def _to_plain(value: Any, source: str) -> Any:
    """Return the value as YAML types, with paths as texts. Raises ConfigError for other objects and cycles."""
    try:
        return json.loads(json.dumps(value, allow_nan=False, default=_as_text))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{source}: no settings: {error}") from None


def _as_text(value: Any) -> Any:
    if isinstance(value, PathLike):
        return str(value)
    if hasattr(value, "item"):  # a NumPy number; arrays and tensors raise here
        return value.item()
    raise TypeError(f"{type(value).__name__} is no text, number, list or dict")
