"""Where matches and their branches part: two answers of one seat to the same words."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from arena.records import Trajectory, place_of

_ID = re.compile(r"(.+)-b(\d+)(-r\d+)?")


def parting(match: str) -> tuple[str, int] | None:
    """From a match's id: the match that it is a branch of, and the first turn that is new; None if it is no branch."""
    parsed = _ID.fullmatch(match)
    return (parsed[1], int(parsed[2])) if parsed else None


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

    A turn is in one pair at most, because the branches of a match part from it at different turns.
    """
    where = {(t.match, t.seat): i for i, t in enumerate(trajectories)}
    for second, branch in enumerate(trajectories):
        match, turn = parting(branch.match) or ("", -1)
        first = where.get((match, branch.seat))
        places = [k for k, own in enumerate(branch.turns) if own.index == turn]
        if first is not None and places and _said(trajectories[first], turn) != _said(branch, turn):
            yield Pair(first, second, places[0])


def _said(trajectory: Trajectory, turn: int) -> list[int]:
    """The ids sampled in a turn."""
    stream, begin, end = place_of(trajectory.streams, turn)
    return stream.ids[begin:end]
