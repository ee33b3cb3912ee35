"""The gate: stop the run if sampler and trainer assign different log-probabilities to the same tokens.

Only tokens that the current weights sampled can be compared. Replies of older versions (`play.ahead`) differ
legitimately; a `correction` weights them.
"""

from collections.abc import Iterable

import numpy as np

from arena.errors import GateError
from arena.learn.ranks import Tally
from arena.learn.samples import Floats, Sample
from arena.learn.settings import UpdateSpec


def get_tolerance(rule: UpdateSpec, bf16: bool) -> float:
    """Return the allowed mean difference between sampler and trainer log p: as set, else 0.1 in bf16, 1e-4 in fp32.

    In bfloat16 a logit between 16 and 32 is rounded to a multiple of .125: where SmolLM2 is unsure, at an entropy of
    1.8 nats, that alone makes a mean difference of .05.
    """
    return rule.gate_tolerance or (0.1 if bf16 else 1e-4)


def select_comparable_gaps(gaps: Iterable[tuple[Sample, Floats]]) -> list[np.ndarray]:
    """Return the differences that the gate compares, one array per sample, of tokens that the current weights sampled.

    `gaps` has each sample with the differences of all its sampled tokens. Samples without fresh tokens are left out.
    """
    gaps_of_played = [(sample.fresh, gap) for sample, gap in gaps if sample.source == "played"]
    return [fresh_gaps for fresh, gap in gaps_of_played if len(fresh_gaps := gap if fresh is None else gap[fresh])]


def require_agreement(policy: str, gaps: Tally, tolerance: float) -> None:
    """Raise GateError if the mean log-probability difference of the policy is above `tolerance` or NaN."""
    if not gaps.mean <= tolerance:  # also stops at NaN
        raise GateError(
            f"policy '{policy}': the sampler's and the trainer's log-probabilities differ by "
            f"{gaps.mean:.4g} on average ({gaps.maximum:.4g} at most) over {gaps.count} tokens; "
            f"learn.gate_tolerance is {tolerance:g}"
        )
