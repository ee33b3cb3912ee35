"""Table of games by name; a game's module loads on first use."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from games.adapters import loading
from games.names import nearest

if TYPE_CHECKING:
    from games.base import TextGame
    from games.contracts import Deal

CLASSES = {
    "tic_tac_toe": "games.tic_tac_toe:TicTacToe",
    "connect_four": "games.connect_four:ConnectFour",
    "breakthrough": "games.breakthrough:Breakthrough",
    "nim": "games.nim:Nim",
    "chess_endgame": "games.chess_endgame:ChessEndgame",
    "kuhn_poker": "games.kuhn_poker:KuhnPoker",
    "leduc_poker": "games.leduc_poker:LeducPoker",
    "liars_dice": "games.liars_dice:LiarsDice",
    "hanabi": "games.hanabi:Hanabi",
    "tiny_hanabi": "games.tiny_hanabi:TinyHanabi",
    "trade_comm": "games.trade_comm:TradeComm",
    "word_clue": "games.word_clue:WordClue",
    "negotiation": "games.negotiation:Negotiation",
    "haggle": "games.haggle:Haggle",
    "prisoners_dilemma": "games.matrix:PrisonersDilemma",
    "stag_hunt": "games.matrix:StagHunt",
    "battle_of_the_sexes": "games.matrix:BattleOfTheSexes",
    "chicken": "games.matrix:Chicken",
    "public_goods": "games.public_goods:PublicGoods",
    "ultimatum": "games.ultimatum:Ultimatum",
    "first_price_auction": "games.auctions:FirstPriceAuction",
    "second_price_auction": "games.auctions:SecondPriceAuction",
    "sheriff": "games.sheriff:Sheriff",
    "twenty_questions": "games.twenty_questions:TwentyQuestions",
    "guess_city": "games.guess_city:GuessCity",
    "wordle": "games.wordle:Wordle",
    "maze": "games.maze:Maze",
    "recall": "games.recall:Recall",
    "tasks": "games.tasks:Tasks",
    "text_navigation": "games.text_navigation:TextNavigation",
}


class Games(Mapping[str, "type[TextGame]"]):
    """Read-only mapping from a game's name to its class. Listing imports nothing; a lookup imports its module."""

    def __getitem__(self, name: str) -> type[TextGame]:
        module, _, attribute = CLASSES[name].partition(":")
        game_class: type[TextGame] = getattr(importlib.import_module(module), attribute)
        return game_class

    def __iter__(self) -> Iterator[str]:
        return iter(CLASSES)

    def __len__(self) -> int:
        return len(CLASSES)

    def __contains__(self, name: object) -> bool:
        return name in CLASSES


GAMES = Games()


def find_factory(name: str) -> Callable[..., TextGame]:
    """Return the class or factory that creates the game of this name.

    The game may be one of this package, of another library or of a user's file (`games.adapters.loading`). Raises
    ValueError with the reason in one line if there is no such game or it cannot be imported.
    """
    try:
        if name in GAMES:
            return GAMES[name]
        factory = loading.find_foreign_game(name)
    except ImportError as error:
        raise ValueError(f"the game '{name}' cannot be loaded: {error}") from None
    except ValueError as error:
        raise ValueError(f"unknown game '{name}': {error}") from None
    if factory is None:
        names = [*GAMES, *loading.find_entry_points(), *(f"{library}:" for library in loading.LIBRARIES)]
        hint = nearest(name, names) or f"; there are: {', '.join(names)}"
        raise ValueError(f"unknown game '{name}'{hint}")
    return factory


def find_problem(name: str) -> str | None:
    """Return the reason, in one line, why no game of this name can be created, or None if one can."""
    try:
        find_factory(name)
    except ValueError as error:
        return str(error)
    return None


def make(name: str, **options: Any) -> TextGame:
    """Create a game by name with these constructor options.

    Raises ValueError, with the nearest name, for an unknown game or option, and for an option whose value the game
    fixes.
    """
    factory = find_factory(name)
    known = list_options(factory) if isinstance(factory, type) else ()
    for option in options:
        if known and option not in known:
            hint = nearest(option, known) or f"; there are: {', '.join(known)}"
            raise ValueError(f"there is no option '{option}'{hint}")
    try:
        return factory(**(loading.replace_data_paths(options) if ".py:" in name else options))
    except TypeError as error:
        if fixed := re.search("multiple values for keyword argument '(.*)'", str(error)):
            raise ValueError(f"the option '{fixed[1]}' cannot be set in {name}, which fixes its value") from None
        raise


def start_match(deal: Deal) -> TextGame:
    """Create a deal's game with the deal's options and reset it with its seed. Raises ValueError as `make` does."""
    game = make(deal.game, **deal.options)
    game.reset(seed=deal.seed)
    return game


@functools.cache
def list_options(game: type) -> tuple[str, ...]:
    """Return the names of a game class's options, its own before inherited ones. Empty if it accepts any option."""
    names: dict[str, None] = {}
    for owner in game.__mro__:
        if "__init__" not in vars(owner) or owner is object:
            continue
        parameters = list(inspect.signature(vars(owner)["__init__"]).parameters.values())[1:]
        names |= dict.fromkeys(p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL))
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            return tuple(names)
    return ()
