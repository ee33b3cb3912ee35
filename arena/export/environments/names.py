"""Names of exported environments."""

import re

from games.adapters.loading import file_of


def slugify(game: str) -> str:
    """Return a game's name in lower-case letters, digits and underscores, for module names and registries.

    >>> slugify("openspiel:oh_hell(players=3)"), slugify("games/my.py:MyGame")
    ('openspiel_oh_hell_players_3', 'mygame')
    """
    name = game.rpartition(":")[2] if file_of(game) else game
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
