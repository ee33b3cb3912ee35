"""Scripted policies by name: `name` or `name:argument`, such as `random` or `mcts:100`.

`path/to/file.py:function` names a user's own policy: like the `players` of a game, the function takes (game, seed) and
returns a function from a `View` to an act.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from agents.errors import ScriptedPolicyError
from agents.player import Chances, ScriptedPolicy, Summariser
from agents.players import bidders, guessers, matrix_players, negotiators, remarks, search, solved, teammates
from agents.players.positions import clone_fresh, get_title
from agents.players.simple import FirstLegal, FunctionPlayer, Random
from agents.reply import to_one_line
from games.adapters.loading import file_of, import_member, list_loaded_players
from games.contracts import Game, View
from games.names import nearest


@dataclass(frozen=True)
class Kind:
    """Kind of scripted policy: its factory, the parser of its argument, and the games it can play."""

    make: Callable[..., ScriptedPolicy]
    """Factory of the policy, called with (seed), or with (seed, game, argument) if `parse` is set."""
    plays: str
    """Games that it plays, in a few words for listings."""
    games: tuple[str, ...] | None = None
    """Names of the only games that it can play; None if it can play any."""
    picks: bool = False
    """Whether it chooses among listed legal acts."""
    parse: Callable[[str | None], Any] | None = None
    """Function that parses the argument's text, None without one. Raises ValueError with the expected form."""
    find_obstacle: Callable[[Game, Any], str] = lambda game, argument: ""
    """Function from (game, argument) to the reason why the policy cannot play the game, or ""."""

    @property
    def description(self) -> str:
        """Line that `arena list policies` shows for this kind.

        It is the first line of the docstring of `make`. If `make` is a partial, those of its bound arguments follow, or
        stand alone for players that only follow their argument.
        """
        maker, rules = getattr(self.make, "func", self.make), getattr(self.make, "args", ())
        parts = rules if maker in (FunctionPlayer, matrix_players.MatrixPlayer) else (maker, *rules)
        lines = [(inspect.getdoc(part) or "").split("\n", 1)[0] for part in parts]
        return ": ".join([*(line.partition(";")[0].rstrip(".") for line in lines[:-1]), lines[-1]])

    def __call__(self, seed: int, game: Game | None = None, argument: Any = None) -> ScriptedPolicy:
        """Create a scripted policy for one seat of one match. `game` and `argument` are needed if `parse` is set."""
        return self.make(seed, game, argument) if self.parse else self.make(seed)


GAME_PLAYERS: Mapping[str, str] = {
    "expert": "babyai:… and textworld:…", "noop": "simulators, minigrid:… and textworld:…",
    "careless": "textworld:…", "oracle": "simulators and text_navigation", "asker": "clinic", "random_asker": "clinic",
    "obedient": "desk", "refuser": "desk", "popular": "recommender", "deaf": "recommender",
    "listening": "recommender", "rambler": "text_navigation", "heeder": "text_navigation",
    "nash_bargaining": "negotiation with public values", "subgame_perfect": "negotiation with public values",
}  # fmt: skip
"""Players defined by built-in games, for listings. Other games may define more, known only in their matches."""


class ProbabilisticPlayer(FunctionPlayer):
    """Player defined by its game that also returns the probabilities of its acts (`chances`)."""

    def __init__(self, answer: ProbabilisticFunction) -> None:
        super().__init__(answer)
        self.chances = answer.chances


class SummarisingPlayer(FunctionPlayer):
    """Player defined by its game that also writes summaries of the match so far (`summary`)."""

    def __init__(self, answer: SummarisingFunction) -> None:
        super().__init__(answer)
        self.summary = answer.summary


@runtime_checkable
class SummarisingFunction(Summariser, Protocol):
    """Protocol of a game's own player that also summarises the match so far."""

    def __call__(self, view: View) -> str:
        """Return the act at this view."""
        ...


@runtime_checkable
class ProbabilisticFunction(Chances, Protocol):
    """Protocol of a game's own player that also returns the probabilities of its acts."""

    def __call__(self, view: View) -> str:
        """Return the act at this view."""
        ...


def _make_own_kind(name: str, games: str) -> Kind:
    """Return the kind of a player that games define under this name. `games` describes these games in messages."""

    def make(seed: int, game: Game, argument: None) -> ScriptedPolicy:
        """Player defined as a function by its game or a user's file, which describes it."""
        return _make_player(name, game.players[name], game, seed)

    def find_obstacle(game: Game, argument: None) -> str:
        return "" if name in game.players else f"{name} plays {games}, not {game.name}"

    return Kind(make, games, parse=_refuse_argument, find_obstacle=find_obstacle)


