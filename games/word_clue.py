"""WordClue: the giver knows the target words on the board and may say one word and a number per round."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from games.base import IllegalAct, TextGame, number, whole_number

GIVER = "giver"
CLUE = re.compile(r"\s*CLUE\s+([a-z]{2,20})\s+(\d{1,3})\s*", re.ASCII | re.IGNORECASE)
GUESS = re.compile(r"\s*(?:GUESS\s+([a-z]+)|(STOP))\s*", re.ASCII | re.IGNORECASE)


@functools.cache
def load_nouns() -> tuple[str, ...]:
    """Return the English nouns that boards are drawn from, in alphabetical order. Cached."""
    return tuple((Path(__file__).parent / "data" / "words.txt").read_text(encoding="utf-8").split())


class WordClue(TextGame):
    """Find target words by clues. Acts: the giver's CLUE word number; then the guessers' GUESS word or STOP in turn.

    STOP ends a guesser's round. Options: players 2 to 5, one giver and the guessers; words 2 to 25 on the board;
    targets 1 to words - 1; rounds >= 1, clues in a match; cost >= 0 of a wrong guess. Talk is off by default. Clues are
    not checked to be English. reset(options={"board": [words], "targets": [words]}) fixes either or both.
    """

    name, cooperative = "word_clue", True
    seats: tuple[str, ...] = (GIVER, "guesser_1")
    metadata: ClassVar[dict[str, Any]] = {"name": "word_clue_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {"found": "1 to all per target", "missed": "-cost to all for another word"}
    # At the default options. Without any information the first guess pays 1/3 - 0.5 * 2/3 = 0; after a miss the next
    # round's pays 3/8 - 0.5 * 5/8 = 1/16, after a hit every other guess loses: 2/3 of 1/16 in all.
    theory: ClassVar[Mapping[str, float]] = {"best": 3.0, "no_information": 1 / 24}

    def __init__(
        self, *, players: int = 2, words: int = 9, targets: int = 3, rounds: int = 2, cost: float = 0.5, **options: Any
    ) -> None:
        guessers = whole_number("players", players, least=2, most=5) - 1
        self.seats = (GIVER, *(f"guesser_{n + 1}" for n in range(guessers)))
        self.size = whole_number("words", words, least=2, most=25)
        self.target_count = whole_number("targets", targets, least=1, most=self.size - 1)
        self.rounds, self.cost = whole_number("rounds", rounds, least=1), number("cost", cost)
        self.stakes = self.cost * min(self.rounds, self.size - self.target_count)
        super().__init__(**{"talk": False, **options})

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw the board from all nouns and the targets from the board, unless the options set them."""
        board = list(options.get("board") or rng.choice(load_nouns(), self.size, replace=False).tolist())
        if not len(board) == len(set(board)) == self.size or not all(re.fullmatch("[a-z]+", str(w)) for w in board):
            raise ValueError(f"board must be {self.size} different words of letters a-z, not {board!r}")
        targets = list(options.get("targets") or rng.choice(board, self.target_count, replace=False).tolist())
        if not len(targets) == len(set(targets)) == self.target_count or not set(targets) <= set(board):
            raise ValueError(f"targets must be {self.target_count} different words of the board, not {targets!r}")
        self.board, self.targets = board, [word for word in board if word in targets]
        self.found: list[str] = []
        self.missed: list[str] = []
        self.round, self.clue, self.guesses_left = 1, "", 0
        self.guessing: list[str] = []  # seats that may still guess in this round, the next one first

    def rules(self) -> str:
        """Return the rules as one paragraph: the clue, the guesses, the payoffs."""
        guessers = "guesser then does" if len(self.seats) == 2 else "guessers then in turn do"
        return (
            f"A team game: {self.target_count} of the {self.size} English nouns on the board are targets, known to the "
            f"giver alone. In each of {self.rounds} rounds the giver does CLUE word number: one English word (letters "
            "a-z) that is, contains and is part of no board word, and how many guesses may follow. "
            f"The {guessers} GUESS word (from the board) or STOP. All score 1 per target found; another word costs all "
            f"{self.cost:g} and ends the round."
        )

    def public(self) -> dict[str, Any]:
        """Return the words not yet guessed, those found and missed, the clue, and the guesses and rounds left."""
        open_words = [word for word in self.board if word not in self.found and word not in self.missed]
        turn = {"clue": self.clue, "guesses_left": self.guesses_left, "rounds_left": self.rounds - self.round + 1}
        return {"board": open_words, "found": [*self.found], "missed": [*self.missed], **turn}

    def private(self, seat: str) -> dict[str, Any]:
        """Return the remaining `targets` to the giver, and {} to guessers."""
        return {"targets": [word for word in self.targets if word not in self.found]} if seat == GIVER else {}

    def legal(self, seat: str) -> list[str] | None:
        """Return GUESS for every word not yet guessed, and STOP; None for the giver, whose clues cannot be listed."""
        return None if seat == GIVER else [*(f"GUESS {word}" for word in self.public()["board"]), "STOP"]

    def play(self, seat: str, act: str) -> str:
        """Play an act and return its text. A clue opens a round; a wrong or last guess or the last STOP closes it."""
        if seat == GIVER:
            return self._give_clue(act)
        if not (match := GUESS.fullmatch(act)):
            raise IllegalAct("write GUESS and one word of the board, or STOP")
        if match[2]:
            self.guessing.pop(0)
            if not self.guessing:
                self._close_round()
            return "STOP"
        word = match[1].lower()
        if word not in self.public()["board"]:
            raise IllegalAct("the word must be on the board and not yet guessed")
        self._guess(word)
        return f"GUESS {word}"

    def next_seat(self, seat: str) -> str:
        """Return the next guesser while a round is open, else the giver."""
        return self.guessing[0] if self.guessing else GIVER

    def figures(self) -> dict[str, float | bool | str]:
        """Return targets `found`, wrong guesses, rounds started, the `share` of targets found, and the targets."""
        counts = {"found": len(self.found), "missed": len(self.missed), "rounds": self.round}
        return {**counts, "share": len(self.found) / self.target_count, "answer": ", ".join(self.targets)}

    def _give_clue(self, act: str) -> str:
        if not (match := CLUE.fullmatch(act)):
            raise IllegalAct("write CLUE, one word of 2 to 20 letters and a number")
        clue, guesses, remaining = match[1].lower(), int(match[2]), self.target_count - len(self.found)
        if not 1 <= guesses <= remaining:
            raise IllegalAct(f"the number must be from 1 to {remaining}, the targets left")
        if near := next((word for word in self.board if word in clue or clue in word), None):
            raise IllegalAct(f"the clue may not be, contain or be part of a board word, such as {near}")
        self.clue, self.guesses_left = f"{clue} {guesses}", guesses
        first = (self.round - 1) % (len(self.seats) - 1)  # guessers take turns in beginning a round
        self.guessing = [*self.seats[1 + first :], *self.seats[1 : 1 + first]]
        return f"CLUE {clue} {guesses}"

    def _guess(self, word: str) -> None:
        hit = word in self.targets
        (self.found if hit else self.missed).append(word)
        self.guesses_left -= 1
        for seat in self.seats:
            self.pay(seat, "found" if hit else "missed", 1.0 if hit else -self.cost)
        self.tell(f"{word} is a target." if hit else f"{word} is not a target: the round is over.")
        if len(self.found) == self.target_count:
            self.end("found", "All targets are found.")
        elif hit and self.guesses_left:
            self.guessing.append(self.guessing.pop(0))
        else:
            self._close_round()

    def _close_round(self) -> None:
        self.guessing, self.clue, self.guesses_left = [], "", 0
        if self.round == self.rounds:
            self.end("rounds", f"The rounds are over: {len(self.found)} of {self.target_count} targets are found.")
        else:
            self.round += 1
