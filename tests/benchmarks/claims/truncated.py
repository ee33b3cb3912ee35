"""TIS: does weighing tokens by min(π/μ, cap) mend what a sampler that is not quite the trainer does to learning?
"""

from collections.abc import Mapping

import numpy as np
import controls
from world import Arm, Floats, Matches, World

from arena.experiment import CreditSpec, LearnSpec

CONTEXTS, ACTIONS = 4, 200


class Gap(World):
    """One turn with 200 actions and a known reward each; sampled from bent probabilities."""

    name = "gap"
    deals = CONTEXTS

    def __init__(self, seed: int, kind: str, size: float, spread: float=1.5) -> None:
        self.kind, self.size = kind, size
        rng = np.random.default_rng([seed, 99])
        self.logits = rng.normal(0.0, spread, (CONTEXTS, ACTIONS))
        self.rewards = rng.normal(0.0, 1.0, (CONTEXTS, ACTIONS))
        self.noise = rng.normal(0.0, 1.0, (CONTEXTS, ACTIONS))

    def tables(self) -> dict[str, Floats]:
        return {"shared": self.logits}

    def sampler(self, policy: str, probs: Floats) -> Floats:
        logits = np.log(probs)
        if self.kind == "quantised":
            logits = np.round(logits / self.size) * self.size
        elif self.kind == "noise":
            logits = logits + self.size * self.noise
        elif self.kind == "truncated":
            logits = np.where(logits < logits.max(-1, keepdims=True) - self.size, -1e4, logits)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    def play(self, m: Matches) -> None:
        a = m.act("player", m.deals)
        r = self.rewards[m.deals, a]
        m.reward("player", "reward", r)
        m.figure("sampled", r)

    def evaluate(self, tables: Mapping[str, Floats]) -> dict[str, float]:
        p = tables["shared"]; mu = self.sampler("shared", p)
        ref = np.exp(self.logits); ref /= ref.sum(-1, keepdims=True)
        star = ref*np.exp(self.rewards/BETA); star/=star.sum(-1,keepdims=True)
        return {"reward": (p * self.rewards).sum(-1).mean(), "kl_mu": (p*np.log(p/np.maximum(mu,1e-300))).sum(-1).mean(),
           "objective": ((p*self.rewards).sum(-1)-BETA*(p*np.log(p/ref)).sum(-1)).mean(), "entropy": -(p*np.log(p)).sum(-1).mean(),
           "best":((star*self.rewards).sum(-1)-BETA*(star*np.log(star/ref)).sum(-1)).mean()}
BETA=0.3