def _make_file_kind(spec: str, file: Path) -> Kind:
    """Return the kind of a policy from a user's file. Raises ScriptedPolicyError if it cannot be imported."""
    try:
        function = import_member(file, spec.rpartition(":")[2], inspect.isfunction, "function", "functions")
    except ValueError as error:
        raise ScriptedPolicyError(str(error)) from None

    def make(seed: int, game: Game, argument: None) -> ScriptedPolicy:
        return _make_player(spec, function, game, seed)

    def find_obstacle(game: Game, argument: None) -> str:
        try:
            inspect.signature(function).bind(game, 0)
        except TypeError as error:
            return f"{_shorten(spec)}: {error}: {CALLED}"
        return ""

    return Kind(make, "what it is written for", parse=_refuse_argument, find_obstacle=find_obstacle)


CALLED = "it is called with the game and a seed, and must return a function from a View to an act"


def _make_player(name: str, maker: Callable[[Game, int], Any], game: Game, seed: int) -> FunctionPlayer:
    """Call `maker` with game and seed, and return a player that acts by the returned function from view to act.

    Raises ScriptedPolicyError, with the name, if the call fails or does not return a function.
    """
    try:
        answer = maker(game, seed)
    except Exception as error:
        raise ScriptedPolicyError(f"{_shorten(name)} failed: {type(error).__name__}: {error}: {CALLED}") from error
    if not callable(answer):
        raise ScriptedPolicyError(f"{_shorten(name)} returned a {type(answer).__name__}: {CALLED}")
    return _wrap_answer(answer)


def _wrap_answer(answer: Callable[[View], str]) -> FunctionPlayer:
    if isinstance(answer, SummarisingFunction):
        return SummarisingPlayer(answer)
    return ProbabilisticPlayer(answer) if isinstance(answer, ProbabilisticFunction) else FunctionPlayer(answer)


def _refuse_argument(argument: str | None) -> None:
    if argument is not None:
        raise ValueError("takes no argument")


def _make_kinds(
    makers: Mapping[str, Callable[[int], ScriptedPolicy]], games: Mapping[str, tuple[str, ...]]
) -> dict[str, Kind]:
    return {name: Kind(make, ", ".join(games[name]), games[name]) for name, make in makers.items()}


NEGOTIATION = "negotiation"
TALKATIVE = "talkative"
BARGAINERS = (*negotiators.SCRIPTED, "nash_bargaining", "subgame_perfect")
"""Names of policies that can add remarks, as `talkative:NAME`."""


def _make_talkative(seed: int, game: Game, name: str) -> ScriptedPolicy:
    """Play as the named negotiator, and add true remarks to its acts if the game allows talk."""
    script = make_scripted(name, seed, game)
    return remarks.TalkativeNegotiator(script, seed) if game.talk else script


def _read_bargainer(name: str | None) -> str:
    """Return the name. Raises ValueError unless it is in `BARGAINERS`."""
    if name not in BARGAINERS:
        raise ValueError(
            f"write {TALKATIVE}:NAME, NAME one of {', '.join(BARGAINERS)}{nearest(name or '', BARGAINERS)}"
        )
    return name


def _find_talk_obstacle(game: Game, name: str) -> str:
    if game.name != NEGOTIATION:
        return f"{TALKATIVE}:{_shorten(name)} plays {NEGOTIATION}, not {game.name}"
    kind, argument = _parse_spec(name, game)
    return kind.find_obstacle(game, argument)


def add_remarks(spec: str, game: Game) -> str:
    """Return the spec of the policy's `talkative` variant if it has one for this game, else the spec unchanged.

    Use it if the other players read or learn words. Policies without `talkative:` stay silent, to keep measurements
    comparable.
    """
    return f"{TALKATIVE}:{spec}" if spec in BARGAINERS and game.name == NEGOTIATION and game.talk else spec


