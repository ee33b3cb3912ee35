"""Bias and noise of credit estimators, computed exactly over all batches of small decision problems ("worlds").

    python benchmarks/bias.py            # three small worlds, every estimator and aggregate; a minute

In each world a policy takes at most three turns. The gradient of its expected return J is a sum over all trajectories.
The expected update E g is a sum over all batches of four trajectories, computed with the estimators and aggregates of
runs, and equals c · (∇J + error). `scale` is c = <E g, ∇J> / |∇J|². `astray` is |error| / |∇J|, which is 0 if the
direction is right. `noise` is the standard deviation of one batch, √E|g - E g|², over |E g|. Writes results/bias.json
and prints the table of docs/gradients.md.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from reporting import write_result

from agents.stream import Stream
from arena.config.kinds import choose
from arena.credit.batch import Floats, TurnBatch
from arena.doctor import describe_environment
from arena.records import Trajectory, Turn
from games.contracts import Message

BATCH, BATCHES = 4, (2, 4, 6)
"""Size of the batches, and sizes that show whether the bias shrinks with the batch."""


@dataclass(frozen=True)
class Outcome:
    """One trajectory of a world: its probability, and each turn's reward, ∇ log π [turns, parameters] and state."""

    probability: float
    rewards: tuple[float, ...]
    log_gradients: Floats
    states: tuple[str, ...]
    """Name of each turn's state."""

    @property
    def acts(self) -> tuple[bool, ...]:
        """Acts of the turns. True is the act that a larger logit makes more likely."""
        return tuple(bool(self.log_gradients[k, k] > 0) for k in range(len(self.rewards)))


World = Callable[[Floats], list[Outcome]]
"""Function from logits, one per state, to all trajectories."""
LOGITS = np.array([0.4, -0.3, 0.8])


def enumerate_chosen_stop(logits: Floats) -> list[Outcome]:
    """Return the outcomes of up to three turns, each to continue (costs 0.1) or stop (pays 0.3, 1.0 or 0.2)."""
    found, so_far = [], 1.0
    for k in range(3):
        go = _sigmoid(logits[k])
        costs, log_gradients = (-0.1,) * k, [_make_log_gradient(j, 1.0 - _sigmoid(logits[j])) for j in range(k)]
        found.append(
            _make_outcome(so_far * (1 - go), (*costs, (0.3, 1.0, 0.2)[k]), [*log_gradients, _make_log_gradient(k, -go)])
        )
        so_far *= go
    ends = [_make_log_gradient(j, 1.0 - _sigmoid(logits[j])) for j in range(3)]
    return [*found, _make_outcome(so_far, (-0.1, -0.1, -0.1), ends)]


def enumerate_random_stop(logits: Floats) -> list[Outcome]:
    """Return the outcomes of up to two turns with two acts, of which one pays 1 in the first turn and 2 in the second.

    The match ends after the first turn with probability 0.4, whatever the act.
    """
    return [
        _make_outcome(probability * (0.4 if turns == 1 else 0.6), rewards, log_gradients)
        for turns in (1, 2)
        for probability, rewards, log_gradients in _enumerate_acts(logits, turns)
    ]


def enumerate_fixed_length(logits: Floats) -> list[Outcome]:
    """Return the outcomes of the acts of `enumerate_random_stop` if there are always two turns."""
    return [
        _make_outcome(probability, rewards, log_gradients)
        for probability, rewards, log_gradients in _enumerate_acts(logits, 2)
    ]


def _enumerate_acts(logits: Floats, turns: int) -> Iterator[tuple[float, tuple[float, ...], list[Floats]]]:
    for acts in itertools.product((0, 1), repeat=turns):
        second = [_sigmoid(logits[k]) for k in range(turns)]
        probability = float(np.prod([p if act else 1 - p for act, p in zip(acts, second, strict=True)]))
        rewards = tuple(float(act * (k + 1)) for k, act in enumerate(acts))
        yield (
            probability,
            rewards,
            [_make_log_gradient(k, act - p) for k, (act, p) in enumerate(zip(acts, second, strict=True))],
        )


def _make_outcome(probability: float, rewards: tuple[float, ...], log_gradients: list[Floats]) -> Outcome:
    return Outcome(
        float(probability), rewards, np.array(log_gradients), tuple(f"place {k}" for k in range(len(rewards)))
    )


def _sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


def _make_log_gradient(k: int, value: float) -> Floats:
    log_gradient = np.zeros(len(LOGITS))
    log_gradient[k] = value
    return log_gradient


