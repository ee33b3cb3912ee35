"""Text as numbers without a model: hashed words of what a turn's mover saw, and of what it said.

Every word adds +1 or -1 to one of a fixed number of features, both told by its hash (Weinberger et al. 2009), so
no vocabulary has to be kept and words that share a feature disturb each other without bias.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from arena.credit.batch import Floats, Ints, TurnBatch
from arena.records import Trajectory, Turn

_WORD = re.compile(r"\w+|[^\w\s]")


def states(trajectories: Sequence[Trajectory], features: int, grams: int = 1) -> Floats:
    """[T, features] what each turn's mover knew: who and where it is, the new messages, and all before them.

    Three parts in the same features, each of length 1: game, role, policy and the turn's number; the words new to the
    mover; the words of its earlier messages and of its own earlier replies.
    """
    batch = TurnBatch(trajectories)
    facts = [_facts(t, k) for t in trajectories for k in range(len(t.turns))]
    new = hashed([_heard(turn, "new", grams) for turn in batch.turns], features)
    old = hashed([[*_heard(turn, "old", grams), *_said(turn, "own", grams)] for turn in batch.turns], features)
    return _unit(hashed(facts, features)) + _unit(new) + _unit(_before(batch, old))


def replies(trajectories: Sequence[Trajectory], features: int, grams: int = 2) -> Floats:
    """[T, features] what was written in each turn, of length 1."""
    return texts([turn.raw for t in trajectories for turn in t.turns], features, grams)


def texts(written: Sequence[str], features: int, grams: int = 2) -> Floats:
    """[len, features] texts by their n-grams of up to `grams` words, of length 1."""
    return _unit(hashed([_grams(text, "said", grams) for text in written], features))


def hashed(terms: Iterable[Iterable[str]], features: int) -> Floats:
    """[rows, features] the sum of each row's terms, every term one feature and a sign."""
    rows = [[_place(term, features) for term in row] for row in terms]
    sizes = [len(row) for row in rows]
    places = np.array([place for row in rows for place in row], np.int64)
    at: Ints = np.repeat(np.arange(len(rows)), sizes) * features + np.abs(places) - 1
    return np.bincount(at, np.sign(places), len(rows) * features).reshape(len(rows), features).astype(np.float64)


def _facts(trajectory: Trajectory, place: int) -> list[str]:
    agent = f"{trajectory.game} {trajectory.role} {trajectory.policy}"
    return [f"game {trajectory.game}", f"role {trajectory.role}", f"agent {agent}", f"turn {place} of {agent}"]


def _heard(turn: Turn, kind: str, grams: int) -> list[str]:
    return [g for m in turn.messages for g in _grams(f"{m['sender']}: {m['text']}", kind, grams)]


def _said(turn: Turn, kind: str, grams: int) -> list[str]:
    return list(_grams(turn.raw, kind, grams))


@lru_cache(maxsize=1 << 14)
def _grams(text: str, kind: str, grams: int) -> tuple[str, ...]:
    words = _WORD.findall(text.lower())
    runs = (words[i : i + n] for n in range(1, grams + 1) for i in range(len(words) - n + 1))
    return tuple(f"{kind} {' '.join(run)}" for run in runs)


@lru_cache(maxsize=1 << 16)
def _place(term: str, features: int) -> int:
    """The term's feature, counted from 1, with its sign."""
    number = int.from_bytes(blake2b(term.encode(errors="replace"), digest_size=8).digest(), "big")
    return (1 + (number >> 1) % features) * (1 if number & 1 else -1)


def _before(batch: TurnBatch, values: Floats) -> Floats:
    """[T, …] the sum over the earlier turns of the same trajectory."""
    sums = np.cumsum(values, 0) - values
    return np.asarray(sums - sums[batch.starts[batch.owner]])


def _unit(values: Floats) -> Floats:
    """Rows of length 1; empty ones stay 0."""
    length = np.linalg.norm(values, axis=1, keepdims=True)
    return np.asarray(values / np.where(length > 0, length, 1.0))
