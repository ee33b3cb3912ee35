"""Asker of a solver's question: a person who phrases the question, and explains it if the solver asks back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from simulators.base import Answer, Simulator
from simulators.played import Faults
from simulators.search.library import Library
from simulators.search.questions import Question, read_question
from simulators.search.relations import RELATIONS

ASKER = "asker"
NOUNS = tuple(relation.noun for relation in RELATIONS.values())


@dataclass
class Asker:
    """Seat of a person who asks the solver one question."""

    question: Question
    library: Library
    first_words: str = ""
    """The asker's first text, which is the question that the solver gets."""
    due: bool = True
    """True if it is the asker's turn."""
    turns: int = 0
    gone: bool = False

    def facts(self) -> dict[str, Any]:
        """Return the seat's facts: the question, and the script's text (`template`)."""
        return {"question": self.question.text, "template": self.question.text if self.due else ""}

    def check(self, text: str) -> Faults:
        """Return the faults of a text.

        Names of library pages that are not in the question are wrong, and so is another question in standard words. If
        the first text omits names or relations of the question, they are withheld.
        """
        said, names = set(self.library.find_titles(text)), set(self.library.find_titles(self.question.text))
        other = read_question(text)
        wrong = sorted(said - names)
        if not wrong and other and self.question.program and other != self.question.program:
            wrong = [text]
        nouns = [noun for noun in NOUNS if noun in self.question.text and noun not in text.lower()]
        return Faults(wrong, (), [] if self.first_words else [*sorted(names - said), *nouns])


def with_asker(player: Callable[[Any, int], Answer]) -> Callable[[Any, int], Answer]:
    """Return the player extended to the asker's seat, where it says the scripted text."""

    def make_player(game: Simulator, seed: int) -> Answer:
        play = player(game, seed)
        return lambda view: str(view.private["template"]) if view.seat == ASKER else play(view)

    return make_player


def with_askers(players: Mapping[str, Callable[[Any, int], Answer]]) -> dict[str, Callable[[Any, int], Answer]]:
    """Return the players, each extended to the asker's seat by `with_asker`."""
    return {name: with_asker(player) for name, player in players.items()}
