"""Branches of matches: pairs of replies from the same state, and turns that branches share."""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from arena.credit.batch import Floats, Ints, TurnBatch
from arena.records import Trajectory, find_reply
from games.contracts import MAX_TURNS, MatchId


class Pair(NamedTuple):
    """Two replies of one seat to the same messages: in a match, and in a branch that continues it differently.

    `first` and `second` are the trajectories' indices, `place` is the position of the turn in both of them.
    """

    first: int
    second: int
    place: int


def find_pairs(trajectories: Sequence[Trajectory]) -> Iterator[Pair]:
    """Yield pairs of turns that start from the same state with different replies: a branch and its parent match.

    Skips branches whose parent is absent, and replies with equal token ids. A turn is in at most one pair, the first
    found: branches of one match leave it at different turns, but a branch of a branch may start at the same turn.
    """
    paired = set[tuple[int, int]]()
    indices = {(t.match, t.seat): i for i, t in enumerate(trajectories)}
    for second, branch in enumerate(trajectories):
        turn = branch.parent_turn
        first = indices.get((branch.parent, branch.seat))
        places = [k for k, branch_turn in enumerate(branch.turns) if branch_turn.index == turn]
        if first is None or not places or _get_reply_ids(trajectories[first], turn) == _get_reply_ids(branch, turn):
            continue
        if paired.isdisjoint(both := {(first, turn), (second, turn)}):
            paired |= both
            yield Pair(first, second, places[0])


def find_first_difference(one: MatchId, other: MatchId) -> int:
    """Return the index of the first turn, counted over all seats, that two matches do not share.

    Returns 0 if they share no ancestor, and MAX_TURNS, which exceeds every index, if they are the same match.
    """
    lineages = one.lineage(), other.lineage()
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(*lineages, strict=False))))
    if not shared:
        return 0
    return min([line[shared].turn for line in lineages if len(line) > shared], default=MAX_TURNS)


def number_copies(batch: TurnBatch) -> Ints:
    """Return a number per turn, [T], equal for the copies of one turn in a match and its branches."""
    lineages = [MatchId.parse(t.match).lineage() for t in batch.trajectories]

    def find_sampler(line: Sequence[MatchId], turn: int) -> str:
        """Return the id of the match in this lineage that sampled the turn; later ones repeat it."""
        return str(next(match for match in reversed(line) if match.turn <= turn))

    owners = batch.owner.tolist()
    seats = [t.seat for t in batch.trajectories]
    turns = zip(owners, batch.turns, strict=True)
    return batch.number_labels([(seats[m], turn.index, find_sampler(lineages[m], turn.index)) for m, turn in turns])


def average_over_copies(batch: TurnBatch, tokens: Floats) -> Floats:
    """Average each token's value over the copies of the token in a match and its branches ([N] to [N])."""
    first = np.concatenate([[0], np.cumsum(batch.turn_tokens)])
    order = np.argsort(batch.token_turns, kind="stable")
    place = np.empty(len(tokens), np.int64)
    place[order] = np.arange(len(tokens)) - first[batch.token_turns[order]]
    copy = number_copies(batch)[batch.token_turns]
    numbers = np.unique(copy * (int(place.max(initial=0)) + 1) + place, return_inverse=True)[1]
    return np.asarray((np.bincount(numbers, tokens) / np.bincount(numbers))[numbers])


def _get_reply_ids(trajectory: Trajectory, turn: int) -> list[int]:
    stream, begin, end = find_reply(trajectory.streams, turn)
    return stream.ids[begin:end]
