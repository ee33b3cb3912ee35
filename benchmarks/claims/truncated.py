"""TIS: does weighing tokens by min(π/μ, cap) mend learning from a sampler that is not quite the trainer?

Contexts with 200 actions, each with a reward of its own, and a policy that knows something already. Play samples from
μ: the trainer's π with its log-probabilities rounded to multiples of a step (`quantised`), or with a fixed error added
to each (`noise`), as by a sampler in lower precision or of another make; the error stays while π learns.

A table comes to rest where no action has an advantage left, whatever the weights above 0 of what is sampled: a gap can
only make it slower. Two things change that. A KL in the loss (`KL`) pulls at sampled tokens by itself, and is weighed
by no correction. And where actions share weights (`shared`: ten features, KL in the reward) the policy is a
compromise between them, which depends on how often each is sampled, as in any network.
"""

from collections.abc import Mapping
from typing import Any, Literal

import controls  # noqa: F401  # its correction is one of the arms
import numpy as np
import torch
from claim import Claim, Ends, Setting, Verdict
from world import Arm, Floats, Matches, World

from arena.config.experiment import LearnSpec
from arena.config.kinds import choose
from arena.credit.settings import CreditSpec
from arena.learn.batches import TokenBatch
from arena.statistics import COUNT, mean_ci

CONTEXTS, ACTIONS, FEATURES, BETA = 4, 200, 10, 0.3
Kind = Literal["none", "quantised", "noise"]


class Gap(World):
    """One turn, sampled from other probabilities than the trainer's."""

    name = "gap"
    deals = CONTEXTS

    def __init__(self, seed: int, kind: Kind, size: float, beta: float, shared: bool = False) -> None:
        self.kind, self.size, self.beta = kind, size, beta
        rng = np.random.default_rng([seed, 99])
        self.logits = rng.normal(0.0, 1.5, (CONTEXTS, ACTIONS))
        self.rewards = rng.normal(0.0, 1.0, (CONTEXTS, ACTIONS))
        self.error = rng.normal(0.0, 1.0, (CONTEXTS, ACTIONS))
        if shared:
            self.features = rng.normal(0.0, FEATURES**-0.5, (ACTIONS, FEATURES))

    def tables(self) -> dict[str, Floats]:
        """Return the logits of what the policy knows already."""
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
        """Return the objective of the trainer's π as a share of the best, and the sampler's distance from that π."""
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
    shares: Floats = weights / weights.sum(-1, keepdims=True)
    return shares


CORRECTIONS: dict[str, Any] = {
    "uncorrected": "uncorrected",
    "truncated at 1": {"truncated": {"cap": 1.0}},
    "truncated at 2": {"truncated": {"cap": 2.0}},
    "not truncated": {"truncated": {"cap": 1e6}},
    "truncated at 2, shuffled": {"truncated_permuted": {"cap": 2.0}},
}


def arms(beta: float, shared: bool, which: list[str]) -> dict[str, Arm]:
    """Return less the mean of the context's group, with these corrections; the KL in the loss, or in the reward."""
    in_loss = {"kl": {"weight": beta, "estimate": "k2"}} if beta and not shared else {}
    in_reward = [{"kl_penalty": {"weight": beta}}] if beta and shared else []
    credit = CreditSpec.model_validate(dict(stages=in_reward, estimator={"mars": {"by": ["seed"]}}))
    return {
        name: Arm(
            credit,
            LearnSpec.model_validate(
                dict(
                    lr=0.05,
                    loss={"policy_gradient": {"correction": CORRECTIONS[name]}},
                    regularisers=in_loss,
                    gate_tolerance=1e9,
                )
            ),
        )
        for name in which
    }


def setting(kind: Kind, size: float, beta: float, shared: bool) -> Setting:
    """One gap under one objective; without a gap all corrections are the same."""
    which = list(CORRECTIONS)[:1] if kind == "none" else list(CORRECTIONS)
    return Setting(
        lambda seed: Gap(seed, kind, size, beta, shared), arms(beta, shared, which), 64 * 300, matches=64, group=16
    )


