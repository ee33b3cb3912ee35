"""Noise of the policy gradient that an arm's advantages make, while the policy stays as it is."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from world import Arm, Floats, Learner, World

from arena.learn.plan import Plan
from arena.learn.samples import Sample


def gradient_noise(
    world: Callable[[], World], arms: Mapping[str, Arm], matches: int, group: int, batches: int = 200
) -> dict[str, dict[str, float]]:
    """Measure each arm's gradient over batches played by the first policy, the same batches for every arm.

    `cosine`: mean cosine between one batch's gradient and the first arm's mean gradient, which stands for the true
    one; 0 for a batch without a gradient. `noise`: √trace of the covariance of a batch's gradient over its mean's part
    along that direction. A tenth as many batches come first and only fill memories, such as running baselines.
    """
    kept = {name: _gradients(Learner(world(), arm, 0, matches, group), batches) for name, arm in arms.items()}
    true = next(iter(kept.values())).mean(0)
    true /= np.linalg.norm(true)
    return {
        name: {
            "cosine": round(float((found @ true / np.maximum(np.linalg.norm(found, axis=1), 1e-12)).mean()), 4),
            "noise": round(float(np.sqrt(found.var(0, ddof=1).sum()) / (found.mean(0) @ true)), 3),
        }
        for name, found in kept.items()
    }


def _gradients(learner: Learner, batches: int) -> Floats:
    """[batches, states · actions], with nothing learnt."""
    kept: list[Floats] = []
    (policy,) = learner.trainers
    table = learner.probs()[policy]

    def keep(plan: Plan) -> None:
        kept.append(gradient(plan.samples, table).reshape(-1))

    learner.trainers[policy].carry_out = keep  # type: ignore[method-assign,assignment]
    for _ in range(batches + batches // 10):
        learner.step()
    return np.stack(kept[batches // 10 :])


def gradient(samples: Sequence[Sample], table: Floats) -> Floats:
    """[states, actions] mean over the sampled tokens of advantage times d log p / d logits."""
    found, tokens = np.zeros_like(table), 0
    for sample in samples:
        own = np.flatnonzero(sample.stream.mask)
        ids = np.asarray(sample.stream.ids)
        states, actions = ids[own - 1], ids[own]
        np.add.at(found, (states, actions), sample.advantages)
        np.add.at(found, states, -sample.advantages[:, None] * table[states])
        tokens += len(own)
    return found / max(1, tokens)
