"""Aggregates: each token's weight in the loss of an optimiser step.

An aggregate is `aggregate(turns, streams, learned, *, settings) -> [N] float64` over all N sampled tokens of the step,
given each token's turn and stream number and whether it is in the loss. Tokens outside the loss get weight 0.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from arena.parts.part_config import Kind
from arena.parts.spec import Positive

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Weights = NDArray[np.float64]


def token_mean(turns: Ints, streams: Ints, learned: Bools) -> Weights:
    """Weight every token equally, 1 / tokens: DAPO's token-level loss (Yu et al. 2025).

    Tokens are those in the loss (`learned`); the others get 0. Over the whole optimiser step, as TRL's `dapo`; its
    `bnpo` counts each micro-batch's own tokens. Biased if policies control the length of their replies; the bias
    shrinks with the step's size (docs/gradients.md).
    """
    return learned / np.float64(max(1, learned.sum()))


def turn_mean(turns: Ints, streams: Ints, learned: Bools) -> Weights:
    """Weight every turn equally: a token in the loss gets 1 / (turns · tokens of its turn), the others 0."""
    return _mean_of_means(turns, learned)


def stream_turn_mean(turns: Ints, streams: Ints, learned: Bools) -> Weights:
    """Weight every stream equally, and in it every turn: tokens get 1 / (streams · its turns · the turn's tokens).

    EPO (ACL 2025) averages so: over a dialogue's turns, then over dialogues.
    """
    learned_turns = np.unique(np.stack([streams, turns])[:, learned], axis=1)
    counts = np.bincount(learned_turns[0], minlength=int(streams.max(initial=-1)) + 1)
    sizes = np.bincount(turns, learned, int(turns.max(initial=-1)) + 1)
    return learned / np.maximum(1, sizes[turns]) / np.maximum(1, counts[streams]) / max(1, int((counts > 0).sum()))


def stream_mean(turns: Ints, streams: Ints, learned: Bools) -> Weights:
    """Weight every stream equally, its tokens 1 / (streams · its tokens): GRPO's sequence mean (Shao et al. 2024).

    A token of a short wrong answer is penalised more than one of a long answer. Streams without a token in the loss are
    not counted, as in verl; TRL counts them. Biased for any batch size if policies control the length of their replies
    (docs/gradients.md).
    """
    return _mean_of_means(streams, learned)


def constant_length(turns: Ints, streams: Ints, learned: Bools, *, length: Positive) -> Weights:
    """Weight every token 1 / (streams · length), independent of its stream's length: Dr. GRPO (Liu et al. 2025).

    `length` is a scale: the paper uses the longest allowed answer, and 1 makes it LUSPO's sum over tokens. As in TRL;
    verl divides by the length alone, not by the number of streams. The only aggregate that keeps the gradient's
    direction if policies control the length of their replies.
    """
    return learned / (max(1, len(np.unique(streams[learned]))) * length)


def _mean_of_means(groups: Ints, learned: Bools) -> Weights:
    """Weight every group equally: a token in the loss gets 1 / (groups · tokens of its group), the others 0."""
    sizes = np.bincount(groups, learned, int(groups.max(initial=-1)) + 1)
    return learned / np.maximum(1, sizes[groups]) / max(1, int((sizes > 0).sum()))


AGGREGATES: dict[str, Callable[..., Weights]] = {
    f.__name__: f for f in (token_mean, turn_mean, stream_mean, stream_turn_mean, constant_length)
}
AGGREGATE = Kind("aggregate", AGGREGATES)
