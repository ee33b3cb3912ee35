"""Token trees: sequences that begin alike as one row, in which each token sees those on its own path.

As in SpecInfer, Miao et al. 2024.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from agents.packing import agreement


class Tree(NamedTuple):
    """Token tree of one row, without the batch prefix. Sequences follow each other in lexicographic order."""

    ids: list[int]
    paths: list[Sequence[int]]
    """Columns of each sequence's tokens."""


def tree_of(sequences: Sequence[Sequence[int]], prefix: int) -> Tree:
    """Build the tree of lexicographically sorted sequences that share their first `prefix` ids."""
    row, before = Tree(list(sequences[0][prefix:]), [range(len(sequences[0]) - prefix)]), sequences[0]
    for ids in sequences[1:]:
        shared = agreement(before, ids) - prefix
        new = ids[prefix + shared :]
        row.paths.append([*row.paths[-1][:shared], *range(len(row.ids), len(row.ids) + len(new))])
        row.ids.extend(new)
        before = ids
    return row


def paths_seen(rows: Sequence[Tree], prefix: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tree attention mask and the token positions of padded rows.

    Returns a bool tensor [B, L, L], True if a token may attend to another token of its row, and an int64 tensor [B, L]
    of positions that count the prefix. Padding attends to itself.
    """
    seen = torch.eye(width, dtype=torch.bool).repeat(len(rows), 1, 1)
    places = torch.zeros((len(rows), width), dtype=torch.long)
    for number, row in enumerate(rows):
        known = 0
        for path in row.paths:
            own = torch.tensor(path, dtype=torch.long)
            new = own[own >= known]
            places[number, own] = torch.arange(prefix, prefix + len(own))
            if len(new):
                old = own[own < known]
                seen[number, new[:, None], old] = True
                seen[number, new[:, None], new] = torch.ones((len(new), len(new)), dtype=torch.bool).tril()
                known = int(new[-1]) + 1
    return seen, places
