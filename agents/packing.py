"""Packing: group streams into forward passes, from their tokens alone.

Streams of one role open with the same tokens. Within a pass that common prefix is run once and serves every stream.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agents.stream import Stream


@dataclass(frozen=True)
class Pass:
    """Streams of one forward pass."""

    index: tuple[int, ...]
    """Which of the given streams, in row order."""
    prefix: int
    """Number of tokens that all of them begin with and that are run once for all."""


def passes(
    streams: Sequence[Stream], token_budget: int, which: Iterable[int] | None = None, start: int = 256
) -> Iterator[Pass]:
    """Gather streams with a common opening, by length, into passes of at most `token_budget` padded tokens.

    A pass ends early where padding it to the next stream's length would cost more than another forward pass, which
    costs `start` tokens (`agents.scoring.start_cost`) and the opening. A stream longer than the budget makes a pass of
    its own; one without a sampled token is left out. The order depends on the streams alone.
    """
    chosen = [i for i in (range(len(streams)) if which is None else which) if any(streams[i].mask)]
    for family in families({i: tuple(streams[i].ids) for i in chosen}, start):
        family.sort(key=lambda i: (len(streams[i].ids), i))
        prefix = _shared_opening([streams[i] for i in family])
        rows: list[int] = []
        for i in family:
            width = len(streams[i].ids) - prefix
            padding = sum(width - (len(streams[other].ids) - prefix) for other in rows)
            if rows and (prefix + width * (len(rows) + 1) > token_budget or padding > start + prefix):
                yield Pass(tuple(rows), prefix)
                rows = []
            rows.append(i)
        yield Pass(tuple(rows), prefix)


def _shared_opening(family: Sequence[Stream]) -> int:
    """Length of the prefix to share: short enough that every sampled token is predicted from the suffix."""
    if len(family) == 1:
        return 0
    shared = len(common_prefix([stream.ids for stream in family]))
    return max(0, min(shared, min(stream.mask.index(True) for stream in family) - 1))


def common_prefix(sequences: Sequence[tuple[int, ...]] | Sequence[list[int]]) -> tuple[int, ...]:
    """The longest run of ids that all sequences begin with."""
    ordered = sorted(map(tuple, sequences))
    first, last = ordered[0], ordered[-1]  # in lexicographic order the outermost differ soonest
    for i, (a, b) in enumerate(zip(first, last, strict=False)):
        if a != b:
            return tuple(first[:i])
    return tuple(first if len(first) < len(last) else last)


def families(sequences: Mapping[int, tuple[int, ...]], start: int) -> list[list[int]]:
    """Group sequences so that few tokens are computed, each group's common prefix once; indices, all of them once.

    `start` is what another forward pass costs, in tokens (`agents.scoring.start_cost`). From the leaves of the tree of
    their prefixes up, a part that agrees for longer becomes a group of its own where that is cheaper than staying with
    the others.
    """
    return [group for group, _ in _split(sequences, list(sequences), start)] if sequences else []


def _split(sequences: Mapping[int, tuple[int, ...]], group: list[int], start: int) -> list[tuple[list[int], int]]:
    """The groups of these, each with the tokens that computing it comes to."""
    shared = len(common_prefix([sequences[i] for i in group]))
    together = [(group, _cost(sequences, group, shared, start))]
    parts: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i in group:
        parts[sequences[i][shared : shared + 1]].append(i)
    if len(parts) == 1:
        return together
    apart: list[tuple[list[int], int]] = []
    rest: list[int] = []
    for part in parts.values():
        staying = sum(len(sequences[i]) - shared for i in part)
        own = _split(sequences, part, start) if (len(part) - 1) * staying > len(part) * start else []
        if own and sum(cost for _, cost in own) < staying:
            apart += own
        else:
            rest += part
    if rest:
        apart.append((rest, _cost(sequences, rest, len(common_prefix([sequences[i] for i in rest])), start)))
    return min(together, apart, key=lambda groups: sum(cost for _, cost in groups))


def _cost(sequences: Mapping[int, tuple[int, ...]], group: Sequence[int], shared: int, start: int) -> int:
    return start + shared + sum(len(sequences[i]) - shared for i in group)
