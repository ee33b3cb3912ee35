"""Critics: predict the values of turns and tokens before credit, and fit them to returns afterwards.

A critic is `critic(context, *, settings) -> Critic`, marked with the measures that it `gives`. In every iteration it
first predicts, from earlier iterations only; estimators use these values; then it is fitted to the turns' returns.
Processing a match log in order reproduces the values of `linear`, and those of `archer` given the run's random draws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from arena.credit.critics.base import Critic, CriticContext
from arena.credit.estimators.gae import read_discounts
from arena.parts.part_config import Kind, PartConfig, gives, needs
from arena.parts.spec import Count, Positive

Share = Annotated[float, Field(gt=0, le=1)]
Rate = Annotated[float, Field(gt=0)]
Reads = Literal["words", "prompt"]
"""State of a turn: words of all messages and own replies so far, or only the policy's prompt."""


def create_critic(config: PartConfig | None, estimator: PartConfig, **context: Any) -> Critic | None:
    """Create the chosen critic with the estimator's discounts; `context` are the other fields of its context."""
    if config is None:
        return None
    critic: Critic = config(CriticContext(discounts=read_discounts(estimator), **context))
    return critic


@gives("values")
def linear(
    context: CriticContext,
    *,
    features: Annotated[int, Field(ge=8, le=4096)] = 256,
    ridge: Rate = 1.0,
    decay: Share = 0.9,
) -> Critic:
    """Create a turn-level critic without torch: ridge regression of returns on hashed words of the state.

    V(s) = w·φ(s), w = argmin Σ (R - w·φ)² + ridge |w|² over earlier iterations, each with `decay` times the weight of
    the next. φ are `features` numbers from what the seat read and wrote so far (`arena.credit.critics.words`), and R is
    the return under the estimator's discount. In the first iteration all values are 0. The critic stores only Σ φφᵀ and
    Σ φR, and can be reproduced from the match log alone.
    """
    from arena.credit.critics.linear import Linear

    return Linear(context, features, ridge, decay)


@needs("policies")
@gives("values", "token_values")
def value_head(
    context: CriticContext,
    *,
    lr: Rate = 1e-5,
    epochs: Annotated[int, Field(ge=1, le=100)] = 1,
    minibatches: Count = 1,
    clip: Rate | None = None,
    grad_clip: Rate = 1.0,
) -> Critic:
    """Create a token-level critic: a copy of each trained policy with a scalar head, fitted by squared error.

    Loss ½ (V_t - R_t)², mean over a step's tokens, R_t the token's return under the estimator's discounts; with `clip`
    PPO's ½ max((V - R)², (V_old + clip(V - V_old, ±clip) - R)²), whose gradient is 0 if the clipped error is the larger
    and V is beyond the bound. The head starts at 0, so the first iteration's values are 0 and its advantages plain
    returns. `values` are those of turns' first tokens. Source: PPO (Schulman et al. 2017) as in verl, which starts with
    a random head and fits λ-returns; these are Monte-Carlo returns, λ = 1 (VC-PPO, Yuan et al. 2025).
    """
    from arena.credit.critics.value_head import ValueHead

    return ValueHead(context=context, lr=lr, epochs=epochs, minibatches=minibatches, clip=clip, grad_clip=grad_clip)


@gives("values", "action_values")
def archer(
    context: CriticContext,
    *,
    gamma: Annotated[float, Field(ge=0, le=1)] = 0.95,
    features: Annotated[int, Field(ge=8, le=4096)] = 256,
    hidden: Annotated[int, Field(ge=1, le=4096)] = 128,
    lr: Rate = 1e-3,
    polyak: Share = 0.1,
    steps: Count = 50,
    batch: Count = 256,
    replay: Annotated[int, Field(ge=0, le=10**8)] = 100_000,
    warmup: Positive = 2,
    reads: Reads = "words",
) -> Critic:
    """Create ArCHer's critic: twin Q(s, a) and V(s) of utterances, trained off-policy on replayed turns.

    Q_i ← r + γ (1 - d) V_i^tgt(s'), V_i ← Q_i^tgt(s, a ~ π), i = 1, 2, by squared error. Each iteration takes `steps`
    steps of Adam on `batch` turns each; after each, the targets move by the fraction `polyak` (Polyak averaging).
    `values` is min V, `action_values` min Q; both are 0 during the first `warmup` iterations. γ is this critic's own:
    if another estimator than `archer` uses its values, give both the same.

    Q learns from the newest `replay` turns (0: only this iteration's), V from this iteration's, whose replies are
    sampled from π. The networks have one layer of `hidden` units, and read text as `features` hashed n-grams
    (`arena.credit.critics.words`): a state's messages and own replies so far with the turn's number, or by `reads:
    prompt` the tokens of the policy's prompt, public facts included. The latter makes equal prompts equal states, which
    suits roles with a memory window of 0 in a small world, whose states recur. In new worlds it does not generalise.

    Source: ArCHer (Zhou et al. 2024: 50 such steps, called epochs, 1e5 turns, 20 iterations of warm-up, γ .95). There Q
    and V are heads of a RoBERTa, and every replayed state gets a new reply in every step.
    """
    from arena.credit.critics.archer import Archer, ArcherSettings

    settings = ArcherSettings(
        gamma=gamma,
        features=features,
        hidden=hidden,
        lr=lr,
        polyak=polyak,
        steps=steps,
        batch=batch,
        replay=replay,
        warmup=warmup,
        reads=reads,
    )
    return Archer(context, settings)


