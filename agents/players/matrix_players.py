"""Strategies of the iterated prisoner's dilemma (Axelrod 1984) for all repeated two-by-two games.

The first legal act is to cooperate, the second to defect. A rule takes the seat's own and the other seat's history,
with True for each round in which the seat cooperated, and a random generator. It returns True to cooperate.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from agents.player import ScriptedPolicy
from games.contracts import View

Rule = Callable[[Sequence[bool], Sequence[bool], random.Random], bool]

GENEROSITY = 1 / 3  # Nowak and Sigmund (1992), for the payoffs 5, 3, 1, 0


class MatrixPlayer:
    """Player of repeated two-by-two games that follows a rule; a random rule uses the player's own generator."""

    def __init__(self, rule: Rule, seed: int = 0) -> None:
        self.rule, self.rng = rule, random.Random(seed)

    def act(self, view: View) -> str:
        """Return the first legal act if the rule cooperates, else the second."""
        assert view.legal is not None
        cooperate, defect = view.legal
        index = ("row", "column").index(view.seat)
        own, other = ([choices[i] == cooperate for choices in view.public["history"]] for i in (index, 1 - index))
        return cooperate if self.rule(own, other, self.rng) else defect


def always_cooperate(own: Sequence[bool], other: Sequence[bool], rng: random.Random) -> bool:
    """Cooperate in every round."""
    return True


def always_defect(own: Sequence[bool], other: Sequence[bool], rng: random.Random) -> bool:
    """Defect in every round."""
    return False


def alternator(own: Sequence[bool], other: Sequence[bool], rng: random.Random) -> bool:
    """Cooperate in the first round, defect in the second, and so on."""
    return len(own) % 2 == 0


def tit_for_tat(own: Sequence[bool], other: Sequence[bool], rng: random.Random) -> bool:
    """Cooperate in the first round, then copy the other's last act."""
    return not other or other[-1]


def tit_for_two_tats(own: Sequence[bool], other: Sequence[bool], rng: random.Random) -> bool:
    """Defect only after two defections in a row."""
    return len(other) < 2 or other[-1] or other[-2]


def generous_tit_for_tat(own: Sequence[bool], other: Sequence[bool], rng: random.Random) -> bool:
    """Play tit for tat, but forgive a defection with probability 1/3."""
    return tit_for_tat(own, other, rng) or rng.random() < GENEROSITY


def grim(own: Sequence[bool], other: Sequence[bool], rng: random.Random) -> bool:
    """Cooperate until the other defects once, then never again."""
    return all(other)


def pavlov(own: Sequence[bool], other: Sequence[bool], rng: random.Random) -> bool:
    """Win-stay, lose-shift: keep the act after the other cooperated, change it after a defection."""
    return not own or own[-1] == other[-1]


def mostly_cooperate(own: Sequence[bool], other: Sequence[bool], rng: random.Random) -> bool:
    """Cooperate with probability .9."""
    return rng.random() < 0.9


RULES: tuple[Rule, ...] = (
    always_cooperate, always_defect, alternator, tit_for_tat, tit_for_two_tats, generous_tit_for_tat, grim, pavlov,
    mostly_cooperate,
)  # fmt: skip


SCRIPTED: dict[str, Callable[[int], ScriptedPolicy]] = {rule.__name__: partial(MatrixPlayer, rule) for rule in RULES}

GAMES = dict.fromkeys(SCRIPTED, ("prisoners_dilemma", "stag_hunt", "battle_of_the_sexes", "chicken"))