WORLDS: dict[str, World] = {
    "chosen": enumerate_chosen_stop,
    "random": enumerate_random_stop,
    "fixed": enumerate_fixed_length,
}


def compute_gradient(outcomes: list[Outcome]) -> Floats:
    """Return ∇J = Σ p(τ) R(τ) Σ_k ∇ log π."""
    found: Floats = np.sum([p.probability * sum(p.rewards) * p.log_gradients.sum(0) for p in outcomes], axis=0)
    return found


ESTIMATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "reinforce": ("reinforce", {}),
    "mars": ("mars", {}),
    "mars, by turn": ("mars", {"by": ["game", "role", "policy", "turn"]}),
    "mars, std": ("mars", {"std": True}),
    "mars_released": ("mars_released", {}),
    "rae": ("rae", {}),
    "rloo": ("rloo", {}),
    "dr_grpo": ("dr_grpo", {}),
    "grpo": ("grpo", {}),
    "reinforce_pp": ("reinforce_pp", {}),
    "at_grpo": ("at_grpo", {}),
    "gigpo": ("gigpo", {"gamma": 1.0}),
    "epo_weighted": ("epo_weighted", {"gamma": 1.0}),
    "step_episode": ("step_episode", {}),
    "gae_turn, exact critic": ("gae_turn", {"lam": 0.5}),
    "gae_turn, blind critic": ("gae_turn", {"lam": 0.5}),
    "archer, exact critic": ("archer", {}),
    "refuel": ("refuel", {}),
}
"""Estimators with settings, by name in the table. An exact critic returns the expected return of a state or act, a
blind one 0. For `step_episode`, all turns count as the expert's. `refuel` gets pairs of a match and a branch from one
of its turns, which are all equally likely."""
AGGREGATES = ("sum over a match", "token_mean", "stream_mean")
"""Aggregates, which weight a batch's turns. The first is `constant_length` with length 1. Each turn has one token, so
turn_mean would equal token_mean."""


@cache
def make_trajectory(
    rewards: tuple[float, ...], states: tuple[str, ...], acts: tuple[bool, ...], match: int, branch: int = -1
) -> Trajectory:
    """Return a trajectory with one token per turn. Unless `branch` is -1, it branches from the previous match there."""
    stream, turns = Stream(), []
    for k, (reward, state) in enumerate(zip(rewards, states, strict=True)):
        stream.observe([1 + k])
        stream.append_sampled([8 + acts[k]], [-1.0], k)
        messages, earned = (Message.of("referee", state),), {"r": reward, "match": 1.0}
        turns.append(
            Turn(
                index=k,
                seat="a",
                role="a",
                policy="p",
                version=1,
                messages=messages,
                raw="x",
                public="",
                private="",
                action="x",
                valid=True,
                rewards=earned,
                finish="stop",
                tokens=1,
                seconds=0.0,
                situation=state,
            )
        )
    parent = f"m{match - 1}" if branch >= 0 else ""
    streams = (stream,)
    return Trajectory(
        match=f"m{match}",
        game="g",
        seat="a",
        role="a",
        policy="p",
        version=1,
        trained=True,
        turns=tuple(turns),
        streams=streams,
        seed=0,
        parent=parent,
        parent_turn=branch,
    )


Unit = tuple[float, tuple[tuple[Outcome, int], ...]]
"""Element of a batch: its probability, and its trajectories with the turns at which they branch (-1: they do not)."""


def list_units(outcomes: list[Outcome], paired: bool) -> list[Unit]:
    """Return all single trajectories or, if `paired`, all pairs of a match and a branch from one of its turns."""
    if not paired:
        return [(match.probability, ((match, -1),)) for match in outcomes]
    found: list[Unit] = []
    for match in outcomes:
        for k in range(len(match.rewards)):
            same_start = [
                branch for branch in outcomes if len(branch.rewards) > k and branch.acts[:k] == match.acts[:k]
            ]
            reach_probability = sum(branch.probability for branch in same_start)
            found += [
                (
                    match.probability / len(match.rewards) * branch.probability / reach_probability,
                    ((match, -1), (branch, k)),
                )
                for branch in same_start
            ]
    return found


