"""Base class of yes/no question games about a hidden thing: `twenty_questions` and `guess_city`.

The game's book defines all questions. Things with equal facts count as one thing, and any of its names wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from games.base import IllegalAct, choice, flag
from games.families.book import Book, Thing, fold
from games.families.solitaire import Solitaire, Split, select_split


class Questions(Solitaire):
    """Base class of yes/no question games. Acts: ASK question, GUESS name, or a plain question with a single reading.

    Questions are answered truthfully, by yes or no. A guess is a turn like a question. With reward "steps" this is
    LMRL-Gym's 20 questions: -1 per act, 0 for the right guess. Options besides Solitaire's: open_book, whether the book
    is a public fact; split, the things that may be hidden: "all", every fourth ("test") or the others ("train").
    reset(options={"thing": name}) hides that thing.
    """

    seats: tuple[str, ...] = ("guesser",)
    book: Book
    noun: str
    """Noun for a thing in the rules, such as city."""
    notes: str = ""
    """Additional sentences for the rules."""

    def __init__(
        self,
        *,
        max_turns: int = 20,
        open_book: bool = False,
        split: Split = "all",
        **options: Any,
    ) -> None:
        super().__init__(max_turns=max_turns, **options)
        self.open_book = flag("open_book", open_book)
        self.split = choice("split", split, "all", "train", "test")

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Hide a thing of the split, drawn uniformly, or the one named in the options. Raises ValueError if unknown."""
        things = select_split(self.split, self.book.things)
        if "thing" in options:
            name = fold(str(options["thing"])).replace(" ", "")
            things = tuple(thing for thing in self.book.things if name in thing.spellings)
            if not things:
                raise ValueError(f"thing must be the name of a known {self.noun}, not {options['thing']!r}")
        # An index, so that a clone does not copy the book.
        self._hidden = int(self.book.things.index(things[rng.integers(len(things))]))
        self._answers: dict[str, str] = {}
        self._question_count = 0

    @property
    def hidden(self) -> Thing:
        """The thing to be guessed in this match."""
        return self.book.things[self._hidden]

    def rules(self) -> str:
        """Return the rules as one paragraph: the aim, all questions and the number of turns."""
        plain = [question for question in self.book.questions if " " not in question]
        values_by_attribute: dict[str, list[str]] = {}
        for attribute, _, value in (question.partition(" ") for question in self.book.questions):
            values_by_attribute.setdefault(attribute, []).extend([value] if value else [])
        lines = [f"ASK {attribute} {'/'.join(values)}" for attribute, values in values_by_attribute.items() if values]
        return (
            f"Find the hidden {self.noun} by yes/no questions. ASK {'/'.join(plain)}; {'; '.join(lines)}; "
            f"or GUESS and a name. {self.max_turns} turns in all, guesses included.{self.notes}"
        )

    def public(self) -> dict[str, Any]:
        """Return the answers so far by act (`answers`), `turns_left`, and `book`, every name's facts, if it is open."""
        facts = {"answers": dict(self._answers), "turns_left": self.turns_left}
        return facts | ({"book": self.book.contents()} if self.open_book else {})

    def legal(self, seat: str) -> list[str]:
        """Return acts that ask each question and guess each name. Other guesses are legal, too, but never win."""
        return list(self.book.acts)

    def play(self, seat: str, act: str) -> str:
        """Answer a question or a guess, pay, and return the parsed act. Raises IllegalAct for other texts."""
        reading = self.book.read(act)
        if not reading:
            raise IllegalAct("write ASK and one of the questions, or GUESS and a name")
        kind, _, subject = reading.partition(" ")
        is_solved = kind == "GUESS" and fold(subject).replace(" ", "") in self.hidden.spellings
        yes = is_solved or (kind == "ASK" and subject in self.hidden.facts)
        self._answers[reading] = "yes" if yes else "no"
        self._question_count += kind == "ASK"
        if not is_solved:
            self.tell(f"{reading}: {self._answers[reading]}")
        names = " or ".join(self.hidden.names)
        self.score(seat, is_solved, f"Yes, it is {names}.", f"No turns are left; it was {names}.")
        return reading

    def figures(self) -> dict[str, float | bool | str]:
        """Return `solved`, the numbers of `questions` and `guesses`, and `answer`, the hidden thing's first name."""
        counts = {"questions": self._question_count, "guesses": self.turns - self._question_count}
        return {**super().figures(), **counts, "answer": self.hidden.names[0]}
