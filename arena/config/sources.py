"""Layers of settings, not yet validated: recipes, files and command-line overrides."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import games
from agents import strict_yaml
from agents.role import find_role_for
from agents.weights import DEFAULT
from arena.errors import ConfigError
from arena.store.files import STAGES
from games.abilities import Split
from games.names import nearest


@dataclass(frozen=True)
class Layer:
    """Settings from one source, not validated: the source's name and text for messages, and the parsed `data`."""

    source: str
    text: str
    data: Any
    at: tuple[str | int, ...] = ()
    """Path of `data` in the text."""


def recipe_names() -> list[str]:
    """Return the names of the built-in recipes, sorted."""
    return sorted(f.name[:-5] for f in files("arena.recipes").iterdir() if f.name.endswith(".yaml"))


def recipe_layer(name: str) -> Layer:
    """Load a built-in recipe. Raises ConfigError for an unknown name."""
    if name not in recipe_names():
        raise ConfigError(f"unknown recipe '{name}'{nearest(name, recipe_names())} (arena list recipes)")
    return text_layer(f"recipe {name}", (files("arena.recipes") / f"{name}.yaml").read_text("utf-8"))


def file_layer(path: Path) -> Layer:
    """Load a YAML file of settings. Raises ConfigError if it cannot be read or is not a mapping."""
    try:
        text = strict_yaml.read_text(path)
        return require_mapping(Layer(str(path), text, strict_yaml.load(text, str(path))))
    except strict_yaml.YamlError as error:
        raise ConfigError(str(error)) from None


def load_layer(name: str) -> Layer:
    """Load a YAML file if `name` ends in .yaml or .yml or has a slash, else a built-in recipe.

    Raises ConfigError if there is no such file or recipe.
    """
    is_file = name.endswith((".yaml", ".yml")) or "/" in name
    return file_layer(Path(name)) if is_file else recipe_layer(name)


def require_mapping(layer: Layer) -> Layer:
    """Return the layer itself. Raises ConfigError unless its data is a mapping."""
    if not isinstance(layer.data, Mapping):
        raise ConfigError(f"{layer.source}:1: expected `key: value` lines, got {type(layer.data).__name__}")
    return layer


def is_pipeline(layers: Iterable[Layer]) -> bool:
    """Return True if a layer has `stages`, so that the layers describe a pipeline."""
    return any(isinstance(layer.data, Mapping) and STAGES in layer.data for layer in layers)


def text_layer(source: str, text: str) -> Layer:
    """Parse YAML text into a layer. Raises ConfigError, which names `source`."""
    try:
        return Layer(source, text, strict_yaml.load(text, source))
    except strict_yaml.YamlError as error:
        raise ConfigError(str(error)) from None


def parse_game_options(assignments: Iterable[str]) -> dict[str, Any]:
    """Parse the `A=B` assignments of `--option` into game options, values as YAML. Raises ConfigError if malformed."""
    options: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals or not name.isidentifier():
            raise ConfigError(f"--option {assignment}: write A=B, such as --option illegal=end")
        options[name] = text_layer(f"--option {name}", value).data
    return options


def parse_scale(text: str) -> list[Layer]:
    """Parse the value of `--scale`, such as `trainers=2,engines=2`, into layers that set the section `scale`.

    `none` removes the section. Raises ConfigError if malformed.
    """
    if text.strip() == "none":
        return [set_layer("scale=null")]
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if malformed := [part for part in parts if "=" not in part] or ([] if parts else [text]):
        flag = strict_yaml.escape_line(f"--scale {malformed[0]}", 200)
        raise ConfigError(f"{flag}: write it as --scale trainers=2,engines=2, or --scale none for one process")
    pairs = [part.split("=", 1) for part in parts]
    return [set_layer(f"scale.{key}={json.dumps(value) if key == 'address' else value}") for key, value in pairs]


def set_layer(assignment: str) -> Layer:
    """Parse the assignment `a.b=c` of `--set` into a layer of nested keys, the value as YAML.

    Raises ConfigError if it has no key or no `=`.
    """
    source = strict_yaml.escape_line(f"--set {assignment}", 200)
    path, equals, value = assignment.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"{source}: write it as a.b=value, such as --set learn.lr=1e-5")
    data: Any = text_layer(source, value).data if value.strip() else ""
    for key in reversed(path.strip().split(".")):
        data = {key: data}
    return Layer(source, "", data)


def get_game_recipe(game: str) -> Layer:
    """Return the recipe named after the game, or a generic one: the default model at all seats.

    Each seat has the role written for it, or `player`. Raises ConfigError if the game cannot be made without options.
    """
    if game in recipe_names():
        return recipe_layer(game)
    name = re.sub(r"[^a-z0-9_-]+", "-", game.lower()).strip("-_")[:64] or "game"
    try:
        example = games.make(game)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{game}: {error}") from None
    roles = {seat: find_role_for(game, seat) or "player" for seat in example.possible_agents}
    seats = "\n".join(f"  {json.dumps(seat)}: {{role: {role}, policy: shared}}" for seat, role in roles.items())
    split = ", split: train" if isinstance(example, Split) else ""  # `arena eval` uses the held-out deals
    return text_layer(
        f"recipe for {game}", _GENERIC.format(name=name, game=json.dumps(game), split=split, model=DEFAULT, seats=seats)
    )


_GENERIC = """\
name: "{name}"
iterations: 10
precision: auto
game: {{name: {game}, options: {{illegal: end{split}}}}}
policies:
  shared: {{model: {model}}}
seats:
{seats}
play:
  matches: 24
learn:
  lr: 4e-5
  regularisers: {{kl: {{weight: 0.02}}}}
  token_budget: 1024
checkpoint: {{every: 5, keep: 1}}
"""
