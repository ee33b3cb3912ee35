"""Estimators that give the gradient of what is to be maximised: bias and noise, exactly, by going through every batch.

    python benchmarks/bias.py            # three small worlds, every estimator and aggregate; a minute

In each world a policy takes at most three turns. The gradient of its expected return J is summed over all trajectories,
and the expectation of what learning from a batch of four would add to the weights over all batches of four, with the
estimators and aggregates that runs use. That expectation is c · (∇J + something else): `scale` is c = <E g, ∇J> /
|∇J|², `astray` the length of the something else over that of c ∇J (0: the direction is right), `noise` the deviation of
one batch, √E|g - E g|², over |E g|. Writes results/bias.json and prints the table of docs/gradients.md.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from agents.stream import Stream
from arena.config.kinds import choose
from arena.credit.batch import Floats, TurnBatch
from arena.doctor import environment
from arena.records import Trajectory, Turn
from games.contracts import Message

RESULTS = Path(__file__).parent / "results"
BATCH, BATCHES = 4, (2, 4, 6)
"""Trajectories of a batch, and of those that tell what stays astray however large it is."""


@dataclass(frozen=True)
class Outcome:
    """One trajectory of a world: how likely it is, and of each turn the reward and ∇ log π [turns, parameters]."""

    chance: float
    rewards: tuple[float, ...]
    slopes: Floats
    places: tuple[str, ...]
    """The situation of each turn."""

    @property
    def acts(self) -> tuple[bool, ...]:
        """The act of each turn: True for the one that its logit makes likelier."""
        return tuple(bool(self.slopes[k, k] > 0) for k in range(len(self.rewards)))


World = Callable[[Floats], list[Outcome]]
"""From logits, one for each place, to all trajectories."""
LOGITS = np.array([0.4, -0.3, 0.8])


def chosen_stop(logits: Floats) -> list[Outcome]:
    """Go on or stop: going costs .1, stopping pays .3, 1.0 or .2, after the third turn it is over."""
    found, so_far = [], 1.0
    for k in range(3):
        go = _sigmoid(logits[k])
        costs, walked = (-0.1,) * k, [_slope(j, 1.0 - _sigmoid(logits[j])) for j in range(k)]
        found.append(_outcome(so_far * (1 - go), (*costs, (0.3, 1.0, 0.2)[k]), [*walked, _slope(k, -go)]))
        so_far *= go
    ends = [_slope(j, 1.0 - _sigmoid(logits[j])) for j in range(3)]
    return [*found, _outcome(so_far, (-0.1, -0.1, -0.1), ends)]


def random_stop(logits: Floats) -> list[Outcome]:
    """Two acts a turn, the second pays 1, then 2; after the first turn it is over with chance .4, whatever was done."""
    return [
        _outcome(chance * (0.4 if turns == 1 else 0.6), rewards, slopes)
        for turns in (1, 2)
        for chance, rewards, slopes in _acts(logits, turns)
    ]


def fixed_length(logits: Floats) -> list[Outcome]:
    """The same acts, and always two turns."""
    return [_outcome(chance, rewards, slopes) for chance, rewards, slopes in _acts(logits, 2)]


def _acts(logits: Floats, turns: int) -> Iterator[tuple[float, tuple[float, ...], list[Floats]]]:
    for acts in itertools.product((0, 1), repeat=turns):
        second = [_sigmoid(logits[k]) for k in range(turns)]
        chance = float(np.prod([p if act else 1 - p for act, p in zip(acts, second, strict=True)]))
        rewards = tuple(float(act * (k + 1)) for k, act in enumerate(acts))
        yield chance, rewards, [_slope(k, act - p) for k, (act, p) in enumerate(zip(acts, second, strict=True))]


def _outcome(chance: float, rewards: tuple[float, ...], slopes: list[Floats]) -> Outcome:
    return Outcome(float(chance), rewards, np.array(slopes), tuple(f"place {k}" for k in range(len(rewards))))


def _sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


def _slope(k: int, value: float) -> Floats:
    slope = np.zeros(len(LOGITS))
    slope[k] = value
    return slope


WORLDS: dict[str, World] = {"chosen": chosen_stop, "random": random_stop, "fixed": fixed_length}


def gradient(outcomes: list[Outcome]) -> Floats:
    """∇J = Σ p(τ) R(τ) Σ_k ∇ log π."""
    found: Floats = np.sum([p.chance * sum(p.rewards) * p.slopes.sum(0) for p in outcomes], axis=0)
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
"""By what the table calls it. An exact critic says what is to be expected of a place, and of an act there; a blind one
says 0. `step_episode` finds each turn marked as the expert's; `refuel` gets pairs: a match, and a branch off one of its
turns, each as likely as the other."""
AGGREGATES = ("sum over a match", "token_mean", "stream_mean")
"""Weight of a turn of a batch; turns have a token each, so that turn_mean is token_mean. The first is
`constant_length` with length 1."""


@cache
def trajectory(
    rewards: tuple[float, ...], places: tuple[str, ...], acts: tuple[bool, ...], match: int, branch: int = -1
) -> Trajectory:
    """A path as credit sees it, each turn of one token; one that branches off the match before it at that turn."""
    stream, turns = Stream(), []
    for k, (reward, place) in enumerate(zip(rewards, places, strict=True)):
        stream.observe([1 + k])
        stream.append_sampled([8 + acts[k]], [-1.0], k)
        told, earned = (Message.of("referee", place),), {"r": reward, "match": 1.0}
        turns.append(
            Turn(
                index=k,
                seat="a",
                role="a",
                policy="p",
                version=1,
                messages=told,
                raw="x",
                public="",
                private="",
                action="x",
                valid=True,
                rewards=earned,
                finish="stop",
                tokens=1,
                seconds=0.0,
                situation=place,
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
"""What a batch is made of: how likely, and one trajectory, or a match and its branch with the turn it leaves at."""


def units(outcomes: list[Outcome], paired: bool) -> list[Unit]:
    """Every trajectory by itself, or every pair of a match and a branch off one of its turns."""
    if not paired:
        return [(one.chance, ((one, -1),)) for one in outcomes]
    found: list[Unit] = []
    for one in outcomes:
        for k in range(len(one.rewards)):
            alike = [other for other in outcomes if len(other.rewards) > k and other.acts[:k] == one.acts[:k]]
            reached = sum(other.chance for other in alike)
            found += [
                (one.chance / len(one.rewards) * other.chance / reached, ((one, -1), (other, k))) for other in alike
            ]
    return found


def foreseen(outcomes: list[Outcome], exact: bool) -> dict[str, Callable[[Outcome], np.ndarray]]:
    """A critic's words on each turn of a trajectory: on its place (`values`), and on the act there."""

    def expected(k: int, act: bool | None) -> float:
        there = [o for o in outcomes if len(o.rewards) > k and act in (None, o.acts[k])]
        return sum(o.chance * sum(o.rewards[k:]) for o in there) / sum(o.chance for o in there) if exact else 0.0

    return {
        "values": lambda o: np.array([expected(k, None) for k in range(len(o.rewards))], np.float32),
        "action_values": lambda o: np.array([expected(k, act) for k, act in enumerate(o.acts)], np.float32),
    }


