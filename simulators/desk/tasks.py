"""Draw a customer's goals, judge their outcomes, and compute tau-bench's score."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from simulators.base import SimulatorFault
from simulators.desk.goals import Goal
from simulators.desk.policy import PRIVACY
from simulators.desk.record import Outcome
from simulators.desk.world import Diff, World

FORBIDDEN = 0.4
"""Probability of a forbidden goal."""
PRYING = 0.1
"""Probability that a forbidden goal is about another person's data."""


def draw_goals(world: World, rng: np.random.Generator, count: int) -> tuple[Goal, ...]:
    """Draw `count` goals about different subjects, with equally likely kinds. Raises SimulatorFault if it runs out."""
    if (repair_goal := world.cause_faults(rng, count)) is not None:
        return (repair_goal,)
    candidates = [add_reasons(world, goal) for goal in world.draw_candidates(rng)]
    goals: list[Goal] = []
    while len(goals) < count:
        forbidden = bool(rng.random() < FORBIDDEN)
        if forbidden and rng.random() < PRYING and all(PRIVACY.name not in goal.reasons for goal in goals):
            goals.append(make_prying_goal(world))
            continue
        used_subjects = {goal.subject for goal in goals if PRIVACY.name not in goal.reasons}
        kinds: dict[str, list[Goal]] = {}
        for goal in candidates:
            if goal.subject not in used_subjects and bool(goal.reasons) == forbidden:
                kinds.setdefault(goal.tool, []).append(goal)
        if not kinds:
            raise SimulatorFault(f"the {world.domain} has no goal for its customer")
        group = kinds[sorted(kinds)[rng.integers(len(kinds))]]
        goals.append(group[rng.integers(len(group))])
    return tuple(goals)


def add_reasons(world: World, goal: Goal) -> Goal:
    """Return the goal with its reasons to deny: if every acceptable write breaks a rule, all rules that they break."""
    broken = [world.find_broken_rules(write) for write in goal.writes]
    forbidden = bool(broken) and all(broken)
    return replace(goal, reasons=frozenset(name for names in broken for name in names)) if forbidden else goal


def make_prying_goal(world: World) -> Goal:
    """Return a forbidden goal about the purchases of `world.stranger`, an invented person who is not a customer."""
    return Goal(f"know what {world.stranger} has bought lately", reasons=frozenset({PRIVACY.name}))


def compute_effects(world: World, goals: Sequence[Goal]) -> list[list[Diff]]:
    """Return the acceptable alternative row changes of each goal: [{}] for a forbidden or fact-only goal.

    A goal with `needs` accepts only the union of their changes. The changes of different goals do not overlap, so their
    order is irrelevant.
    """
    return [
        [{}] if goal.reasons
        else [_merge(world.compute_effect(write) for write in goal.needs)] if not goal.writes
        else [world.compute_effect(write) for write in goal.writes if not world.find_broken_rules(write)]
        for goal in goals
    ]  # fmt: skip


def has_right_rows(changes: Diff, accepted_changes: Sequence[Sequence[Diff]]) -> bool:
    """Return True if the row changes unite one of the `accepted_changes` (from `compute_effects`) of each goal."""
    return any(changes == _merge(choice) for choice in itertools.product(*accepted_changes))


def has_right_service(world: World, goals: Sequence[Goal]) -> bool:
    """Return True if the phone's service works, or if there is no phone, or a goal is forbidden."""
    return world.handset is None or world.handset.is_working or any(goal.reasons for goal in goals)


def judge_facts(goals: Sequence[Goal], outcomes: Sequence[Outcome]) -> list[bool]:
    """Return, for each goal, whether its facts were told or it was denied for true reasons, as required."""
    results = [outcome.follows_policy(goal) for goal, outcome in zip(goals, outcomes, strict=False)]
    return results + [False] * (len(goals) - len(results))


def compute_tau_score(
    changes: Diff, accepted_changes: Sequence[Sequence[Diff]], goals: Sequence[Goal], messages: Iterable[str]
) -> float:
    """Return tau-bench's score (Yao et al. 2024): 1 if the row changes equal the reference and all outputs were stated.

    Outputs are the requested facts, as text in any message of the agent. An idle agent therefore passes every task that
    changes nothing and requests no output.
    """
    reference = _merge([alternatives[0] for alternatives in accepted_changes])
    texts = [text.lower().replace(",", "") for text in messages]
    outputs = [value.lower() for goal in goals if not goal.reasons for value in goal.facts.values()]
    return float(changes == reference and all(any(output in text for text in texts) for output in outputs))


def _merge(diffs: Iterable[Diff]) -> Diff:
    return {place: value for diff in diffs for place, value in diff.items()}
