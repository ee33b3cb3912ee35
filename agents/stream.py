"""The token record of one seat in one match, with the images among its tokens."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

OBSERVED = -1
"""Turn index of tokens that the policy did not sample."""


MAX_IMAGE_TOKENS = 1 << 12
"""Maximum tokens of one image."""

ImageReader = Callable[[str], bytes]
"""Function from an image's hash to its encoded bytes. Raises KeyError if there is no such image."""


@dataclass(frozen=True, slots=True)
class MediaSpan:
    """Image in a context: its placeholder tokens, and its bytes with their hash."""

    start: int
    """Position of the first placeholder token."""
    length: int
    """Number of placeholder tokens, which hold the image's features."""
    hash: str
    """SHA-256 of the encoded image, as hex digits."""
    data: bytes = field(default=b"", compare=False, repr=False)
    """The encoded image. Empty in a log's row, because the log keeps images as files."""
    size: tuple[int, int] | None = None
    """Height and width in pixels to which the model scales it; None if the model scales all images alike."""

    def token_keys(self) -> range:
        """Return a negative integer per token that is unique to this image and size: 48 bits of hash, 12 of offset.

        Raises ValueError if the hash is not hexadecimal or the image has more than `MAX_IMAGE_TOKENS` tokens.
        """
        if not 0 < self.length <= MAX_IMAGE_TOKENS:
            raise ValueError(f"an image has 1 to {MAX_IMAGE_TOKENS} tokens, not {self.length}")
        name = self.hash if self.size is None else hashlib.sha256(f"{self.hash} {self.size}".encode()).hexdigest()
        first = -1 - int(name[:12], 16) * MAX_IMAGE_TOKENS
        return range(first, first - self.length, -1)


class Context(NamedTuple):
    """Tokens that a policy reads before a reply, and the images among them."""

    ids: list[int]
    media: list[MediaSpan]


def compute_keys(ids: Sequence[int], media: Sequence[MediaSpan]) -> list[int]:
    """Return the ids with the keys of images in place of their placeholders, so that contexts can be compared.

    Contexts are equal if their keys are. Raises ValueError if spans overlap or lie outside the ids.
    """
    keys, end = list(ids), 0
    for span in media:
        if not end <= span.start <= span.start + span.length <= len(keys):
            raise ValueError(f"images overlap or lie outside the context's {len(keys)} tokens: {span}")
        end = span.start + span.length
        keys[span.start : end] = span.token_keys()
    return keys


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
    media: list[MediaSpan] = field(default_factory=list)
    """Images among the observed tokens, in order."""

    def __post_init__(self) -> None:
        """Raise ValueError if the lists differ in length; `entropy` may be empty."""
        if not len(self.ids) == len(self.mask) == len(self.logprobs) == len(self.turns):
            lengths = {len(self.ids), len(self.mask), len(self.logprobs), len(self.turns)}
            raise ValueError(f"a stream's four lists must be equally long, not {sorted(lengths)}")
        if self.entropy and len(self.entropy) != len(self.ids):
            raise ValueError(f"a stream of {len(self.ids)} tokens must have as many entropies, not {len(self.entropy)}")

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.ids)

    @property
    def sampled_count(self) -> int:
        """Number of tokens that the policy sampled."""
        return sum(self.mask)

    @property
    def keys(self) -> list[int]:
        """The ids, with distinct negative integers in place of images' placeholders; see `compute_keys`."""
        return compute_keys(self.ids, self.media) if self.media else self.ids

    def before(self, position: int) -> Context:
        """Return the tokens before a position, with the images that end there or earlier."""
        return Context(self.ids[:position], [span for span in self.media if span.start + span.length <= position])

    def observe(self, ids: Sequence[int], media: Sequence[MediaSpan] = ()) -> None:
        """Append tokens that the policy reads: turn markup, observations and tool results. They carry no loss.

        `media` are the images among them, with positions in `ids`. Raises ValueError if they overlap or lie outside.
        """
        compute_keys(ids, media)
        self.media.extend(replace(span, start=len(self) + span.start) for span in media)
        self._append(ids, [False] * len(ids), [0.0] * len(ids), OBSERVED)

    def append_sampled(
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


def answer_stream(context: Context, opening: Sequence[int], answer: Sequence[int], turn: int) -> Stream:
    """Return the stream of a context, a reply's opening and an answer. Only the answer's tokens count as sampled."""
    before = len(context.ids) + len(opening)
    return Stream(
        [*context.ids, *opening, *answer],
        [False] * before + [True] * len(answer),
        [0.0] * (before + len(answer)),
        [OBSERVED] * before + [turn] * len(answer),
        media=context.media,
    )
