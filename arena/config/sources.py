"""Sources of settings: a recipe, a file, `--set`; each becomes a layer, of keys and values not yet checked."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import games
from agents import strict_yaml
from agents.names import nearest
from agents.role import written_for
from agents.weights import DEFAULT
from arena.errors import ConfigError
from games.abilities import Split


@dataclass(frozen=True)
class Layer:
    """One source of settings: where it comes from, its text, and what was read from it."""

    source: str
    text: str
    data: Any


def recipe_names() -> list[str]:
    """Experiments that come with the package."""
    return sorted(f.name[:-5] for f in files("arena.recipes").iterdir() if f.name.endswith(".yaml"))


def recipe_layer(name: str) -> Layer:
    """A built-in recipe by name."""
    if name not in recipe_names():
        raise ConfigError(f"unknown recipe '{name}'{nearest(name, recipe_names())} (arena list recipes)")
    return text_layer(f"recipe {name}", (files("arena.recipes") / f"{name}.yaml").read_text("utf-8"))


def file_layer(path: Path) -> Layer:
    """A user's own settings."""
    try:
        text = strict_yaml.read_text(path)
        return as_mapping(Layer(str(path), text, strict_yaml.load(text, str(path))))
    except strict_yaml.YamlError as error:
        raise ConfigError(str(error)) from None


def named_layer(name: str) -> Layer:
    """A built-in recipe by its name, or a file by its path."""
    is_file = name.endswith((".yaml", ".yml")) or "/" in name
    return file_layer(Path(name)) if is_file else recipe_layer(name)


def as_mapping(layer: Layer) -> Layer:
    """The layer, or ConfigError where it is not of keys and values."""
    if not isinstance(layer.data, Mapping):
        raise ConfigError(f"{layer.source}:1: expected `key: value` lines, got {type(layer.data).__name__}")
    return layer


def text_layer(source: str, text: str) -> Layer:
    """Settings given as text."""
    try:
        return Layer(source, text, strict_yaml.load(text, source))
    except strict_yaml.YamlError as error:
        raise ConfigError(str(error)) from None


def game_options(assignments: Iterable[str]) -> dict[str, Any]:
    """A game's options from `A=B`, values read as YAML."""
    options: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals or not name.isidentifier():
            raise ConfigError(f"--option {assignment}: write A=B, such as --option illegal=end")
        options[name] = text_layer(f"--option {name}", value).data
    return options


def scale_layers(asked: str) -> list[Layer]:
    """`trainers=2,engines=2` as layers of the section `scale`; `none` is one process."""
    if asked.strip() == "none":
        return [set_layer("scale=null")]
    parts = [part.strip() for part in asked.split(",") if part.strip()]
    if wrong := [part for part in parts if "=" not in part] or ([] if parts else [asked]):
        said = strict_yaml.one_line(f"--scale {wrong[0]}", 200)
        raise ConfigError(f"{said}: write it as --scale trainers=2,engines=2, or --scale none for one process")
    pairs = [part.split("=", 1) for part in parts]
    return [set_layer(f"scale.{key}={json.dumps(value) if key == 'address' else value}") for key, value in pairs]


def set_layer(assignment: str) -> Layer:
    """`a.b=c`: the value is read as YAML."""
    source = strict_yaml.one_line(f"--set {assignment}", 200)
    path, equals, value = assignment.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"{source}: write it as a.b=value, such as --set learn.lr=1e-5")
    data: Any = text_layer(source, value).data if value.strip() else ""
    for key in reversed(path.strip().split(".")):
        data = {key: data}
    return Layer(source, "", data)


def recipe_of(game: str) -> Layer:
    """The recipe named after the game; without one, small language models at all seats, in roles written for them.

    Where there is no such role, in the role `player`. ConfigError where the game cannot be made with its defaults.
    """
    if game in recipe_names():
        return recipe_layer(game)
    name = re.sub(r"[^a-z0-9_-]+", "-", game.lower()).strip("-_")[:64] or "game"
    try:
        made = games.make(game)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{game}: {error}") from None
    roles = {seat: written_for(game, seat) or "player" for seat in made.possible_agents}
    seats = "\n".join(f"  {json.dumps(seat)}: {{role: {role}, policy: shared}}" for seat, role in roles.items())
    split = ", split: train" if isinstance(made, Split) else ""  # `arena eval` deals the others
    return text_layer(
        f"recipe for {game}", _ANY.format(name=name, game=json.dumps(game), split=split, model=DEFAULT, seats=seats)
    )


_ANY = """\
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
