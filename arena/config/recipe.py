"""Recipes, from which an experiment starts: a game's own, or one that fits every game."""

import json
import re

import games
from agents.role import written_for
from agents.weights import DEFAULT
from arena.config.sources import Layer, recipe_layer, recipe_names, text_layer
from arena.errors import ConfigError
from games.abilities import Split


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