def weights(aggregate: str, lengths: list[int]) -> Floats:
    """Return the weight of each turn of a batch, turn after turn."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    turns, learned = np.arange(len(owner)), np.ones(len(owner), bool)
    name, settings = ("constant_length", {"length": 1}) if aggregate.startswith("sum") else (aggregate, {})
    found: Floats = choose("aggregate", name, **settings)(turns, owner, learned)
    return found


def measured(outcomes: list[Outcome], estimator: str, aggregate: str, size: int = BATCH) -> dict[str, float]:
    """Scale, astray and noise of one estimator under one aggregate, over all batches of so many trajectories."""
    name, settings = ESTIMATORS[estimator]
    rule, paired = choose("estimator", name, **settings), name == "refuel"
    critic = foreseen(outcomes, exact="exact" in estimator)
    known = {what: {id(o): says(o) for o in outcomes} for what, says in critic.items()}
    mean, square = np.zeros(len(LOGITS)), 0.0
    for made in itertools.product(units(outcomes, paired), repeat=size // 2 if paired else size):
        chance = float(np.prod([each for each, _ in made]))
        members = [member for _, unit in made for member in unit]
        batch = [p for p, _ in members]
        drawn = TurnBatch(
            [trajectory(p.rewards, p.places, p.acts, m, branch) for m, (p, branch) in enumerate(members)],
            memory={},
            measures={what: [of[id(p)] for p in batch] for what, of in known.items()},
        )
        values = rule(drawn, drawn.column(lambda turn: turn.rewards["r"]))
        advantages: Floats = getattr(values, "values", values)
        slopes = np.concatenate([p.slopes for p in batch])
        step = (advantages * weights(aggregate, [len(p.rewards) for p in batch])) @ slopes
        mean += chance * step
        square += chance * float(step @ step)
    wanted = gradient(outcomes)
    scale = float(mean @ wanted / (wanted @ wanted))
    length = float(np.linalg.norm(mean))
    return {
        "scale": scale,
        "astray": float(np.linalg.norm(mean - scale * wanted) / abs(scale) / np.linalg.norm(wanted)),
        "noise": float(np.sqrt(max(0.0, square - length**2)) / length),
    }


def rows() -> Iterator[dict[str, Any]]:
    """Every estimator with the sum over a match, and `reinforce` and `mars` with the other aggregates."""
    cases = [(name, AGGREGATES[0]) for name in ESTIMATORS]
    cases += [(name, aggregate) for name in ("reinforce", "mars") for aggregate in AGGREGATES[1:]]
    for estimator, aggregate in cases:
        found = {world: measured(outcomes(LOGITS), estimator, aggregate) for world, outcomes in WORLDS.items()}
        larger = [measured(chosen_stop(LOGITS), estimator, aggregate, size)["astray"] for size in BATCHES]
        yield {"estimator": estimator, "aggregate": aggregate, **found, "astray_by_batch": larger}


def table(rows: list[dict[str, Any]]) -> str:
    """As it stands in docs/gradients.md."""
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
    """Go through everything, and write the results."""
    command = "python benchmarks/bias.py"
    found = list(rows())
    result = {"command": command, "logits": LOGITS.tolist(), "batch": BATCH, "machine": environment(), "rows": found}
    (RESULTS / "bias.json").write_text(json.dumps(result, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