KINDS: dict[str, tuple[float, bool]] = {"table": (0.0, False), "KL": (BETA, False), "shared": (BETA, True)}
SIZES: dict[Kind, float] = {"quantised": 3.0, "noise": 1.0}
GAPS = {f"{what}, {kind} {size:g}": (kind, size, *rest) for what, rest in KINDS.items() for kind, size in SIZES.items()}
CAP = "truncated at 2"
"""Name of TIS's arm."""


def gradients() -> dict[str, Any]:
    """Exact bias and deviation of one token's gradient at the beginning, relative to the true gradient's length.

    All 200 actions at once as tokens of a batch, with the real corrections; means over 20 policies.
    """
    found: dict[str, Any] = {}
    cases: tuple[tuple[Kind, float], ...] = (("quantised", 1.0), ("quantised", 3.0), ("noise", 1.0))
    for kind, size in cases:
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
                values.append((float(np.linalg.norm(mean - true) / size_true), float(deviation / size_true)))
        found[f"{kind} {size:g}"] = {
            name: {
                "bias": mean_ci([b for b, _ in v], COUNT)._asdict(),
                "deviation": mean_ci([d for _, d in v], COUNT)._asdict(),
            }
            for name, v in rows.items()
        }
    return {"gradient": found}


def weights(correction: Any, pi: Floats, mu: Floats) -> Floats:
    """Return the correction's weight of a token of each action."""
    name, settings = (correction, {}) if isinstance(correction, str) else next(iter(correction.items()))
    old, behaviour = torch.from_numpy(np.log(pi)), torch.from_numpy(np.log(mu))
    numbers, one = torch.arange(ACTIONS), torch.ones(ACTIONS, dtype=torch.bool)
    tokens = TokenBatch(old, old, old, behaviour, old, numbers, numbers, numbers * 0, one)
    return np.asarray(choose("correction", name, **settings)(tokens))


def judge(ends: Ends) -> Verdict:
    """The verdict by the rule of the claim."""
    won = [place for place in GAPS if ends.above(place, CAP, "uncorrected")]
    lost = [place for place in GAPS if ends.above(place, "uncorrected", CAP)]
    told = "; ".join(f"{place} {ends.minus(place, CAP, 'uncorrected').estimate:+.2f}" for place in GAPS)
    told = f"truncated at 2 - uncorrected: {told}. Worse than uncorrected: {'; '.join(lost) or 'nowhere'}"
    noisy = gradients()["gradient"]["noise 1"]
    for what in ("bias", "deviation"):
        told += f". Gradient's {what}, noise 1: "
        told += ", ".join(f"{name} {row[what]['estimate']:.2f}" for name, row in noisy.items())
    if len(won) == len(GAPS):
        return Verdict("holds", told)
    return Verdict(f"holds only where: {'; '.join(won)}" if won else "does not hold here", told)


CLAIM = Claim(
    claim="Where sampler and trainer disagree, truncated importance weights learn better than none",
    source="TIS, Yao et al. 2025; DART-GUI",
    published="no number of its own: part of DART-GUI (OSWorld 27.5 to 42.1) and of most asynchronous trainers",
    rule="A setting speaks for the claim when the 95 % interval of truncated at 2 - uncorrected in the trainer's "
    "objective at the end, as a share of the best there is, lies above 0; where it lies below, that is told. "
    "Differences are taken seed by seed, as every seed draws rewards and errors of its own.",
    settings={
        **{f"{what}, no gap": setting("none", 0.0, *rest) for what, rest in KINDS.items()},
        **{place: setting(*gap) for place, gap in GAPS.items()},
    },
    figures=["objective", "objective_over_the_run", "gap"],
    panels=[(place, "objective") for place in GAPS],
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
    "elsewhere. The best there is knows nothing of features: `shared, no gap` is what can be had there. Sizes of gaps "
    "and the three kinds of policy were chosen after trial runs of up to four seeds.",
)
