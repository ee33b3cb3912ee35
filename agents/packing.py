"""Group streams into forward passes so that shared tokens are computed once.

Tokens are compared by `Stream.keys`, so that placeholders of different images differ. Streams of one role start with
the same tokens: within a pass this common prefix runs once for all rows. Some streams share more, such as attempts at
one deal, nested branches, or turns with stripped thoughts. They form a tree, and a tree can be one row in which each
token attends to its own path (SpecInfer, Miao et al. 2024).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple, Self

from agents.stream import Stream

Ids = tuple[int, ...]
MIN_SHARED = 16
"""Tokens that streams must share beyond the prefix to become a tree; for fewer, the mask costs more than it saves."""


MAX_DEPTH = 100
"""Maximum depth of recursive splitting."""
MAX_MASK_ENTRIES = 1 << 27
"""Maximum mask entries of a pass with trees: one row of 11,585 tokens. A library may use up to four bytes for each."""


class Costs(NamedTuple):
    """Fixed costs of a model's forward pass, converted to tokens. Computed by `agents.costs.estimate_costs`."""

    start: int = 256
    """Cost of starting a pass."""
    scores: int = 0
    """Attention scores that cost as much as one token; 0 if rows cannot be trees."""


DEFAULT_COSTS = Costs()
"""Costs of a small model without trees."""


@dataclass(frozen=True)
class Row:
    """Row of a forward pass, after the common prefix: a stream, or several as a tree of shared tokens."""

    streams: tuple[int, ...]
    """Indices of its streams. Several streams form a tree, in lexicographic order of their ids."""
    size: int
    """Number of computed tokens."""


@dataclass(frozen=True)
class Pass:
    """Rows of token streams for one forward pass; their common prefix runs once."""

    rows: tuple[Row, ...]
    prefix: int
    """Length of the common prefix, which runs once."""

    @property
    def index(self) -> tuple[int, ...]:
        """Indices of the streams in the pass, row after row."""
        return tuple(chain.from_iterable(row.streams for row in self.rows))

    @property
    def tokens(self) -> int:
        """Number of tokens that the pass computes: the prefix once and all rows with padding."""
        return self.prefix + len(self.rows) * max((row.size for row in self.rows), default=0)

    @classmethod
    def of(cls, index: Sequence[int], lengths: Sequence[int], prefix: int = 0) -> Self:
        """Return a pass with one row per stream, from the streams' indices and their token counts with the prefix."""
        pairs = zip(index, lengths, strict=True)
        return cls(tuple(Row((i,), length - prefix) for i, length in pairs), prefix)


def plan_passes(
    streams: Sequence[Stream], token_budget: int, indices: Iterable[int] | None = None, costs: Costs = DEFAULT_COSTS
) -> Iterator[Pass]:
    """Group streams into forward passes of at most `token_budget` tokens, padding included, and yield the passes.

    Streams with a common prefix are grouped into rows, and rows of similar size into passes. A pass ends early if
    padding to the next row's size costs more than another pass with the prefix, or if its mask would be too large. A
    stream longer than the budget gets a pass of its own. Streams without sampled tokens are left out. The order depends
    on the streams alone.

    `indices` selects streams by index; the default is all.
    """
    selected = [i for i in (range(len(streams)) if indices is None else indices) if any(streams[i].mask)]
    paths = PrefixTree({i: tuple(streams[i].keys) for i in selected}, costs, token_budget)
    for family in paths.find_families():
        prefix = _count_prefix([streams[i] for i in family])
        found = sorted(paths.pack_rows(family, prefix), key=lambda row: (row.size, row.streams))
        rows: list[Row] = []
        for row in found:
            padding = sum(row.size - other.size for other in rows)
            over = prefix + row.size * (len(rows) + 1) > token_budget
            if rows and (
                over or padding > costs.start + prefix or _count_mask_entries([*rows, row], prefix) > MAX_MASK_ENTRIES
            ):
                yield Pass(tuple(rows), prefix)
                rows = []
            rows.append(row)
        yield Pass(tuple(rows), prefix)


def _count_mask_entries(rows: Sequence[Row], prefix: int) -> int:
    """Return the number of entries of the attention mask that a pass with these rows needs; 0 without trees."""
    widest = max(row.size for row in rows)
    return len(rows) * widest * (prefix + widest) if any(len(row.streams) > 1 for row in rows) else 0


def _count_prefix(family: Sequence[Stream]) -> int:
    """Return the length of the common prefix to run once, such that the rows still predict every sampled token."""
    if len(family) == 1:
        return 0
    shared = len(find_common_prefix([stream.keys for stream in family]))
    return max(0, min(shared, min(stream.mask.index(True) for stream in family) - 1))


