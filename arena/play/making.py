"""Creation of games from configured or logged options, including Arena's own option `seat_tools`."""

from collections.abc import Mapping
from typing import Any

import games
from games.contracts import Deal, Game

SEAT_TOOLS = "seat_tools"
"""Option of all games: sources of tools by seat (`simulators.toolbox`)."""


def make_game(name: str, options: Mapping[str, Any]) -> Game:
    """Create a game, not yet reset, and give its seats the tools of the option `seat_tools`.

    Raises ValueError as `games.make` does, and for unusable tools.
    """
    own = {option: value for option, value in options.items() if option != SEAT_TOOLS}
    game = games.make(name, **own)
    if not options.get(SEAT_TOOLS):
        return game
    from simulators.toolbox import equip

    if not isinstance(options[SEAT_TOOLS], Mapping):
        raise ValueError(f"{SEAT_TOOLS} must be lists of tools by seat, such as {{first: [calculator]}}")
    return equip(game, options[SEAT_TOOLS])


def deal_game(deal: Deal) -> Game:
    """Create a deal's game and reset it with its seed. Raises ValueError as `make_game` does."""
    game = make_game(deal.game, deal.options)
    game.reset(seed=deal.seed)
    return game


def skip_ended_seats(game: Game) -> None:
    """Step over the seats whose part in the match has ended, so that a seat to move is selected, if there is one."""
    while game.agents and (game.terminations[game.agent_selection] or game.truncations[game.agent_selection]):
        game.step(None)
