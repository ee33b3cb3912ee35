"""Examples for reward models: pairs of conversations of which one is better, or conversations with a label."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from agents.stream import Stream
from arena.errors import ConfigError

Objective = Literal["bradley_terry", "logistic", "squared"]
"""bradley_terry: -log σ(chosen - rejected - margin); logistic: cross-entropy with labels 0 and 1; squared:
half the squared error with any labels."""
Item = TypeVar("Item")


class Example(NamedTuple):
    """A pair, the better stream first, with its margin; or a single stream with its label."""

    streams: tuple[Stream, ...]
    value: float = 0.0


class Examples(NamedTuple):
    """Examples to train on, and held-out ones of other deals or prompts, with a hash of both."""

    train: Sequence[Example]
    held_out: Sequence[Example]
    digest: str
    """SHA-256 that identifies the examples."""


class Outcome(NamedTuple):
    """A seat's conversation in a finished match, with its outcome `worth`."""

    stream: Stream
    worth: float
    deal: Hashable
    """Key of the deal, shared by its seats."""
    peers: Hashable
    """Key shared by the conversations to compare it with."""


def make_examples(
    outcomes: Sequence[Outcome],
    objective: Objective,
    held_out: float,
    partners: int,
    margin: float,
    rng: np.random.Generator,
) -> Examples:
    """Return examples from matches, with the share `held_out` of the deals held out.

    Pairs are of two outcomes with the same `peers` and different worths; each outcome is compared with up to `partners`
    random others of the same side of the split. A pair's margin is `margin` times the difference of the worths. Labels
    are the worths; for `logistic`, 1 if it is above 0. Raises ConfigError if one side has nothing to learn or test.
    """
    if not outcomes:
        raise ConfigError("reward_model: the log has no conversation of the policy with this outcome")
    sides = [
        _make_pairs(own, partners, margin, rng) if objective == "bradley_terry" else _label(own, objective)
        for chosen in split_groups([one.deal for one in outcomes], held_out, rng)
        for own in [[outcomes[i] for i in chosen]]
    ]
    return check_examples(Examples(sides[0], sides[1], hash_examples([*sides[0], *sides[1]])), objective)


def check_examples(examples: Examples, objective: Objective) -> Examples:
    """Return the examples. Raises ConfigError unless both sides have some, with both classes or several labels."""
    for side, name in ((examples.train, "to learn from"), (examples.held_out, "held out")):
        if not side and objective == "bradley_terry":
            raise ConfigError(
                f"reward_model: no pairs {name}: no two of their conversations that are compared differ in outcome: "
                "raise held_out, use more matches, or set `within: game`, which compares all deals"
            )
        if not side:
            raise ConfigError(f"reward_model: no conversations {name}: more matches or another held_out are needed")
    if objective != "bradley_terry" and len({one.value for one in examples.train}) == 1:
        raise ConfigError(
            f"reward_model: all {len(examples.train)} labels are {examples.train[0].value:g}: nothing can be learned"
        )
    if objective == "logistic" and (odd := [x.value for x in examples.train if x.value not in (0.0, 1.0)]):
        raise ConfigError(f"reward_model: label {odd[0]:g}: the logistic loss needs labels 0 and 1")
    return examples


def split_groups(groups: Sequence[Hashable], held_out: float, rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Split indices so that no group is on both sides. Returns those to train on and the held-out ones.

    The second side has the share `held_out` of the groups, and at least one if there are two.
    """
    known = list(dict.fromkeys(groups))
    count = min(max(1, round(held_out * len(known))), len(known) - 1)
    chosen = {known[i] for i in rng.permutation(len(known))[:count]}
    return [i for i, g in enumerate(groups) if g not in chosen], [i for i, g in enumerate(groups) if g in chosen]


def hash_examples(examples: Sequence[Example]) -> str:
    """Return the SHA-256 of examples' ids and values."""
    found = sha256()
    for one in examples:
        found.update(f"{one.value!r}{[stream.ids for stream in one.streams]}\n".encode())
    return found.hexdigest()


def _label(outcomes: Sequence[Outcome], objective: Objective) -> list[Example]:
    is_class = objective == "logistic"
    return [Example((one.stream,), float(one.worth > 0) if is_class else one.worth) for one in outcomes]


def _make_pairs(outcomes: Sequence[Outcome], partners: int, margin: float, rng: np.random.Generator) -> list[Example]:
    """Pair each outcome with the next ones of its peers, in random order, that have another worth, none twice."""
    groups: dict[Hashable, list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault(one.peers, []).append(one)
    pairs = []
    for group in groups.values():
        order = [group[i] for i in rng.permutation(len(group))]
        for step in range(1, min(partners, len(order) // 2) + 1):
            for place in range(len(order) if 2 * step < len(order) else len(order) // 2):
                pairs.append((order[place], order[(place + step) % len(order)]))
    return [
        Example((better.stream, worse.stream), margin * (better.worth - worse.worth))
        for better, worse in (sorted(pair, key=lambda one: -one.worth) for pair in pairs)
        if better.worth != worse.worth and better.stream.ids != worse.stream.ids
    ]
