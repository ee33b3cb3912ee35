"""Texts for MPE2's particle worlds, whose observations are vectors of positions, velocities and utterances.

Lowe et al. (2017). Parts are in the order in which the environments concatenate them; a vector of another length,
as with options that limit what is seen, is shown as numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

MOVES = ("stay", "left", "right", "down", "up")
LEAST = 0.005
"""Shorter distances are written as none."""
Vector = list[float]
Layout = Callable[[Any, Any], Iterator[tuple[str, str, int]]]
"""Function of world and agent that yields the parts of an observation: name, kind and how many."""


def word(env: Any, seat: str, action: int) -> str:
    """Return an action as text: a move, an utterance, or both."""
    agent = _find_agent(env, seat)
    if not agent.movable:
        return f"say {action}"
    said, move = divmod(action, len(MOVES))
    return MOVES[move] if agent.silent else f"{MOVES[move]}, say {said}"


def make_look(layout: Layout) -> Callable[[Any, str], dict[str, Any]]:
    """Return a function that describes observations of this layout; {} for one of another length."""

    def look(env: Any, seat: str) -> dict[str, Any]:
        vector: Vector = np.asarray(env.observe(seat), dtype=float).tolist()
        told: dict[str, Any] = {}
        at = 0
        for name, kind, count in layout(env.world, _find_agent(env, seat)):
            size = {"way": 2, "colour": env.world.dim_color, "speech": env.world.dim_c}[kind]
            for number in range(count):
                label = f"{name}_{number}" if count > 1 else name
                told[label] = _DESCRIBE[kind](vector[at : at + size])
                at += size
        return told if at == len(vector) else {}

    return look


def describe_vector(vector: Vector) -> str:
    """Return a displacement or velocity in words, such as "right 1.43, down 0.54"."""
    parts = [
        f"{words[length > 0]} {abs(length):.2f}"
        for length, words in zip(vector, (("left", "right"), ("down", "up")), strict=True)
        if abs(length) >= LEAST
    ]
    return ", ".join(parts) or "none"


def _describe_colour(vector: Vector) -> str:
    """Return the number of the landmark that has the colour: landmarks differ in their strongest channel."""
    return f"landmark_{int(np.argmax(vector))}" if any(vector) else "none"


def _describe_speech(vector: Vector) -> str:
    return f"say {int(np.argmax(vector))}" if any(vector) else "nothing"


_DESCRIBE: dict[str, Callable[[Vector], str]] = {
    "way": describe_vector,
    "colour": _describe_colour,
    "speech": _describe_speech,
}


def _find_agent(env: Any, seat: str) -> Any:
    return next(agent for agent in env.world.agents if agent.name == seat)


def _simple(world: Any, agent: Any) -> Iterator[tuple[str, str, int]]:
    yield from (("velocity", "way", 1), ("landmark", "way", len(world.landmarks)))


def _speaker_listener(world: Any, agent: Any) -> Iterator[tuple[str, str, int]]:
    if agent.movable:
        yield from (("velocity", "way", 1), ("landmark", "way", len(world.landmarks)), ("heard", "speech", 1))
    else:
        yield "goal_of_listener", "colour", 1


def _reference(world: Any, agent: Any) -> Iterator[tuple[str, str, int]]:
    yield from (("velocity", "way", 1), ("landmark", "way", len(world.landmarks)))
    yield from (("goal_of_other", "colour", 1), ("heard", "speech", len(world.agents) - 1))


def _spread(world: Any, agent: Any) -> Iterator[tuple[str, str, int]]:
    others = len(world.agents) - 1
    yield from (("velocity", "way", 1), ("place", "way", 1), ("landmark", "way", len(world.landmarks)))
    yield from (("other", "way", others), ("heard", "speech", others))


def _adversary(world: Any, agent: Any) -> Iterator[tuple[str, str, int]]:
    if not agent.adversary:
        yield "goal", "way", 1
    yield from (("landmark", "way", len(world.landmarks)), ("other", "way", len(world.agents) - 1))


def _tag(world: Any, agent: Any) -> Iterator[tuple[str, str, int]]:
    others = [other for other in world.agents if other is not agent]
    obstacles = sum(not landmark.boundary for landmark in world.landmarks)
    yield from (("velocity", "way", 1), ("place", "way", 1), ("obstacle", "way", obstacles))
    yield from (("other", "way", len(others)), ("runner_velocity", "way", sum(not o.adversary for o in others)))


LAYOUTS: dict[str, tuple[Layout, str]] = {
    "simple_v3": (_simple, "Get to the landmark."),
    "simple_speaker_listener_v4": (
        _speaker_listener, "The speaker knows the listener's goal and cannot move; both are paid by its distance."
    ),
    "simple_reference_v3": (_reference, "Each knows the other's goal; both are paid by the distances."),
    "simple_spread_v3": (_spread, "Cover all landmarks together without running into each other."),
    "simple_adversary_v3": (_adversary, "Agents are paid for nearing the goal, which the adversary has to guess."),
    "simple_tag_v3": (_tag, "Adversaries chase the agent, are slower and paid for hits; circles are in the way."),
}  # fmt: skip
"""Layout and a line of rules by environment."""
