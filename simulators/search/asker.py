"""Seat of a simulated person who words the solver's question, and explains it if the solver asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from simulators.base import Script, Simulator
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
    """The asker's first text, which is the question as the solver knows it; "" until then."""
    due: bool = True
    """Whether the asker moves next."""
    turns: int = 0
    """Number of the asker's texts."""
    has_left: bool = False
    """Whether the asker has said goodbye."""

    def facts(self) -> dict[str, Any]:
        """Return the asker's private facts: `question`, and `template`, the script's text ("" out of turn)."""
        return {"question": self.question.text, "template": self.question.text if self.due else ""}

    def check(self, text: str) -> Faults:
        """Return the faults of the asker's text.

        `wrong` lists names of the library that the question does not contain, or the text if it is another question in
        standard words. `withheld` lists names and relations of the question that the first text lacks.
        """
        named, names = set(self.library.find_titles(text)), set(self.library.find_titles(self.question.text))
        other = read_question(text)
        wrong = sorted(named - names)
        if not wrong and other and self.question.program and other != self.question.program:
            wrong = [text]
        nouns = [noun for noun in NOUNS if noun in self.question.text and noun not in text.lower()]
        return Faults(wrong, (), [] if self.first_words else [*sorted(names - named), *nouns])


def with_asker(player: Callable[[Any, int], Script]) -> Callable[[Any, int], Script]:
    """Extend a player factory to the asker's seat, at which its players say the script's text."""

    def make_player(game: Simulator, seed: int) -> Script:
        play = player(game, seed)
        return lambda view: str(view.private["template"]) if view.seat == ASKER else play(view)

    return make_player


def with_askers(players: Mapping[str, Callable[[Any, int], Script]]) -> dict[str, Callable[[Any, int], Script]]:
    """Extend each player factory by `with_asker`."""
    return {name: with_asker(player) for name, player in players.items()}
