"""OpenSpiel's rules in words: what all games share whose rules are OpenSpiel's (Lanctot et al. 2019).

A subclass names the OpenSpiel game and says in words what its acts are and what a seat sees. `spiel` (the rules)
and `state` (the position) stay open to search players, solvers and best responses.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import pyspiel

from games.text import IllegalAct, TextGame, one_line

OUTCOME = "outcome"


@functools.cache
def load(name: str) -> pyspiel.Game:
    """OpenSpiel's game of this name and parameters, such as `hanabi(colors=2)`; simultaneous moves one by one."""
    return pyspiel.load_game_as_turn_based(name)


class OpenSpielGame(TextGame):
    """A text game over an OpenSpiel game; a subclass passes `spiel`, its name with parameters.

    reset(options={"chance": [outcomes]}) fixes the first chance events, as OpenSpiel's actions; later ones are
    drawn. Reward part "outcome": what each act changed in the seat's OpenSpiel return, in the game's own units.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}
    seats: tuple[str, ...] = ()

    def __init__(self, spiel: str, **options: Any) -> None:
        self.spiel = load(spiel)
        kind = self.spiel.get_type()
        self.seats = self.seats or tuple(f"player_{i}" for i in range(self.spiel.num_players()))
        if kind.utility == pyspiel.GameType.Utility.ZERO_SUM:
            self.stakes = max(0.0, -self.spiel.min_utility())
        self.state: Any = None
        super().__init__(**options)

    # What a subclass says in words.

    def word(self, action: int) -> str:
        """How one of the acts that are legal now is written; different acts have different words."""
        return one_line(self.state.action_to_string(self.state.current_player(), action)).replace("|", "/")

    def hearsay(self, action: int, word: str) -> str:
        """How others read an act of the seat to move; "" where they may not."""
        return word

    def chance_word(self, outcome: int) -> str:
        """What the referee tells all seats of a chance event; "" where nobody may know."""
        return ""

    def verdict(self) -> tuple[str, str]:
        """Why an ended match ended, in one word, and what the referee announces."""
        returns = dict(zip(self.seats, self.state.returns(), strict=True))
        best = max(returns.values())
        winners = [seat for seat, value in returns.items() if value == best]
        if len(winners) == len(self.seats):
            return "draw", "The match is over: a draw."
        return "win", f"The match is over: {' and '.join(winners)} won."

    def public(self) -> dict[str, Any]:
        """The board, where everything lies open."""
        return {"board": str(self.state)} if self.perfect_information else {}

    def private(self, seat: str) -> dict[str, Any]:
        """What OpenSpiel says that this seat knows, where something is hidden."""
        if self.perfect_information:
            return {}
        player, kind = self.seats.index(seat), self.spiel.get_type()
        if kind.provides_information_state_string:
            return {"seen": self.state.information_state_string(player)}
        return {"seen": self.state.observation_string(player)}

    # How it is played.

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """The initial state; chance has its first turns."""
        self.state = self.spiel.new_initial_state()
        self._rng, self._scripted = rng, list(options.get("chance", ()))
        self._returns = [0.0] * len(self.seats)
        self._go_on()
        self.agent_selection = self.next_seat(self.seats[0])

    def legal(self, seat: str) -> list[str]:
        """The words of all legal acts."""
        return list(self._acts)

    def play(self, seat: str, act: str) -> str:
        """Plays a legal act by its word; case and blanks do not matter."""
        word = act if act in self._acts else self._written.get(_fold(act))
        if word is None:
            raise IllegalAct("write one of the legal acts")
        action = self._acts[word]
        heard = self.hearsay(action, word)
        self.state.apply_action(action)
        self._go_on()
        return heard

    def next_seat(self, seat: str) -> str:
        """Whose turn it is by OpenSpiel; nobody's at the end."""
        return seat if self.state.is_terminal() else self.seats[self.state.current_player()]

    def clone(self) -> Self:
        """An independent copy; the rules are shared."""
        state = self.state and self.state.clone()
        return copy.deepcopy(self, {id(self.spiel): self.spiel, id(self.state): state})

    @property
    def _written(self) -> dict[str, str]:
        return {_fold(word): word for word in self._acts}

    def _go_on(self) -> None:
        """Chance has its turns; what was earned is paid; the match ends or the next seat's acts are listed."""
        state = self.state
        while state.is_chance_node():
            outcome = self._scripted.pop(0) if self._scripted else self._drawn(state.chance_outcomes())
            said = self.chance_word(outcome)
            state.apply_action(outcome)
            if said:
                self.tell(said)
        returns = state.returns()
        if returns != self._returns:
            for seat, now, before in zip(self.seats, returns, self._returns, strict=True):
                self.pay(seat, OUTCOME, now - before)
            self._returns = returns
        if state.is_terminal():
            self._acts: dict[str, int] = {}
            self.end(*self.verdict())
        else:
            self._acts = {self.word(action): action for action in state.legal_actions()}

    def _drawn(self, outcomes: list[tuple[int, float]]) -> int:
        left = self._rng.random() * sum(chance for _, chance in outcomes)
        for outcome, chance in outcomes:
            left -= chance
            if left < 0:
                return outcome
        return outcomes[-1][0]


def _fold(text: str) -> str:
    return " ".join(text.split()).casefold()
