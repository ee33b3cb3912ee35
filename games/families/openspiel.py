"""Base classes of text games on OpenSpiel's rules (Lanctot et al. 2019).

A subclass names the OpenSpiel game, and puts its acts and each seat's facts into words. `games.adapters.openspiel`
plays all other games in OpenSpiel's own words. `spiel` (the rules) and `state` (the position) are public attributes,
for search players, solvers and best responses.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import pyspiel

from games.base import IllegalAct, TextGame, number, to_one_line
from games.names import nearest

OUTCOME = "outcome"


@functools.cache
def load(name: str) -> pyspiel.Game:
    """Load OpenSpiel's game of this name and parameters, such as `hanabi(colors=2)`. Cached.

    Simultaneous moves are played in sequence. Raises ValueError, with a reason in one line, if there is no such game,
    or if it cannot be played in turns from a seed.
    """
    short, names = name.partition("(")[0].strip(), pyspiel.registered_names()
    if short not in names:
        hint = nearest(short, names) or "; pyspiel.registered_names() lists them"
        raise ValueError(f"OpenSpiel has no game called {short!r}{hint}")
    try:
        with _silence_stderr():
            game = pyspiel.load_game_as_turn_based(re.sub(r"\s*([(),=])\s*", r"\1", name.strip()))
    except (pyspiel.SpielError, LookupError, RuntimeError, ValueError) as error:
        why = to_one_line(re.sub(r"^/\S+ ", "", str(error)))
        raise ValueError(f"OpenSpiel's {short} cannot be set up as {name!r}: {why}") from None
    kind = game.get_type()
    if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        raise ValueError(f"OpenSpiel's {short} cannot be played by turns: it is a mean field game")
    if kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
        raise ValueError(f"OpenSpiel's {short} cannot be played from a seed: it hides its chance events")
    if kind.action_structs_only:
        raise ValueError(f"OpenSpiel's {short} cannot be played in words: it does not list its acts")
    return game


@functools.cache
def is_cooperative(name: str) -> bool:
    """Return True if OpenSpiel declares that this game always pays all seats equally."""
    utility = load(name).get_type().utility
    return bool(utility == pyspiel.GameType.Utility.IDENTICAL)


@functools.cache
def find_stakes(name: str) -> float:
    """Return a seat's largest possible loss if the game of this name is zero-sum, else 0.

    In other games, OpenSpiel's minimal utility need not be a loss.
    """
    game = load(name)
    loss: float = -game.min_utility()
    zero_sum = game.get_type().utility == pyspiel.GameType.Utility.ZERO_SUM
    return loss if zero_sum and 0 < loss < math.inf else 0.0


@contextlib.contextmanager
def _silence_stderr() -> Iterator[None]:
    """Silence the process's stderr within the context, because OpenSpiel prints errors there before it raises them."""
    stderr, devnull = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(devnull)


