"""Texts for MPE2's particle worlds (Lowe et al. 2017): names for the parts of their observation vectors.

The parts are positions, velocities, colours and utterances, listed in the environments' own order. A vector of
another length, as with options that limit what an agent observes, is shown as numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

MOVES = ("stay", "left", "right", "down", "up")
SMALLEST_SHOWN = 0.005
"""Smallest component of a displacement or velocity that is written."""
Vector = list[float]
Layout = Callable[[Any, Any], Iterator[tuple[str, str, int]]]
"""Function of world and agent that yields the parts of an observation as (name, kind, number of parts)."""


def format_act(env: Any, seat: str, action: int) -> str:
    """Return an action's text: a move, an utterance, or both."""
    agent = _find_agent(env, seat)
    if not agent.movable:
        return f"say {action}"
    utterance, move = divmod(action, len(MOVES))
    return MOVES[move] if agent.silent else f"{MOVES[move]}, say {utterance}"


def make_describer(layout: Layout) -> Callable[[Any, str], dict[str, Any]]:
    """Return a function that describes a seat's observation by this layout, or returns {} if its length differs."""

    def describe(env: Any, seat: str) -> dict[str, Any]:
        vector: Vector = np.asarray(env.observe(seat), dtype=float).tolist()
        facts: dict[str, Any] = {}
        offset = 0
        for name, kind, count in layout(env.world, _find_agent(env, seat)):
            size = {"vector": 2, "colour": env.world.dim_color, "speech": env.world.dim_c}[kind]
            for number in range(count):
                label = f"{name}_{number}" if count > 1 else name
                facts[label] = _DESCRIBE[kind](vector[offset : offset + size])
                offset += size
        return facts if offset == len(vector) else {}

    return describe


def describe_vector(vector: Vector) -> str:
    """Return a displacement or velocity in words, such as "right 1.43, down 0.54"."""
    parts = [
        f"{words[length > 0]} {abs(length):.2f}"
        for length, words in zip(vector, (("left", "right"), ("down", "up")), strict=True)
        if abs(length) >= SMALLEST_SHOWN
    ]
    return ", ".join(parts) or "none"


def _describe_colour(vector: Vector) -> str:
    """Return the landmark of this colour: the strongest channel is the landmark's number."""
    return f"landmark_{int(np.argmax(vector))}" if any(vector) else "none"


def _describe_speech(vector: Vector) -> str:
    return f"say {int(np.argmax(vector))}" if any(vector) else "nothing"


_DESCRIBE: dict[str, Callable[[Vector], str]] = {
    "vector": describe_vector,
    "colour": _describe_colour,
    "speech": _describe_speech,
}


def _find_agent(env: Any, seat: str) -> Any:
    return next(agent for agent in env.world.agents if agent.name == seat)


def _simple(world: Any, agent: Any) -> Iterator[tuple[str, str, int]]:
    yield from (("velocity", "vector", 1), ("landmark", "vector", len(world.landmarks)))


def _speaker_listener(world: Any, agent: Any) -> Iterator[tuple[str, str, int]]:
    if agent.movable:
        yield from (("velocity", "vector", 1), ("landmark", "vector", len(world.landmarks)), ("heard", "speech", 1))
    else:
        yield "goal_of_listener", "colour", 1


def _reference(world: Any, agent: Any) -> Iterator[tuple[str, str, int]]:
    yield from (("velocity", "vector", 1), ("landmark", "vector", len(world.landmarks)))
    yield from (("goal_of_other", "colour", 1), ("heard", "speech", len(world.agents) - 1))


def _spread(world: Any, agent: Any) -> Iterator[tuple[str, str, int]]:
    others = len(world.agents) - 1
    yield from (("velocity", "vector", 1), ("place", "vector", 1), ("landmark", "vector", len(world.landmarks)))
    yield from (("other", "vector", others), ("heard", "speech", others))


def _adversary(world: Any, agent: Any) -> Iterator[tuple[str, str, int]]:
    if not agent.adversary:
        yield "goal", "vector", 1
    yield from (("landmark", "vector", len(world.landmarks)), ("other", "vector", len(world.agents) - 1))


def _tag(world: Any, agent: Any) -> Iterator[tuple[str, str, int]]:
    others = [other for other in world.agents if other is not agent]
    obstacles = sum(not landmark.boundary for landmark in world.landmarks)
    yield from (("velocity", "vector", 1), ("place", "vector", 1), ("obstacle", "vector", obstacles))
    yield from (("other", "vector", len(others)), ("runner_velocity", "vector", sum(not o.adversary for o in others)))


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
"""Layout and line of rules of each environment."""
