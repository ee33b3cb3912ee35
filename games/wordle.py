"""Wordle: find a hidden five-letter word by guesses that are marked letter by letter (Wardle 2021)."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np

from games.base import IllegalAct, choice
from games.families.solitaire import Solitaire, Split, select_split

LETTERS = 5
ALL_RIGHT = "G" * LETTERS


@functools.cache
def load_words() -> tuple[str, ...]:
    """Return the five-letter words of games/data/wordle.txt, in the file's order. Cached."""
    return tuple(files("games").joinpath("data/wordle.txt").read_text(encoding="ascii").split())


def feedback(guess: str, word: str) -> str:
    """Return the marks of a guess, one per letter: G right, Y elsewhere in `word`, - not (or not so often) in it.

    Each letter of the word accounts for one mark: G first, then Y from the left.
    """
    spare = Counter(hidden for letter, hidden in zip(guess, word, strict=True) if letter != hidden)
    marks = []
    for letter, hidden in zip(guess, word, strict=True):
        if letter != hidden and spare[letter]:
            spare[letter] -= 1
            marks.append("Y")
        else:
            marks.append("G" if letter == hidden else "-")
    return "".join(marks)


def is_word(text: str) -> bool:
    """Return True if the text is five lower-case letters from a to z. Any such text may be guessed."""
    return len(text) == LETTERS and text.isascii() and text.isalpha() and text == text.lower()


class Wordle(Solitaire):
    """Wordle. Act: GUESS and any five letters; `legal` lists the game's words.

    Reward "steps" pays as in LMRL-Gym, -1 per guess and 0 for the right one. Options besides Solitaire's: max_turns,
    the number of guesses; words, different words of five lower-case letters (None: common ones); split, the words that
    may be hidden: "all", every fourth ("test") or the others ("train"). reset(options={"word": one of the words}) hides
    that word.
    """

    name = "wordle"
    seats: tuple[str, ...] = ("guesser",)
    metadata: ClassVar[dict[str, Any]] = {"name": "wordle_v0", "render_modes": ["ansi"]}
    # All 3^5 marks except the five with four G and one Y, which leave no other place for the last letter.
    theory: ClassVar[Mapping[str, float]] = {"feedbacks": 238.0}

    def __init__(
        self,
        *,
        max_turns: int = 6,
        words: Sequence[str] | None = None,
        split: Split = "all",
        **options: Any,
    ) -> None:
        if words is not None and not (words and len(set(words)) == len(words) and all(map(is_word, words))):
            raise ValueError("words must be a list of different words of five letters from a to z")
        self.words = load_words() if words is None else tuple(words)
        self.split = choice("split", split, "all", "train", "test")
        if self.split == "train" and len(self.words) == 1:
            raise ValueError("split must not be train with one word, which is for test")
        super().__init__(max_turns=max_turns, **options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Hide a word of the split, drawn uniformly, or the option `word`. Raises ValueError for an unknown word."""
        words = select_split(self.split, self.words)
        self.word = str(options.get("word", words[rng.integers(len(words))]))
        if self.word not in self.words:
            raise ValueError(f"word must be one of the game's words, not {self.word!r}")
        self.marked: list[tuple[str, str]] = []

    def rules(self) -> str:
        """Return the rules for the players, as one paragraph of text."""
        return (
            f"Find the hidden five-letter word. Write GUESS and a word; each letter is marked: G right, Y elsewhere "
            f"in the word, - not in it (or not so often). {self.max_turns} guesses in all."
        )

    def public(self) -> dict[str, Any]:
        """Return the `guesses`, each with its marks, and `turns_left`."""
        return {"guesses": [f"{guess} {marks}" for guess, marks in self.marked], "turns_left": self.turns_left}

    def legal(self, seat: str) -> list[str]:
        """Return GUESS for each of the game's words. Others may be guessed, too."""
        return [f"GUESS {word}" for word in self.words]

    def play(self, seat: str, act: str) -> str:
        """Mark a guess, tell the seat its marks, pay, and return the act's text."""
        verb, _, guess = " ".join(act.lower().split()).partition(" ")
        if verb != "guess" or not is_word(guess):
            raise IllegalAct("write GUESS and a word of five letters")
        marks = feedback(guess, self.word)
        self.marked.append((guess, marks))
        self.tell(f"{guess}: {marks}")
        self.score(seat, marks == ALL_RIGHT, "That is the word.", f"No guesses are left; the word was {self.word}.")
        return f"GUESS {guess}"

    def figures(self) -> dict[str, float | bool | str]:
        """Return `solved`, `best_guess` (most right letters in a guess) and `answer`, the hidden word."""
        best = max((marks.count("G") for _, marks in self.marked), default=0)
        return {**super().figures(), "best_guess": best, "answer": self.word}