@gives("values", "action_values")
def ilql(
    context: CriticContext,
    *,
    gamma: Annotated[float, Field(ge=0, le=1)] = 0.99,
    expectile: Annotated[float, Field(gt=0, lt=1)] = 0.7,
    lr: Rate = 1e-3,
    steps: Count = 50,
    replay: Annotated[int, Field(ge=0, le=10**8)] = 100_000,
    warmup: Positive = 2,
    reads: Reads = "words",
) -> Critic:
    """Create the critic of implicit Q-learning for match logs: V(s) approximates the best Q(s, a) of logged replies.

    Q_i ← r + γ (1 - d) min V(s'), by squared error; V_i ← the `expectile` of min Q^tgt(s, a) over the log's replies, by
    the loss |expectile - 1(u < 0)| u², u = Q^tgt - V. Q is therefore never evaluated on replies outside the log, and
    values combine good parts of different matches. To train a policy as IQL does, add `estimator: archer` (A = Q - V),
    the transform `exponential` and `loss: likelihood`. Networks and other settings are those of `archer`.

    Source: IQL (Kostrikov et al. 2021) and ILQL (Snell et al. 2022). In ILQL every token is an action, Q and V are
    heads of the language model, a CQL term lowers Q of tokens that are not in the data, and β (Q - V) is added to the
    logits when tokens are sampled. Here a whole reply is an action. Replies cannot be enumerated, so there is no CQL
    term, and the policy itself is trained, by weights. ILQL's V is one network; here it is the lower of two, like Q.
    """
    from arena.credit.critics.archer import ArcherSettings
    from arena.credit.critics.ilql import Ilql

    settings = ArcherSettings(gamma=gamma, lr=lr, steps=steps, replay=replay, warmup=warmup, reads=reads)
    return Ilql(context, settings, expectile)


@gives("values", "action_values")
def monte_carlo(
    context: CriticContext,
    *,
    gamma: Annotated[float, Field(ge=0, le=1)] = 0.99,
    lr: Rate = 1e-3,
    steps: Count = 50,
    replay: Annotated[int, Field(ge=0, le=10**8)] = 100_000,
    warmup: Positive = 2,
    reads: Reads = "words",
) -> Critic:
    """Create a Monte-Carlo critic of the policy that sampled the log: Q(s, a) is the mean return, V(s) the mean of Q.

    Q_i ← Σ_{k' ≥ k} γ^(k'-k) r_k', V_i ← min Q^tgt(s, a), by squared error over replayed turns. A policy trained on it,
    as on `ilql`, improves on the log's policy by one step; values do not combine parts of different matches. Other
    settings are those of `archer`. Source: "MC returns" of LMRL-Gym (Abdulhai et al. 2023), where actions are tokens
    and β (Q - V) is added to the logits.
    """
    from arena.credit.critics.archer import ArcherSettings
    from arena.credit.critics.ilql import MonteCarlo

    settings = ArcherSettings(gamma=gamma, lr=lr, steps=steps, replay=replay, warmup=warmup, reads=reads)
    return MonteCarlo(context, settings)


CRITICS: dict[str, Callable[..., Critic]] = {f.__name__: f for f in (linear, value_head, archer, ilql, monte_carlo)}
CRITIC = Kind("critic", CRITICS)


def list_critic_measures() -> dict[str, frozenset[str]]:
    """Return the names of the measures that each critic predicts, by the critic's name."""
    return {name: getattr(critic, "gives", frozenset()) for name, critic in CRITICS.items()}
