"""Recall: facts arrive one by one among filler, and at the end the game asks for one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.base import IllegalAct, TextGame, whole_number
from games.contracts import View

THINGS = ("ball", "board", "book", "card", "game", "hat", "jack", "king", "pool", "queen")
FILLER = ("rest", "move", "round", "turn", "share", "hello", "thanks", "good")
DIGITS = 10
GOAL = "goal"


class Recall(TextGame):
    """Memory test. Acts: PASS after each line of facts or filler, then the digit that was asked for.

    `facts` of the `lines` lines are facts such as "book 3", each about another thing; the others are filler. The
    question is about a uniformly drawn fact. A player that remembers c of f facts, and guesses one of v values for the
    others, is right with probability (c + (f - c) / v) / f. Options: lines 1 to 1,000; facts 1 to 10, at most lines;
    values 2 to 10, digits from 0 on.
    """

    name = "recall"
    seats: tuple[str, ...] = ("keeper",)
    metadata: ClassVar[dict[str, Any]] = {"name": "recall_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {GOAL: "1 for the right digit"}
    theory: ClassVar[Mapping[str, float]] = {"forgetful": 0.1}  # a guess among ten digits

    def __init__(self, *, lines: int = 8, facts: int = 4, values: int = DIGITS, **options: Any) -> None:
        self.lines = whole_number("lines", lines, least=1, most=1000)
        self.facts = whole_number("facts", facts, least=1, most=min(len(THINGS), lines))
        self.values = whole_number("values", values, least=2, most=DIGITS)
        super().__init__(**options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw the facts, their positions among filler lines and the question, and send the first line."""
        things = rng.choice(THINGS, size=self.facts, replace=False).tolist()
        self.truth = {thing: int(rng.integers(self.values)) for thing in things}
        self.script = rng.choice(FILLER, size=self.lines).tolist()
        places = sorted(rng.choice(self.lines, size=self.facts, replace=False).tolist())
        for place, (thing, value) in zip(places, self.truth.items(), strict=True):
            self.script[place] = f"{thing} {value}"
        self.question = things[rng.integers(self.facts)]
        self.lines_sent = 0
        self._next_line()

    def rules(self) -> str:
        """Return the rules for the players, as one paragraph of text."""
        return (
            f"You are told {self.lines} lines, one by one: answer each with PASS. Some are facts, a thing and a digit. "
            "In the end you are asked for one thing: answer with its digit."
        )

    def public(self) -> dict[str, Any]:
        """Return the number of lines still to come, as `lines_left`."""
        return {"lines_left": self.lines - self.lines_sent}

    def legal(self, seat: str) -> list[str]:
        """Return PASS, or the digits once the question has been asked."""
        return ["PASS"] if not self.is_asking else [str(value) for value in range(self.values)]

    @property
    def is_asking(self) -> bool:
        """True once the question has been asked."""
        return self.lines_sent > self.lines

    def play(self, seat: str, act: str) -> str:
        """Send the next line after PASS, or pay 1 for the right digit and end the match."""
        word = act.strip().upper()
        if word not in self.legal(seat):
            raise IllegalAct("answer with the digit" if self.is_asking else "write PASS")
        if not self.is_asking:
            self._next_line()
            return word
        right = word == str(self.truth[self.question])
        if right:
            self.pay(seat, GOAL, 1.0)
        self.end("right" if right else "wrong", f"{self.question} {self.truth[self.question]}.")
        return word

    def figures(self) -> dict[str, float | bool | str]:
        """Return `right`, whether the answer was right, and `distance`, the lines from the fact to the question."""
        place = next(i for i, line in enumerate(self.script) if line.split()[0] == self.question)
        return {"right": self.ended == "right", "distance": self.lines - place}

    def _next_line(self) -> None:
        line = self.script[self.lines_sent] if self.lines_sent < self.lines else f"ask {self.question}"
        self.lines_sent += 1
        self.tell(line)


class _Oracle:
    """Scripted player that remembers all facts and answers correctly."""

    def __init__(self, game: Recall, seed: int) -> None:
        self.known: dict[str, str] = {}

    def __call__(self, view: View) -> str:
        word, _, value = view.messages[-1].text.rpartition(" ") if view.messages else ("", "", "")
        if word == "ask":
            return self.known.get(value, "0")
        if word:
            self.known[word] = value
        return "PASS"

    def summary(self, view: View) -> str:
        """Return all facts so far as one text, for players with a limited context."""
        return " ".join(f"{thing} {value}" for thing, value in self.known.items())


Recall.players = {"oracle": _Oracle}
