"""From what a caller gives to an experiment: a recipe's name, a YAML file, a dict or an Experiment, and overrides."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from os import PathLike
from os.path import expanduser
from pathlib import Path
from typing import Any

from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.saved_config import as_plain
from arena.config.sources import Layer, file_layer, named_layer, set_layer
from arena.errors import ConfigError

Given = str | PathLike[str] | Mapping[str, Any] | Experiment
"""What may be an experiment."""
Overrides = Mapping[str, Any] | Iterable[str]
"""Settings laid over it: `{"learn.lr": 1e-4}`, nested dicts, or texts as `--set` takes them."""


def experiment_of(given: Given, overrides: Overrides = (), seed: int | None = None) -> Experiment:
    """The checked experiment; ConfigError, one line that names the key, for what is none."""
    layers = [_layer(given), *layers_of(overrides)]
    return compose(layers if seed is None else [*layers, setting("seed", seed)])


def setting(name: str, value: Any) -> Layer:
    """One of the settings as a source of its own, named as its argument; a number of NumPy is one."""
    return Layer(name, "", {name: _plain(value, name)})


def layers_of(overrides: Overrides) -> list[Layer]:
    """Overrides as sources of settings, later over earlier."""
    if isinstance(overrides, str):
        raise ConfigError(f'overrides is a text: write overrides=["{overrides[:80]}"], or a dict')
    if not isinstance(overrides, Iterable):
        kind = type(overrides).__name__
        raise ConfigError(f'overrides are a dict such as {{"learn.lr": 1e-4}}, or texts, not {kind}')
    if not isinstance(overrides, Mapping):
        return [set_layer(_text(text)) for text in overrides]
    layers = []
    for path, value in overrides.items():
        source, data = f"overrides: {_text(path)[:100]}", value
        for key in reversed(path.split(".")):
            data = {key: data}
        layers.append(Layer(source, "", _plain(data, source)))
    return layers


def _layer(given: Given) -> Layer:
    if isinstance(given, Experiment):
        return Layer("the experiment", "", as_plain(given))
    if isinstance(given, Mapping):
        return Layer("the dict", "", _plain(given, "the dict"))
    if isinstance(given, str):
        return named_layer(expanduser(given))
    if isinstance(given, PathLike):
        return file_layer(Path(expanduser(given)))
    kinds = "a recipe's name, the path of a YAML file, a dict or an Experiment"
    raise ConfigError(f"an experiment is {kinds}, not {type(given).__name__}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"overrides: a setting is a text such as 'learn.lr', not {type(value).__name__}")
    return value


def _plain(value: Any, where: str) -> Any:
    """The same as YAML could hold it, paths as texts; ConfigError for other objects, and for what contains itself."""
    try:
        return json.loads(json.dumps(value, allow_nan=False, default=_as_text))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{where}: no settings: {error}") from None


def _as_text(value: Any) -> Any:
    if isinstance(value, PathLike):
        return str(value)
    if hasattr(value, "item"):  # a number of NumPy; an array, or a tensor, raises what it likes
        return value.item()
    raise TypeError(f"{type(value).__name__} is no text, number, list or dict")