def _strip_colours(text: str) -> str:
    """Remove colour codes (as in twixt) and trailing blank lines."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip()


class OpenSpielGame(TextGame):
    """Base class of text games on OpenSpiel's rules. A subclass passes `spiel`, the game's name with parameters.

    reset(options={"chance": [outcomes]}) fixes the first chance events, as OpenSpiel's actions; later ones are
    drawn. Reward part "outcome" is the change of the seat's OpenSpiel return by each act, in the game's own units.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {OUTCOME: "change of the seat's OpenSpiel return"}
    seats: tuple[str, ...] = ()
    spiel: Any
    state: Any
    draw: float = 0.0
    """Reward of both sides for a draw, which OpenSpiel's best responses count as 0."""

    def __init__(self, spiel: str, **options: Any) -> None:
        self.spiel = load(spiel)
        self.seats = self.seats or tuple(f"player_{i}" for i in range(self.spiel.num_players()))
        self.stakes = find_stakes(spiel) or self.stakes
        self.cooperative = self.cooperative or is_cooperative(spiel)
        self.state = None
        super().__init__(**options)

    # Wording, which subclasses override.

    def word(self, action: int) -> str:
        """Return the text of a legal action of the player to move. Different actions must have different texts."""
        return to_one_line(self.state.action_to_string(self.state.current_player(), action)).replace("|", "/")

    def text_for_others(self, action: int, word: str) -> str:
        """Return an act's text for the other seats, or "" if it is hidden. Called before the act is applied."""
        return word

    def chance_word(self, outcome: int) -> str:
        """Return the referee's announcement of a chance event to all seats, or "" if it is secret."""
        return ""

    def verdict(self) -> tuple[str, str]:
        """Return the one-word reason of a match's end, such as "win", and the referee's announcement."""
        returns = dict(zip(self.seats, self.returns(), strict=True))
        best = max(returns.values())
        winners = [seat for seat, value in returns.items() if value == best]
        if len(winners) == len(self.seats):
            return "draw", "The match is over: a draw."
        return "win", f"The match is over: {' and '.join(winners)} won."

    def public(self) -> dict[str, Any]:
        """Return the board as text if the game has perfect information, else {}."""
        return {"board": _strip_colours(str(self.state))} if self.perfect_information else {}

    def private(self, seat: str) -> dict[str, Any]:
        """Return OpenSpiel's information state (or observation) of this seat as `seen`; {} if nothing is hidden."""
        if self.perfect_information:
            return {}
        player, kind = self.seats.index(seat), self.spiel.get_type()
        if kind.provides_information_state_string:
            return {"seen": _strip_colours(self.state.information_state_string(player))}
        return {"seen": _strip_colours(self.state.observation_string(player))}

    def returns(self) -> list[float]:
        """Return each seat's payoff so far, in the order of seats."""
        returns: list[float] = self.state.returns()
        return returns

    def words(self, actions: list[int]) -> dict[str, int]:
        """Return a dict from the text of each of these actions to the action."""
        return {self.word(action): action for action in actions}

    # Play.

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Create the initial state and play its chance events, from the option `chance` or else drawn from `rng`."""
        self.state = self.spiel.new_initial_state()
        self._rng, self._scripted = rng, list(options.get("chance", ()))
        self._returns = [0.0] * len(self.seats)
        self._advance()
        self.agent_selection = self.next_seat(self.seats[0])

    def legal(self, seat: str) -> list[str]:
        """Return the texts of all legal acts of the seat to move."""
        return list(self._acts)

    def play(self, seat: str, act: str) -> str:
        """Play a legal act by its text and return its text for other seats. Ignores extra blanks and usually case."""
        if (word := self._find_word(act)) is None:
            raise IllegalAct("write one of the legal acts")
        action = self._acts[word]
        public_text = self.text_for_others(action, word)
        self.state.apply_action(action)
        self._advance()
        return public_text

    def next_seat(self, seat: str) -> str:
        """Return the seat to move according to OpenSpiel; after the end, `seat` itself."""
        return seat if self.state.is_terminal() else self.seats[self.state.current_player()]

    def clone(self) -> Self:
        """Return an independent copy that shares the immutable rules."""
        state = self.state and self.state.clone()
        return copy.deepcopy(self, {id(self.spiel): self.spiel, id(self.state): state})

    def _find_word(self, act: str) -> str | None:
        """Return the legal text that an act means, or None. Case matters only between texts such as bxc3 and Bxc3."""
        if act in self._acts or (act := " ".join(act.split())) in self._acts:
            return act
        folded = act.casefold()
        words = [word for word in self._acts if word.casefold() == folded]
        return words[0] if len(words) == 1 else None

    def _advance(self) -> None:
        """Play pending chance events, pay changes of returns, then end the match or list the next seat's acts."""
        state = self.state
        while state.is_chance_node():
            outcome = self._scripted.pop(0) if self._scripted else self._draw_outcome(state.chance_outcomes())
            chance_text = self.chance_word(outcome)
            state.apply_action(outcome)
            if chance_text:
                self.tell(chance_text)
        returns = self.returns()
        if returns != self._returns:
            for seat, new, old in zip(self.seats, returns, self._returns, strict=True):
                self.pay(seat, OUTCOME, new - old)
            self._returns = returns
        if state.is_terminal():
            self._acts: dict[str, int] = {}
            self.end(*self.verdict())
        else:
            self._acts = self.words(state.legal_actions())

    def _draw_outcome(self, outcomes: list[tuple[int, float]]) -> int:
        remaining = self._rng.random()
        for outcome, chance in outcomes:
            remaining -= chance
            if remaining < 0:
                return outcome
        return outcomes[-1][0]


class GameWithDraws(OpenSpielGame):
    """Base class of OpenSpiel board games that can end in a draw. Option draw >= 0: reward of both sides for a draw."""

    def __init__(self, spiel: str, *, draw: float = 0.0, **options: Any) -> None:
        self.draw = number("draw", draw)
        super().__init__(spiel, **options)

    def returns(self) -> list[float]:
        """Return each seat's payoff so far, as OpenSpiel does, but with `draw` for both sides after a draw."""
        returns: list[float] = self.state.returns()
        return [self.draw] * 2 if self.state.is_terminal() and not any(returns) else returns

    def draw_rule(self) -> str:
        """Return a sentence for the rules about the reward of a draw, or "" if a draw pays nothing."""
        return f" A draw pays both {self.draw:g}." if self.draw else ""
