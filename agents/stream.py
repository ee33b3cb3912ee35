"""The token record of one seat in one match."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

OBSERVED = -1
"""Turn index of tokens that the policy did not sample."""


@dataclass
class Stream:
    """Append-only tokens of one seat in one match: ids, mask, log-probabilities and turn indices of equal length."""

    ids: list[int] = field(default_factory=list)
    """Token ids in the order in which the policy read or sampled them."""
    mask: list[bool] = field(default_factory=list)
    """True if the policy sampled the token."""
    logprobs: list[float] = field(default_factory=list)
    """Natural-log probability under the sampling distribution; 0.0 for observed tokens."""
    turns: list[int] = field(default_factory=list)
    """Index of the turn that sampled the token; -1 for observed tokens."""
    entropy: list[float] = field(default_factory=list)
    """Entropy of the sampling distribution in nats; 0.0 for observed tokens. Empty if it was not measured."""

    def __post_init__(self) -> None:
        """Raise ValueError if the lists differ in length; `entropy` may be empty."""
        if not len(self.ids) == len(self.mask) == len(self.logprobs) == len(self.turns):
            lengths = {len(self.ids), len(self.mask), len(self.logprobs), len(self.turns)}
            raise ValueError(f"a stream's four lists must be equally long, not {sorted(lengths)}")
        if self.entropy and len(self.entropy) != len(self.ids):
            raise ValueError(f"{len(self.entropy)} entropies are not of {len(self.ids)} tokens")

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.ids)

    @property
    def sampled(self) -> int:
        """Number of tokens that the policy sampled."""
        return sum(self.mask)

    def observe(self, ids: Sequence[int]) -> None:
        """Append tokens that the policy reads: turn markup, observations and tool results. They carry no loss."""
        self._append(ids, [False] * len(ids), [0.0] * len(ids), OBSERVED)

    def wrote(
        self, ids: Sequence[int], logprobs: Sequence[float], turn: int, entropy: Sequence[float] | None = None
    ) -> None:
        """Append the tokens that the policy sampled in `turn` (>= 0), with log-probabilities and, if given, entropies.

        Raises ValueError if a log-probability is not finite, `turn` is negative, or the lengths differ. If only some
        turns have entropies, the tokens of the others get entropy 0.
        """
        if len(ids) != len(logprobs):
            raise ValueError(f"{len(ids)} sampled ids came with {len(logprobs)} log-probabilities")
        if turn < 0:
            raise ValueError(f"a turn index is 0 or more, not {turn}")
        if not all(math.isfinite(value) for value in logprobs):
            raise ValueError("a sampled token has a finite log-probability")
        if entropy is not None and len(entropy) != len(ids):
            raise ValueError(f"{len(ids)} sampled ids came with {len(entropy)} entropies")
        before = len(self)
        self._append(ids, [True] * len(ids), logprobs, turn)
        if entropy is not None:
            if not self.entropy:
                self.entropy.extend([0.0] * len(self))
            self.entropy[before:] = map(float, entropy)

    def _append(self, ids: Sequence[int], mask: list[bool], logprobs: Sequence[float], turn: int) -> None:
        self.ids.extend(int(token) for token in ids)
        self.mask.extend(mask)
        self.logprobs.extend(float(value) for value in logprobs)
        self.turns.extend([turn] * len(ids))
        if self.entropy:
            self.entropy.extend([0.0] * len(ids))
