"""Pairs of answers where a match and its branch part: two answers of one seat to the same words."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from arena.records import Trajectory, place_of


class Pair(NamedTuple):
    """Two answers of one seat to the same words; each line of play was finished by itself."""

    first: int
    """Which of the trajectories gave the one answer,"""
    second: int
    """and which the other: the branch."""
    place: int
    """Number of the turn within both trajectories."""


def pairs(trajectories: Sequence[Trajectory]) -> Iterator[Pair]:
    """The turns at which branches part from their matches, where both are there and the answers are not identical.

    A turn is in one pair at most, the first: the branches of a match part from it at different turns, but a branch of
    a branch may part where that one did.
    """
    taken = set[tuple[int, int]]()
    where = {(t.match, t.seat): i for i, t in enumerate(trajectories)}
    for second, branch in enumerate(trajectories):
        turn = branch.parent_turn
        first = where.get((branch.parent, branch.seat))
        places = [k for k, own in enumerate(branch.turns) if own.index == turn]
        if first is None or not places or _said(trajectories[first], turn) == _said(branch, turn):
            continue
        if taken.isdisjoint(both := {(first, turn), (second, turn)}):
            taken |= both
            yield Pair(first, second, places[0])


def _said(trajectory: Trajectory, turn: int) -> list[int]:
    """The ids sampled in a turn."""
    stream, begin, end = place_of(trajectory.streams, turn)
    return stream.ids[begin:end]
