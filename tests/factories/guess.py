"""A game of one answer: state the secret number. In `JudgedGuess` a second seat then says yes or no."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from games.base import IllegalAct, TextGame
from games.contracts import View

GUESS = f"{Path(__file__).resolve()}:Guess"
JUDGED = f"{Path(__file__).resolve()}:JudgedGuess"
CHANCE = 0.3
"""Probability with which `third` is right."""


class Guess(TextGame):
    """One seat says a number. Success is the right one, which pays 2."""

    name = "guess"
    seats: tuple[str, ...] = ("solver",)
    metadata: ClassVar[dict[str, Any]] = {"name": "guess_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {"right": "2 for the right number"}

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        self.number, self.said = int(rng.integers(10)), -1

    def rules(self) -> str:
        return "Say the number."

    def public(self) -> dict[str, Any]:
        return {"number": self.number}

    def play(self, seat: str, act: str) -> str:
        if not act.strip().isdigit():
            raise IllegalAct("say a number")
        self.said = int(act)
        self.pay("solver", "right", 2.0 * (self.said == self.number))
        self.done()
        return act

    def done(self) -> None:
        self.end("said", "That was it.")

    def figures(self) -> dict[str, float | bool | str]:
        return {"success": self.said == self.number}


class JudgedGuess(Guess):
    """After the number the judge says yes or no, which changes nothing."""

    name, seats, judge_seat = "judged_guess", ("solver", "judge"), "judge"
    metadata: ClassVar[dict[str, Any]] = {"name": "judged_guess_v0", "render_modes": ["ansi"]}

    def play(self, seat: str, act: str) -> str:
        if seat == "solver":
            return super().play(seat, act)
        self.end("judged", "That was it.")
        return act

    def next_seat(self, seat: str) -> str:
        return "judge" if seat == "solver" else "solver"

    def done(self) -> None:
        pass


def third(game: Guess, seed: int) -> Callable[[View], str]:
    """Return a player that is right with probability `CHANCE`, else names one of a million wrong numbers.

    So no two wrong answers agree.
    """
    rng = np.random.default_rng(seed)
    is_right, wrong = rng.random() < CHANCE, 10 + int(rng.integers(10**6))
    return lambda view: str(game.number if is_right else wrong)


def sure(game: Guess, seed: int) -> Callable[[View], str]:
    """Return a player that is always right, with leading zeros by the seed, and talk."""
    return lambda view: "0" * (seed % 3) + f"{game.number} | surely"


Guess.players = {"third": third, "sure": sure}
