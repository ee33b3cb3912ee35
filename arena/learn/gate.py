"""The gate: a run stops where what the sampler says of its tokens is not what the trainer says of them.

Only tokens of the very weights that are about to learn can be compared. Of replies that older versions wrote (with
`play.ahead`) the present weights rightly say something else: those are weighed by a `correction` and not judged here.
"""

from collections.abc import Iterable

import numpy as np

from arena.errors import GateError
from arena.learn.ranks import Tally
from arena.learn.samples import Floats, Sample
from arena.learn.settings import UpdateSpec


def tolerance(rule: UpdateSpec, bf16: bool) -> float:
    """Highest mean difference of log-probabilities over tokens, as set or as the precision allows.

    In bfloat16 a logit between 16 and 32 is rounded to a multiple of .125: where SmolLM2 is unsure, at an entropy of
    1.8 nats, that alone makes a mean difference of .05.
    """
    return rule.gate_tolerance or (0.1 if bf16 else 1e-4)


def judged(gaps: Iterable[tuple[Sample, Floats]]) -> list[np.ndarray]:
    """The differences that the gate compares, of those of each sampled token; samples without any are left out."""
    played = [(sample.fresh, gap) for sample, gap in gaps if sample.source == "played"]
    return [own for fresh, gap in played if len(own := gap if fresh is None else gap[fresh])]


def require_alike(policy: str, gaps: Tally, highest: float) -> None:
    """GateError, with the numbers, where the mean difference is above `highest` or no number."""
    if not gaps.mean <= highest:  # also stops at NaN
        raise GateError(
            f"policy '{policy}': the sampler's and the trainer's log-probabilities differ by "
            f"{gaps.mean:.4g} on average ({gaps.maximum:.4g} at most) over {gaps.count} tokens; "
            f"learn.gate_tolerance is {highest:g}"
        )
