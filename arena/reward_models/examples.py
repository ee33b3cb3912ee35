"""Training examples of reward models: pairs of a better and a worse conversation, or labelled conversations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple

import numpy as np

from agents.stream import Stream
from arena.errors import ConfigError

Objective = Literal["bradley_terry", "logistic", "squared"]
"""Loss. bradley_terry: -log σ(chosen - rejected - margin), for pairs; logistic: cross-entropy, for labels 0 and 1;
squared: half the squared error, for any labels."""


class Example(NamedTuple):
    """Training example: a pair of streams, the better one first, with a margin; or one stream with a label."""

    streams: tuple[Stream, ...]
    value: float = 0.0
    """Margin of a pair, or label of a single stream."""


class Examples(NamedTuple):
    """Training examples, and held-out examples from other deals or prompts."""

    train: Sequence[Example]
    held_out: Sequence[Example]
    digest: str
    """SHA-256 by which a resumed run checks that the examples are the same."""


class Outcome(NamedTuple):
    """A seat's conversation in a finished match, with the outcome that it led to."""

    stream: Stream
    worth: float
    """Value of the outcome, such as the seat's payoff."""
    deal: Hashable
    """Key of the deal, equal for all its conversations. Deals are split between training and held-out examples."""
    peers: Hashable
    """Key of the group of conversations with which this one can be compared."""


def make_examples(
    outcomes: Sequence[Outcome],
    objective: Objective,
    held_out: float,
    partners: int,
    margin: float,
    rng: np.random.Generator,
) -> Examples:
    """Make training and held-out examples from matches. The share `held_out` of the deals is held out.

    For bradley_terry, two outcomes with the same `peers` and different `worth` form a pair. Each outcome is compared
    with up to `partners` random others on its side of the split. A pair's margin is `margin` times the difference of
    worths. For squared, labels are the worths; for logistic, they are 1 if the worth is above 0, else 0. Raises
    ConfigError if there is nothing to train on or nothing to hold out.
    """
    if not outcomes:
        raise ConfigError("reward_model: the log has no conversation of the policy with this outcome")
    sides = [
        _make_pairs(side, partners, margin, rng) if objective == "bradley_terry" else _label(side, objective)
        for indices in split_groups([outcome.deal for outcome in outcomes], held_out, rng)
        for side in [[outcomes[i] for i in indices]]
    ]
    return check_examples(Examples(sides[0], sides[1], hash_examples([*sides[0], *sides[1]])), objective)


def check_examples(examples: Examples, objective: Objective) -> Examples:
    """Return the examples unchanged. Raises ConfigError if there are none to train on or hold out, or labels are unfit.

    Labels are unfit if all are equal or, for logistic, not 0 or 1.
    """
    for side, name in ((examples.train, "to learn from"), (examples.held_out, "held out")):
        if not side and objective == "bradley_terry":
            raise ConfigError(
                f"reward_model: no pairs {name}: no two conversations that can be compared differ in outcome: "
                "raise held_out, use more matches, or set `within: game`, which compares all deals"
            )
        if not side:
            raise ConfigError(f"reward_model: no conversations {name}: more matches or another held_out are needed")
    if objective != "bradley_terry" and len({example.value for example in examples.train}) == 1:
        raise ConfigError(
            f"reward_model: all {len(examples.train)} labels are {examples.train[0].value:g}: nothing can be learned"
        )
    if objective == "logistic" and (invalid := [x.value for x in examples.train if x.value not in (0.0, 1.0)]):
        raise ConfigError(f"reward_model: label {invalid[0]:g}: the logistic loss needs labels 0 and 1")
    return examples


def split_groups(groups: Sequence[Hashable], held_out: float, rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Split indices into training and held-out ones, so that no group is on both sides. `groups` has one key per index.

    The share `held_out` of the groups is held out, and at least one group if there are two.
    """
    known = list(dict.fromkeys(groups))
    count = min(max(1, round(held_out * len(known))), len(known) - 1)
    held_out_groups = {known[i] for i in rng.permutation(len(known))[:count]}
    return [i for i, g in enumerate(groups) if g not in held_out_groups], [
        i for i, g in enumerate(groups) if g in held_out_groups
    ]


def hash_examples(examples: Sequence[Example]) -> str:
    """Return the SHA-256 of the examples' token ids and values."""
    digest = sha256()
    for example in examples:
        digest.update(f"{example.value!r}{[stream.ids for stream in example.streams]}\n".encode())
    return digest.hexdigest()


def _label(outcomes: Sequence[Outcome], objective: Objective) -> list[Example]:
    is_class = objective == "logistic"
    return [Example((outcome.stream,), float(outcome.worth > 0) if is_class else outcome.worth) for outcome in outcomes]


def _make_pairs(outcomes: Sequence[Outcome], partners: int, margin: float, rng: np.random.Generator) -> list[Example]:
    """Pair each outcome with up to `partners` of its peers that have another worth. No pair occurs twice.

    The partners are the next ones in a random circular order of the group.
    """
    groups: dict[Hashable, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.peers, []).append(outcome)
    pairs = []
    for group in groups.values():
        order = [group[i] for i in rng.permutation(len(group))]
        for step in range(1, min(partners, len(order) // 2) + 1):
            for position in range(len(order) if 2 * step < len(order) else len(order) // 2):
                pairs.append((order[position], order[(position + step) % len(order)]))
    return [
        Example((preferred.stream, rejected.stream), margin * (preferred.worth - rejected.worth))
        for preferred, rejected in (sorted(pair, key=lambda outcome: -outcome.worth) for pair in pairs)
        if preferred.worth != rejected.worth and preferred.stream.ids != rejected.stream.ids
    ]
