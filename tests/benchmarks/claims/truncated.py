"""TIS: does weighing tokens by min(π/μ, cap) mend learning from a sampler that is not quite the trainer?

Contexts with 200 actions, each with a reward of its own, and a policy that knows something already. Play samples from
μ: the trainer's π with its log-probabilities rounded to multiples of a step (`quantised`), or with a fixed error added
to each (`noise`), as by a sampler in lower precision or of another make; the error stays while π learns. With `KL`
the objective is the reward less β KL(π ‖ beginning), whose best policy is no corner, so that where learning comes to
rest depends on the weights of what is sampled; without, any weights above 0 come to rest at the same best action.
"""

from collections.abc import Mapping
from typing import Any, Literal

import controls  # noqa: F401  # its correction is one of the arms
import numpy as np
import torch
from claim import Claim, Ends, Setting, Verdict
from world import Arm, Floats, Matches, World

from arena.experiment import CreditSpec, LearnSpec
from arena.learn.batches import TokenBatch
from arena.parts import choose
from arena.statistics import mean_ci

CONTEXTS, ACTIONS, BETA = 4, 200, 0.3
Kind = Literal["none", "quantised", "noise"]


class Gap(World):
    """One turn, sampled from other probabilities than the trainer's."""

    name = "gap"
    deals = CONTEXTS

    def __init__(self, seed: int, kind: Kind, size: float, beta: float) -> None:
        self.kind, self.size, self.beta = kind, size, beta
        rng = np.random.default_rng([seed, 99])
        self.logits = rng.normal(0.0, 1.5, (CONTEXTS, ACTIONS))
        self.rewards = rng.normal(0.0, 1.0, (CONTEXTS, ACTIONS))
        self.error = rng.normal(0.0, 1.0, (CONTEXTS, ACTIONS))

    def tables(self) -> dict[str, Floats]:
        """What the policy knows already."""
        return {"shared": self.logits}

    def sampler(self, policy: str, probs: Floats) -> Floats:
        """μ from π."""
        logits = np.log(np.maximum(probs, 1e-30))
        if self.kind == "quantised":
            logits = np.round(logits / self.size) * self.size
        elif self.kind == "noise":
            logits = logits + self.size * self.error
        return softmax(logits)

    def play(self, matches: Matches) -> None:
        """One act."""
        action = matches.act("player", matches.deals)
        matches.reward("player", "reward", self.rewards[matches.deals, action])

    def evaluate(self, tables: Mapping[str, Floats]) -> dict[str, float]:
        """Of the trainer's π: the objective as a share of the best there is, and how far the sampler is from it."""
        table, start = np.maximum(tables["shared"], 1e-30), softmax(self.logits)
        kl = (table * np.log(table / start)).sum(-1)
        found = ((table * self.rewards).sum(-1) - self.beta * kl).mean()
        best = self.rewards.max(-1)
        if self.beta:  # max over π of E[r] - β KL is β log E_start[exp(r / β)]
            best = self.beta * np.log((start * np.exp(self.rewards / self.beta)).sum(-1))
        gap = (table * np.abs(np.log(table / self.sampler("shared", table)))).sum(-1)
        return {"objective": found / best.mean(), "gap": gap.mean()}


def softmax(logits: Floats) -> Floats:
    """Probabilities along the last axis."""
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


CORRECTIONS: dict[str, Any] = {
    "uncorrected": "uncorrected",
    "truncated at 1": {"truncated": {"cap": 1.0}},
    "truncated at 2": {"truncated": {"cap": 2.0}},
    "not truncated": {"truncated": {"cap": 1e6}},
    "truncated at 2, shuffled": {"truncated_permuted": {"cap": 2.0}},
}


def arms(beta: float, which: list[str]) -> dict[str, Arm]:
    """Return less the mean of the context's group, with these corrections."""
    held = {"kl": {"weight": beta, "estimate": "k2"}} if beta else {}
    credit = CreditSpec(estimator={"mars": {"by": ["seed"]}})
    return {
        name: Arm(
            credit,
            LearnSpec(
                lr=0.05,
                loss={"policy_gradient": {"correction": CORRECTIONS[name]}},
                regularisers=held,
                gate_tolerance=1e9,
            ),
        )
        for name in which
    }


def setting(kind: Kind, size: float, beta: float) -> Setting:
    """One gap under one objective; without a gap all corrections are the same."""
    which = list(CORRECTIONS)[:1] if kind == "none" else list(CORRECTIONS)
    return Setting(lambda seed: Gap(seed, kind, size, beta), arms(beta, which), 64 * 300, matches=64, group=16)