def make_critic(outcomes: list[Outcome], exact: bool) -> dict[str, Callable[[Outcome], np.ndarray]]:
    """Return a critic: functions of a trajectory that return its states' and its acts' values, 0 unless `exact`."""

    def compute_return(k: int, act: bool | None) -> float:
        outcomes_at_turn = [o for o in outcomes if len(o.rewards) > k and act in (None, o.acts[k])]
        return (
            sum(o.probability * sum(o.rewards[k:]) for o in outcomes_at_turn)
            / sum(o.probability for o in outcomes_at_turn)
            if exact
            else 0.0
        )

    return {
        "values": lambda o: np.array([compute_return(k, None) for k in range(len(o.rewards))], np.float32),
        "action_values": lambda o: np.array([compute_return(k, act) for k, act in enumerate(o.acts)], np.float32),
    }


def compute_weights(aggregate: str, lengths: list[int]) -> Floats:
    """Return the weights of a batch's turns, given the trajectories' lengths."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    turns, learned = np.arange(len(owner)), np.ones(len(owner), bool)
    name, settings = ("constant_length", {"length": 1}) if aggregate.startswith("sum") else (aggregate, {})
    found: Floats = choose("aggregate", name, **settings)(turns, owner, learned)
    return found


def measure_bias(outcomes: list[Outcome], estimator: str, aggregate: str, size: int = BATCH) -> dict[str, float]:
    """Return scale, astray and noise of an estimator under an aggregate, over all batches of `size` trajectories."""
    name, settings = ESTIMATORS[estimator]
    rule, paired = choose("estimator", name, **settings), name == "refuel"
    critic = make_critic(outcomes, exact="exact" in estimator)
    known = {kind: {id(o): says(o) for o in outcomes} for kind, says in critic.items()}
    mean, square = np.zeros(len(LOGITS)), 0.0
    for combination in itertools.product(list_units(outcomes, paired), repeat=size // 2 if paired else size):
        probability = float(np.prod([each for each, _ in combination]))
        members = [member for _, unit in combination for member in unit]
        batch = [p for p, _ in members]
        batch_of_turns = TurnBatch(
            [make_trajectory(p.rewards, p.states, p.acts, m, branch) for m, (p, branch) in enumerate(members)],
            memory={},
            measures={kind: [of[id(p)] for p in batch] for kind, of in known.items()},
        )
        values = rule(batch_of_turns, batch_of_turns.column(lambda turn: turn.rewards["r"]))
        advantages: Floats = getattr(values, "values", values)
        log_gradients = np.concatenate([p.log_gradients for p in batch])
        step = (advantages * compute_weights(aggregate, [len(p.rewards) for p in batch])) @ log_gradients
        mean += probability * step
        square += probability * float(step @ step)
    true_gradient = compute_gradient(outcomes)
    scale = float(mean @ true_gradient / (true_gradient @ true_gradient))
    length = float(np.linalg.norm(mean))
    return {
        "scale": scale,
        "astray": float(np.linalg.norm(mean - scale * true_gradient) / abs(scale) / np.linalg.norm(true_gradient)),
        "noise": float(np.sqrt(max(0.0, square - length**2)) / length),
    }


def compute_rows() -> Iterator[dict[str, Any]]:
    """Yield a row per estimator with the sum over a match, then `reinforce` and `mars` with the other aggregates."""
    cases = [(name, AGGREGATES[0]) for name in ESTIMATORS]
    cases += [(name, aggregate) for name in ("reinforce", "mars") for aggregate in AGGREGATES[1:]]
    for estimator, aggregate in cases:
        found = {world: measure_bias(outcomes(LOGITS), estimator, aggregate) for world, outcomes in WORLDS.items()}
        larger = [measure_bias(enumerate_chosen_stop(LOGITS), estimator, aggregate, size)["astray"] for size in BATCHES]
        yield {"estimator": estimator, "aggregate": aggregate, **found, "astray_by_batch": larger}


def format_table(rows: list[dict[str, Any]]) -> str:
    """Return the table of docs/gradients.md."""
    lines = [
        "| estimator | aggregate | policy chooses to stop | chance stops it | always two turns | astray with 2, 4, 6 |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        larger = ", ".join(f"{value:.2f}" for value in row["astray_by_batch"])
        cells = [f"{row[w]['scale']:.2f} · {row[w]['astray']:.2f} · {row[w]['noise']:.1f}" for w in WORLDS]
        lines.append(f"| `{row['estimator']}` | {row['aggregate']} | {' | '.join(cells)} | {larger} |")
    return "\n".join(lines)


def main() -> None:
    """Compute all rows and write the results."""
    command = "python benchmarks/bias.py"
    found = list(compute_rows())
    result = {
        "command": command,
        "logits": LOGITS.tolist(),
        "batch": BATCH,
        "machine": describe_environment(),
        "rows": found,
    }
    write_result("bias", result)
    print(format_table(found))


if __name__ == "__main__":
    main()
