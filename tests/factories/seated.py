"""Scripted players at a table of any text game."""

from games.contracts import View


def make_view(game):
    """Return the view of the seat to move."""
    return View.of(game, game.agent_selection, game.turns)


def play_match(game, players):
    """Play a reset match to its end, asserting that acts are legal; return the payoffs in seat order."""
    while not game.ended:
        seat = game.agent_selection
        game.step(players[seat].act(make_view(game)))
        assert game.infos[seat]["valid"]
    return tuple(game.payoffs().values())
