"""Text features without a model: hashed words of a turn's observations and reply.

Each word adds +1 or -1 to one of a fixed number of features; its hash selects both (Weinberger et al. 2009). No
vocabulary is stored, and collisions add no bias.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from arena.credit.batch import Floats, TurnBatch
from arena.records import Trajectory, Turn

Hashes = NDArray[np.uint64]
_WORD = re.compile(r"\w+|[^\w\s]")


def hash_states(trajectories: Sequence[Trajectory], features: int, grams: int = 1) -> Floats:
    """Return hashed text features of the state before each turn, [T, features].

    They are the sum of three vectors of length 1 (0 if empty): game, role, policy and turn number; messages that the
    seat has not read before; earlier messages and the seat's own replies. Texts are hashed as n-grams of up to `grams`
    words.
    """
    batch = TurnBatch(trajectories)
    messages, replies = [_hash_messages(turn) for turn in batch.turns], [_hash_words(turn.raw) for turn in batch.turns]
    facts = [_hash_facts(t, k) for t in trajectories for k in range(len(t.turns))]
    past = _count_features(messages, "heard", features, grams) + _count_features(replies, "own", features, grams)
    new = _count_features(messages, "new", features, grams)
    return (
        _normalise(_count_features(facts, "fact", features)) + _normalise(new) + _normalise(_sum_earlier(batch, past))
    )


def hash_prompts(trajectories: Sequence[Trajectory], features: int, grams: int = 1) -> Floats:
    """Return hashed features of each turn's prompt tokens, [T, features].

    They are the sum of two vectors of length 1: n-grams of up to `grams` tokens, and the prompt as a whole. Equal
    prompts are equal states, whatever came before and however many turns remain. Raises KeyError for a turn without
    tokens.
    """
    trajectory_turns = [(t.contexts(), t.turns) for t in trajectories]
    rows = [np.array(contexts[turn.index].ids, np.uint64) for contexts, turns in trajectory_turns for turn in turns]
    prompts = [np.array([_hash(row.tobytes().hex())], np.uint64) for row in rows]
    return _normalise(_count_features(rows, "token", features, grams)) + _normalise(
        _count_features(prompts, "prompt", features)
    )


def hash_replies(trajectories: Sequence[Trajectory], features: int, grams: int = 1) -> Floats:
    """Return hashed text features of each turn's raw reply, [T, features], rows of length 1."""
    return hash_texts([turn.raw for t in trajectories for turn in t.turns], features, grams)


def hash_texts(texts: Sequence[str], features: int, grams: int = 1) -> Floats:
    """Return hashed features of texts, [texts, features]: n-grams of up to `grams` words, rows of length 1."""
    return _normalise(_count_features([_hash_words(text) for text in texts], "said", features, grams))


def _hash_facts(trajectory: Trajectory, place: int) -> Hashes:
    agent = f"{trajectory.game} {trajectory.role} {trajectory.policy}"
    facts = (f"game {trajectory.game}", f"role {trajectory.role}", f"agent {agent}", f"turn {place} of {agent}")
    return np.array([_hash(fact) for fact in facts], np.uint64)


def _hash_messages(turn: Turn) -> Hashes:
    messages = [_hash_words(f"{m.sender}: {m.text}") for m in turn.messages]
    return np.concatenate(messages) if messages else np.zeros(0, np.uint64)


@lru_cache(maxsize=1 << 16)
def _hash_words(text: str) -> Hashes:
    """Return the hashes of a text's lower-cased words and punctuation, in order."""
    return np.array([_hash(word) for word in _WORD.findall(text.lower())], np.uint64)


@lru_cache(maxsize=1 << 16)
def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(errors="replace"), digest_size=8).digest(), "big")


def _count_features(rows: Sequence[Hashes], kind: str, features: int, grams: int = 1) -> Floats:
    """Return each row's signed feature counts, [rows, features]: n-grams of up to `grams` words, hashed with `kind`."""
    owner = np.repeat(np.arange(len(rows)), np.array([len(row) for row in rows], np.int64))
    run = words = np.concatenate([np.zeros(0, np.uint64), *rows])
    sums = np.zeros(len(rows) * features)
    for size in range(1, grams + 1):
        if size > 1:  # mix the shorter n-gram with the next word
            run = _mix(run[:-1]) ^ words[size - 1 :]
        within = owner[: len(run)] == owner[size - 1 :]
        number = _mix(run[within] ^ np.uint64(_hash(f"{size} {kind}")))
        feature = (number >> np.uint64(1)) % np.uint64(features)
        sign = 2.0 * (number & np.uint64(1)).astype(np.float64) - 1.0
        sums += np.bincount(owner[: len(run)][within] * features + feature.astype(np.int64), sign, len(sums))
    return sums.reshape(len(rows), features)


def _mix(numbers: Hashes) -> Hashes:
    """Scatter hashes over all 64 bits with the finaliser of SplitMix64 (Steele et al. 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _sum_earlier(batch: TurnBatch, values: Floats) -> Floats:
    """Return the sum of values over the earlier turns of the same trajectory, for every turn, [T, …]."""
    sums = np.cumsum(values, 0) - values
    return np.asarray(sums - sums[batch.starts[batch.owner]])


def _normalise(values: Floats) -> Floats:
    """Scale rows to length 1; zero rows stay 0."""
    length = np.linalg.norm(values, axis=1, keepdims=True)
    return np.asarray(values / np.where(length > 0, length, 1.0))