def find_common_prefix(sequences: Sequence[Ids] | Sequence[list[int]]) -> Ids:
    """Return the longest common prefix of all sequences."""
    ordered = sorted(map(tuple, sequences))
    return ordered[0][: count_shared(ordered[0], ordered[-1])]  # of a sorted list, first and last share the least


def count_shared(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the common prefix of two sequences."""
    at, end = 0, min(len(first), len(second))
    while at < end:  # compare slices of doubling length, which is faster than single tokens
        leap = 1
        while at + leap <= end and first[at : at + leap] == second[at : at + leap]:
            at, leap = at + leap, leap * 2
        if leap == 1:
            break
    return at


class PrefixTree:
    """Prefix tree of token sequences, to decide which share a forward pass (`find_families`) or a row (`pack_rows`)."""

    def __init__(self, sequences: Mapping[int, Ids], costs: Costs, token_budget: int = 10**9) -> None:
        self._ids, self._costs, self._budget = sequences, costs, token_budget
        order = sorted(sequences, key=lambda i: sequences[i])
        self._place = {i: place for place, i in enumerate(order)}
        """Place of each sequence in lexicographic order."""
        self._shared = [count_shared(sequences[i], sequences[j]) for i, j in pairwise(order)]
        """Length of the common prefix of each sequence and the next, in this order."""

    def find_families(self) -> list[list[int]]:
        """Group the sequences such that few tokens are computed if each group's common prefix runs once.

        From the leaves up, a subtree with a longer common prefix becomes a group of its own if that is cheaper than
        staying with the others. Returns lists of sequence indices; [] without sequences.
        """
        return [group for group, _ in self._split(list(self._ids), MAX_DEPTH)] if self._ids else []

    def pack_rows(self, group: Sequence[int], prefix: int) -> list[Row]:
        """Distribute a group's sequences over rows, without the first `prefix` tokens, and return the rows.

        Sequences are visited in lexicographic order. A sequence joins the last row if its shared tokens cost more than
        the extra attention scores between all tokens of the row.
        """
        found: list[Row] = []
        if not self._costs.scores:
            return [Row((i,), len(self._ids[i]) - prefix) for i in group]
        before: int | None = None
        limit = max(self._budget, *(len(self._ids[i]) for i in group)) - prefix
        for i in sorted(group, key=self._place.__getitem__):
            length = len(self._ids[i])
            shared = max(0, (self._count_shared(before, i) if before is not None else 0) - prefix)
            new = length - prefix - shared
            last = found[-1] if found else Row((), 0)
            extra_scores = (last.size + new) ** 2 - last.size**2 - (shared + new) ** 2
            is_cheaper = shared >= MIN_SHARED and shared * self._costs.scores >= extra_scores
            size = last.size + new
            if last.streams and is_cheaper and size <= limit and size * (prefix + size) <= MAX_MASK_ENTRIES:
                found[-1] = Row((*last.streams, i), size)
            else:
                found.append(Row((i,), length - prefix))
            before = i
        return found

    def _count_shared(self, first: int, second: int) -> int:
        """Return the length of two sequences' common prefix. `first` must not sort after `second`."""
        return min(self._shared[self._place[first] : self._place[second]], default=len(self._ids[first]))

    def _count_opening(self, group: Sequence[int]) -> int:
        """Return the length of the group's common prefix, which is that of its first and last sequence in order."""
        return self._count_shared(min(group, key=self._place.__getitem__), max(group, key=self._place.__getitem__))

    def _split(self, group: list[int], depth: int) -> list[tuple[list[int], int]]:
        """Split a group of sequences, given by index, by their next token where that costs less (greedily).

        Splits up to `depth` levels deep. Returns (group, cost in tokens) pairs.
        """
        shared, start = self._count_opening(group), self._costs.start
        rows = self.pack_rows(group, shared)
        together = [(group, start + shared + sum(row.size for row in rows))]
        if len(rows) == 1 or not depth:  # with one row nothing is computed twice
            return together
        parts: dict[Ids, list[int]] = {}
        for i in group:
            parts.setdefault(self._ids[i][shared : shared + 1], []).append(i)
        if len(parts) == 1:
            return together
        separate: list[tuple[list[int], int]] = []
        rest: list[int] = []
        for part in parts.values():
            joint_cost = sum(row.size for row in self.pack_rows(part, shared))
            groups = self._split(part, depth - 1) if (len(part) - 1) * joint_cost > len(part) * start else []
            if groups and sum(cost for _, cost in groups) < joint_cost:
                separate += groups
            else:
                rest += part
        if rest:
            opening = self._count_opening(rest)
            separate.append((rest, start + opening + sum(row.size for row in self.pack_rows(rest, opening))))
        return min(together, separate, key=lambda groups: sum(cost for _, cost in groups))
