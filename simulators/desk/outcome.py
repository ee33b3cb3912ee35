"""Outcome of a match at the desk: rows, words and rules, each judged on its own; and tau-bench's way to score."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from simulators.desk.goals import Goal
from simulators.desk.record import Outcome
from simulators.desk.world import Diff, World


def effects(world: World, goals: Sequence[Goal]) -> list[list[Diff]]:
    """For each goal the row changes that would do: none for what is denied or only asked, else one of several.

    Goals are about different orders, so their changes do not meet and any order of them comes to the same.
    """
    return [
        [{}] if goal.reasons or not goal.writes
        else [world.effect(write) for write in goal.writes if not world.broken(write)]
        for goal in goals
    ]  # fmt: skip


def rows_right(changes: Diff, accepted: Sequence[Sequence[Diff]]) -> bool:
    """Return whether the changes are those of one way to do every goal, and no others."""
    return any(changes == _union(way) for way in itertools.product(*accepted))


def facts_right(goals: Sequence[Goal], outcomes: Sequence[Outcome]) -> list[bool]:
    """For each goal whether its facts were told as they are, or it was denied for a true reason, as it had to be."""
    right = [outcome.as_policy_wants(goal) for goal, outcome in zip(goals, outcomes, strict=False)]
    return right + [False] * (len(goals) - len(right))


def tau_score(changes: Diff, accepted: Sequence[Sequence[Diff]], goals: Sequence[Goal], said: Iterable[str]) -> float:
    """As tau-bench scores (Yao et al. 2024): 1 iff rows are as after the reference writes, and outputs were said.

    Outputs are the facts asked for, as texts that occur in any message of the agent. Who does nothing passes every
    task whose right end is to change nothing and that asks for no output.
    """
    reference = _union([ways[0] for ways in accepted])
    texts = [text.lower().replace(",", "") for text in said]
    outputs = [value.lower() for goal in goals if not goal.reasons for value in goal.facts.values()]
    return float(changes == reference and all(any(output in text for text in texts) for output in outputs))


def _union(diffs: Iterable[Diff]) -> Diff:
    return {place: value for diff in diffs for place, value in diff.items()}