SCRIPTED: Mapping[str, Kind] = {
    "random": Kind(Random, "listed acts", picks=True),
    "first_legal": Kind(FirstLegal, "listed acts", picks=True),
    "minimax": Kind(
        search.Minimax,
        "two seats, perfect information",
        picks=True,
        parse=search.parse_depth,
        find_obstacle=search.find_minimax_obstacle,
    ),
    "mcts": Kind(
        search.make_mcts,
        "perfect information",
        picks=True,
        parse=search.parse_effort,
        find_obstacle=search.find_mcts_obstacle,
    ),
    "cfr": Kind(
        solved.make_cfr, "small zero-sum games", parse=solved.parse_iterations, find_obstacle=solved.find_cfr_obstacle
    ),
    "nash": Kind(
        solved.make_nash, "small zero-sum games", parse=solved.parse_alpha, find_obstacle=solved.find_nash_obstacle
    ),
    **_make_kinds(negotiators.SCRIPTED, dict.fromkeys(negotiators.SCRIPTED, ("negotiation",))),
    **_make_kinds(matrix_players.SCRIPTED, matrix_players.GAMES),
    **_make_kinds(bidders.SCRIPTED, bidders.GAMES),
    **_make_kinds(guessers.SCRIPTED, guessers.GAMES),
    **_make_kinds(teammates.SCRIPTED, teammates.GAMES),
    **{name: _make_own_kind(name, games) for name, games in GAME_PLAYERS.items()},
    TALKATIVE: Kind(_make_talkative, NEGOTIATION, parse=_read_bargainer, find_obstacle=_find_talk_obstacle),
}


def is_scripted(spec: str) -> bool:
    """Return True if a spec starts with the name of a scripted policy, even if its argument is invalid.

    Players that a user's game defines are known only after that game has been created.
    """
    known = {name.partition(":")[0] for name in SCRIPTED} | list_loaded_players()
    return spec.partition(":")[0] in known or file_of(spec) is not None


def check_scripted(spec: str, game: Game | None = None, seat: str = "") -> None:
    """Raise ScriptedPolicyError for an unknown name, a malformed argument, or a policy that cannot play `game`.

    `game` is an AEC text game, reset or not; it stays unchanged. A policy that chooses among legal acts needs a game
    that lists them for `seat` or, if that is "", for any seat.
    """
    kind, argument = _parse_spec(spec, game)
    if game is None:
        return
    _check_fit(spec, kind, argument, game)
    if kind.picks:
        trial = clone_fresh(game)
        if all(trial.legal(name) is None for name in ([seat] if seat else trial.possible_agents)):
            problem = f"{get_title(game)} lists none" + (f" for {seat}" if seat else "")
            remedy = "seat a model, an endpoint or a person there"
            raise ScriptedPolicyError(
                f"{_shorten(spec)} picks among the legal acts that a game lists: {problem}: {remedy}"
            )


def can_play(spec: str, game: Game, seat: str) -> bool:
    """Return True if the scripted policy of a spec can play this seat of the game."""
    try:
        check_scripted(spec, game, seat)
    except ScriptedPolicyError:
        return False
    return True


def make_scripted(spec: str, seed: int, game: Game) -> ScriptedPolicy:
    """Create the scripted policy of a spec for one seat of one match. Players that search look at `game`, the match's.

    Raises ScriptedPolicyError for an unknown or malformed spec, or a game that the policy cannot play.
    """
    kind, argument = _parse_spec(spec, game)
    _check_fit(spec, kind, argument, game)
    return kind(seed, game, argument)


def _parse_spec(spec: str, game: Game | None = None) -> tuple[Kind, Any]:
    """Parse a spec: return its kind and the value of its argument. A game's own players take precedence.

    Raises ScriptedPolicyError for an unknown name or a malformed argument.
    """
    if file := file_of(spec):
        return _make_file_kind(spec, file), None
    if (game is not None and spec in game.players) or (spec in list_loaded_players() and spec not in SCRIPTED):
        return _make_own_kind(spec, game.name if game is not None and spec in game.players else "another game"), None
    name, colon, text = (spec, "", "") if spec in SCRIPTED else spec.partition(":")
    if name not in SCRIPTED or (colon and not SCRIPTED[name].parse):
        alone = f" ({name} takes no argument)" if name in SCRIPTED else ""
        raise ScriptedPolicyError(
            f"unknown scripted policy '{_shorten(spec)}'{nearest(spec, SCRIPTED) or nearest(name, SCRIPTED)}{alone}"
        )
    kind = SCRIPTED[name]
    if kind.parse is None:
        return kind, None
    try:
        return kind, kind.parse(text if colon else None)
    except ValueError as expected:
        raise ScriptedPolicyError(f"scripted policy '{_shorten(spec)}': {expected}") from None


def _check_fit(spec: str, kind: Kind, argument: Any, game: Game) -> None:
    if kind.games is not None and game.name not in kind.games:
        raise ScriptedPolicyError(f"{_shorten(spec)} plays {' and '.join(kind.games)}, not {game.name}")
    if obstacle := kind.find_obstacle(game, argument):
        raise ScriptedPolicyError(obstacle)


def _shorten(spec: str) -> str:
    return to_one_line(spec, 80)