GAPS: dict[str, tuple[Kind, float, float]] = {
    "quantised 3": ("quantised", 3.0, 0.0),
    "noise 1": ("noise", 1.0, 0.0),
    "quantised 3, KL": ("quantised", 3.0, BETA),
    "noise 1, KL": ("noise", 1.0, BETA),
}
CAP = "truncated at 2"
"""What TIS is run with."""


def gradients() -> dict[str, Any]:
    """Exact bias and deviation of one token's gradient at the beginning, relative to the true gradient's length.

    All 200 actions at once as tokens of a batch, with the real corrections; means over 20 policies.
    """
    found: dict[str, Any] = {}
    for kind, size in (("quantised", 1.0), ("quantised", 3.0), ("noise", 1.0)):
        rows: dict[str, list[tuple[float, float]]] = {name: [] for name in list(CORRECTIONS)[:4]}
        for seed in range(20):
            world = Gap(seed, kind, size, 0.0)
            pi = softmax(world.logits)[0]
            mu, advantage = world.sampler("shared", pi[None])[0], world.rewards[0] - pi @ world.rewards[0]
            scores = np.eye(ACTIONS) - pi
            true = (pi * advantage) @ scores
            for name, values in rows.items():
                weight = weights(CORRECTIONS[name], pi, mu) * advantage
                mean = (mu * weight) @ scores
                square = (mu * weight**2) @ (scores**2).sum(-1)
                size_true = np.linalg.norm(true)
                deviation = np.sqrt(square - mean @ mean)
                values.append((np.linalg.norm(mean - true) / size_true, deviation / size_true))
        found[f"{kind} {size:g}"] = {
            name: {"bias": mean_ci([b for b, _ in v])._asdict(), "deviation": mean_ci([d for _, d in v])._asdict()}
            for name, v in rows.items()
        }
    return {"gradient": found}


def weights(correction: Any, pi: Floats, mu: Floats) -> Floats:
    """What the correction makes of a token of each action."""
    name, settings = (correction, {}) if isinstance(correction, str) else next(iter(correction.items()))
    old, behaviour = torch.from_numpy(np.log(pi)), torch.from_numpy(np.log(mu))
    numbers, one = torch.arange(ACTIONS), torch.ones(ACTIONS, dtype=torch.bool)
    tokens = TokenBatch(old, old, old, behaviour, old, numbers, numbers, numbers * 0, one)
    return np.asarray(choose("correction", name, **settings)(tokens))


def judge(ends: Ends) -> Verdict:
    """By the rule of the claim."""
    won = [place for place in GAPS if ends.above(place, CAP, "uncorrected")]
    lost = [place for place in GAPS if ends.above(place, "uncorrected", CAP)]
    told = "; ".join(f"{place} {ends.minus(place, CAP, 'uncorrected').estimate:+.2f}" for place in GAPS)
    told = f"truncated at 2 - uncorrected: {told}. Worse than uncorrected: {', '.join(lost) or 'nowhere'}"
    noisy = gradients()["gradient"]["noise 1"]
    for what in ("bias", "deviation"):
        told += f". Gradient's {what}, noise 1: "
        told += ", ".join(f"{name} {row[what]['estimate']:.2f}" for name, row in noisy.items())
    if len(won) == len(GAPS):
        return Verdict("holds", told)
    return Verdict(f"holds only where: {', '.join(won)}" if won else "does not hold here", told)


CLAIM = Claim(
    claim="Where sampler and trainer disagree, truncated importance weights learn better than none.",
    source="TIS, Yao et al. 2025; DART-GUI",
    published="no number of its own: part of DART-GUI (OSWorld 27.5 to 42.1) and of most asynchronous trainers",
    rule="A setting speaks for the claim when the 95 % interval of truncated at 2 - uncorrected in the trainer's "
    "objective at the end, as a share of the best there is, lies above 0; where it lies below, that is told. "
    "Differences are taken seed by seed, as every seed draws rewards and errors of its own.",
    settings={
        "no gap": setting("none", 0.0, 0.0),
        "no gap, KL": setting("none", 0.0, BETA),
        **{place: setting(*gap) for place, gap in GAPS.items()},
    },
    figures=["objective", "objective_over_the_run", "gap"],
    verdict=judge,
    compare=[
        (CAP, "uncorrected"),
        ("truncated at 1", "uncorrected"),
        (CAP, "not truncated"),
        (CAP, "truncated at 2, shuffled"),
    ],
    seeds=10,
    paired=True,
    also=gradients,
    notes="`gap` is the mean |log π - log μ| under π. The KL term is not weighed by the correction, in the lab as "
    "elsewhere, so a gap moves its balance with or without one.",
)
