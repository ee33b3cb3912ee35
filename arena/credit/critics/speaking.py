"""New replies of a policy at turns of the past: the a ~ π of off-policy critics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from agents.engines.base import Request
from arena.records import Trajectory

if TYPE_CHECKING:
    from arena.credit.critics.base import CriticContext


class Context(NamedTuple):
    """The full input of a policy at one turn."""

    policy: str
    role: str
    ids: tuple[int, ...]


def contexts(trajectory: Trajectory) -> list[Context]:
    """Context of each turn in order: its stream up to its first sampled token."""
    prefixes = trajectory.contexts()
    return [Context(trajectory.policy, trajectory.role, tuple(prefixes[turn.index])) for turn in trajectory.turns]


async def spoken(asked: Sequence[Context], run: CriticContext, rng: np.random.Generator) -> list[str]:
    """Sample replies of the policies, as they are served now, in these contexts."""
    engine, policies = run.engine, run.policies
    assert engine is not None and policies is not None
    frames = [policies[context.policy].frame for context in asked]
    drawn = rng.integers(2**32, size=2).tolist()
    requests = []
    for i, (context, frame) in enumerate(zip(asked, frames, strict=True)):
        sampling = run.roles[context.role].sampling
        requests.append(
            Request(
                policy=context.policy,
                ids=context.ids,
                key=f"anew/{i}",
                max_tokens=sampling.max_tokens,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                stop_ids=frame.stop_ids,
                seed=(*drawn, i),
            )
        )
    replies = await engine.generate(requests)
    for request in requests:
        engine.forget(request.key)
    return [frame.decode(reply.ids) for frame, reply in zip(frames, replies, strict=True)]
