"""The gate: stop the run if sampler and trainer assign different log-probabilities to the same tokens.

Only tokens sampled by the weights before the update can be compared. Replies of older versions (`play.ahead`) differ
legitimately; a `correction` weights them, and they are not compared here.
"""

from collections.abc import Iterable

import numpy as np

from arena.errors import GateError
from arena.learn.ranks import Tally
from arena.learn.samples import Floats, Sample
from arena.learn.settings import UpdateSpec


def get_tolerance(rule: UpdateSpec, bf16: bool) -> float:
    """Return the allowed mean difference of sampler and trainer log p: as set, else 0.1 in bf16 and 1e-4 in fp32.

    In bfloat16 a logit between 16 and 32 is rounded to a multiple of .125: where SmolLM2 is unsure, at an entropy of
    1.8 nats, that alone makes a mean difference of .05.
    """
    return rule.gate_tolerance or (0.1 if bf16 else 1e-4)


def select_comparable_gaps(gaps: Iterable[tuple[Sample, Floats]]) -> list[np.ndarray]:
    """Return the differences that the gate compares, one array per sample, of tokens that the current weights sampled.

    `gaps` has each sample with the differences of all its sampled tokens. Samples without fresh tokens are left out.
    """
    played = [(sample.fresh, gap) for sample, gap in gaps if sample.source == "played"]
    return [own for fresh, gap in played if len(own := gap if fresh is None else gap[fresh])]


def require_agreement(policy: str, gaps: Tally, highest: float) -> None:
    """Raise GateError if the mean log-probability difference of the policy is above `highest` or NaN."""
    if not gaps.mean <= highest:  # also stops at NaN
        raise GateError(
            f"policy '{policy}': the sampler's and the trainer's log-probabilities differ by "
            f"{gaps.mean:.4g} on average ({gaps.maximum:.4g} at most) over {gaps.count} tokens; "
            f"learn.gate_tolerance is {highest:g}"
        )
