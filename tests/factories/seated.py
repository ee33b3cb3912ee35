"""Brains at a table of any text game: what the players' tests share."""

from games.contracts import View


def make_view(game):
    """What the seat to move may know, as a player gets it."""
    return View.of(game, game.agent_selection, game.turns)


def play_match(game, scripted):
    """Plays a match that was reset to its end, with legal acts only; what each seat got, in the seats' order."""
    while not game.ended:
        seat = game.agent_selection
        game.step(scripted[seat].act(make_view(game)))
        assert game.infos[seat]["valid"]
    return tuple(game.payoffs().values())
