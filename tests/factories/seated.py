"""Brains at a table of any text game: what the players' tests share."""

from agents.player import View


def view_of(game):
    """What the seat to move may know, as a player gets it."""
    seat = game.agent_selection
    info = game.infos[seat]
    legal = None if info["legal"] is None else tuple(info["legal"])
    return View(seat, game.turns, game.observe(seat)["messages"], info["rules"], info["public"], info["private"], legal)


def play(game, brains):
    """Plays a match that was reset to its end, with legal acts only; what each seat got, in the seats' order."""
    while not game.ended:
        seat = game.agent_selection
        game.step(brains[seat].act(view_of(game)))
        assert game.infos[seat]["valid"]
    return tuple(game.payoffs().values())
