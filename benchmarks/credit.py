"""Cost of credit assignment, and savings from packing a match into one stream.

    python benchmarks/credit.py cost     # credit and selection compared with learning, 4,096 trajectories of 10 turns
    python benchmarks/credit.py packed   # one stream per match compared with one sample per turn, 5, 10 and 20 turns

Writes results/credit-cost.json or results/credit-packed.json.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from reporting import write_result
from timing import time_call, time_in_turns

import agents.packing
from agents.model_folder import load_model
from agents.scoring import StreamScorer, pack
from agents.stream import OBSERVED, Stream
from agents.weights import resolve
from arena.config.experiment import LearnSpec
from arena.credit.assign import assign
from arena.credit.batch import CreditedTrajectory, TurnBatch
from arena.credit.estimators import ESTIMATORS
from arena.credit.samples import make_samples
from arena.credit.settings import CreditSpec
from arena.doctor import describe_environment
from arena.learn.batches import make_token_batch
from arena.learn.losses import policy_gradient
from arena.learn.samples import Sample
from arena.learn.trainer import PolicyTrainer
from arena.parts.schedules import Clock
from arena.records import Trajectory, Turn
from games.contracts import Message

SEED = 0
ROLES = ("opener", "responder")
TARGET = 0.02
"""Maximum time of credit assignment, as a share of learning."""
SELECT: list[Any] = ["void_turns", "zero_variance", "overlong"]
OPENING, OBSERVED_TOKENS, REPLY_TOKENS = 60, 8, 8
"""Tokens of a stream's rules, of each turn's observation, and of each reply, as in a small text game."""


# -- trajectories of any size --------------------------------------------------------------------------------


def make_trajectories(count: int, turns: int, vocabulary: int, group: int = 8) -> list[Trajectory]:
    """Return `count` random trajectories of `turns` turns, `group` per deal and role, with rewards every third turn."""
    rng = np.random.default_rng(SEED)
    trajectories = []
    for i in range(count):
        role, deal = ROLES[i % 2], i // 2 // group
        stream = Stream()
        stream.observe(rng.integers(5, vocabulary, OPENING).tolist())
        own_turns = []
        for k in range(turns):
            stream.observe(rng.integers(5, vocabulary, OBSERVED_TOKENS).tolist())
            stream.append_sampled(
                rng.integers(5, vocabulary, REPLY_TOKENS).tolist(), rng.normal(-1, 0.3, REPLY_TOKENS).tolist(), 2 * k
            )
            messages = (Message.of("referee", f"state {rng.integers(50)}"),)
            rewards = {"deal": float(rng.integers(0, 3))} if k % 3 == 2 else {}
            reply = f"OFFER {rng.integers(9)}"
            own_turns.append(
                Turn(
                    index=2 * k,
                    seat=role,
                    role=role,
                    policy="shared",
                    version=1,
                    messages=messages,
                    raw=reply,
                    public=reply,
                    private="",
                    action=reply,
                    valid=True,
                    rewards=rewards,
                    finish="stop",
                    tokens=REPLY_TOKENS,
                    seconds=0.0,
                )
            )
        trajectories.append(
            Trajectory(
                match=f"{i // 2:05d}",
                game="g",
                seat=role,
                role=role,
                policy="shared",
                version=1,
                trained=True,
                turns=tuple(own_turns),
                streams=(stream,),
                seed=deal,
            )
        )
    return trajectories


# -- the cost of credit assignment ---------------------------------------------------------------------------


def measure_cost(count: int = 4096, turns: int = 10, rounds: int = 3) -> dict[str, Any]:
    """Time credit assignment with selection, for each estimator, and learning from the same trajectories."""
    model = load_model(resolve("nano"))
    trajectories = make_trajectories(count, turns, model.config.vocab_size)
    needs_no_model = [n for n, f in ESTIMATORS.items() if not getattr(f, "needs", ())]
    specs = {
        name: CreditSpec.model_validate(dict(estimator=name, select=SELECT))
        for name in needs_no_model
        if _needs_no_settings(name)
    }

    def credit(spec: CreditSpec) -> list[CreditedTrajectory]:
        return assign(TurnBatch(trajectories, rng=np.random.default_rng(SEED)), spec)

    seconds = time_in_turns({name: partial(credit, spec) for name, spec in specs.items()}, rounds)
    credited = credit(CreditSpec())
    temperatures = dict.fromkeys(ROLES, 1.0)
    sampling = time_in_turns({"samples": lambda: make_samples(credited, temperatures)}, rounds)["samples"]
    samples = make_samples(credited, temperatures)
    trainer = PolicyTrainer("p", model, LearnSpec(lr=0.0, regularisers={}, gate_tolerance=1e9, token_budget=8192))
    learning, _ = time_call(lambda: trainer.carry_out(trainer.plan(samples, np.random.default_rng(SEED))))
    medians = {name: median(each) for name, each in seconds.items()}
    return {
        "what": f"{count} trajectories of {turns} turns, {sum(len(s.advantages) for s in samples)} sampled tokens; "
        f"credit: named rewards, selection ({', '.join(SELECT)}) and the estimator; learn: one optimiser step of nano "
        "on the same streams. An iteration also plays and commits, so the true shares are smaller",
        "seconds": {"credit": seconds, "credit_median": medians, "samples": sampling, "learn": learning},
        "share_of_learning": {name: value / learning for name, value in medians.items()},
        "target": TARGET,
        "met": max(medians.values()) / learning < TARGET,
    }


def _needs_no_settings(name: str) -> bool:
    """Return whether the estimator works without settings."""
    try:
        CreditSpec.model_validate(dict(estimator=name))
    except ValueError:
        return False
    return True


# -- the savings of packing ----------------------------------------------------------------------------------


def measure_packing(lengths: Sequence[int] = (5, 10, 20), matches: int = 16, rounds: int = 5) -> dict[str, Any]:
    """Return tokens, seconds and gradient gap of an update, by number of turns, with and without packing."""
    model = load_model(resolve("nano")).eval()
    arms: dict[str, Any] = {}
    for turns in lengths:
        trajectories = make_trajectories(matches, turns, model.config.vocab_size)
        packed = make_samples(assign(TurnBatch(trajectories), CreditSpec()), dict.fromkeys(ROLES, 1.0))
        by_turn = [one for sample in packed for one in split_by_turn(sample)]
        one, other = compute_gradient(model, packed), compute_gradient(model, by_turn)
        seconds = time_in_turns(
            {
                "packed": partial(compute_gradient, model, packed),
                "per turn": partial(compute_gradient, model, by_turn),
            },
            rounds,
        )
        arms[str(turns)] = {
            "tokens": {"packed": _count_tokens(packed), "per turn": _count_tokens(by_turn)},
            "seconds": seconds,
            "ratio": median(b / a for a, b in zip(seconds["packed"], seconds["per turn"], strict=True)),
            "gradient_gap": float((one - other).abs().max() / one.abs().max()),
        }
    token_growth = {
        name: {f"{a} to {b}": arms[b]["tokens"][name] / arms[a]["tokens"][name] for a, b in _steps(list(arms))}
        for name in ("packed", "per turn")
    }
    second_growth = {
        name: {
            f"{a} to {b}": median(arms[b]["seconds"][name]) / median(arms[a]["seconds"][name])
            for a, b in _steps(list(arms))
        }
        for name in ("packed", "per turn")
    }
    return {
        "what": f"forward and backward of nano on {matches} trajectories; packed: one stream, one forward; per turn: "
        "each turn is a separate sample with its complete history, as in systems that train turns separately; no "
        "opening is shared between streams in either arm. gradient_gap: largest difference of a gradient's entry, over "
        "the largest entry",
        "by_turns": arms,
        "growth_of_tokens": token_growth,
        "growth_of_seconds": second_growth,
    }


def split_by_turn(sample: Sample) -> list[Sample]:
    """Split a sample into one sample per turn, each with the history before it and the same advantages."""
    samples = []
    ids, turns = sample.stream.ids, np.asarray(sample.stream.turns)
    for turn in sorted({int(t) for t in turns} - {OBSERVED}):
        rows, is_own = np.flatnonzero(turns == turn), sample.turns == turn
        end = int(rows[-1]) + 1
        mask = (turns[:end] == turn).tolist()
        logprobs = [p if m else 0.0 for p, m in zip(sample.stream.logprobs[:end], mask, strict=True)]
        marks = [turn if m else OBSERVED for m in mask]
        samples.append(
            replace(
                sample,
                stream=Stream(ids[:end], mask, logprobs, marks),
                advantages=sample.advantages[is_own],
                behaviour=sample.behaviour[is_own],
                places=sample.places[is_own],
                learned=sample.learned[is_own],
            )
        )
    return samples


def compute_gradient(model: Any, samples: Sequence[Sample], budget: int = 4096) -> torch.Tensor:
    """Return the flattened gradient of the mean token loss, without sharing prefixes between streams."""
    model.zero_grad()
    scorer, total = StreamScorer(model), sum(len(s.advantages) for s in samples)
    streams, temperatures = [s.stream for s in samples], [s.temperature for s in samples]
    with patch.object(agents.packing, "_count_prefix", lambda family: 0):
        for batch in pack(streams, temperatures, budget):
            tokens = make_token_batch(batch, scorer(batch), samples, None, Clock(), {})
            (policy_gradient(tokens).loss.sum() / total).backward()  # type: ignore[no-untyped-call]
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).clone()


def _count_tokens(samples: Sequence[Sample]) -> int:
    return sum(len(sample.stream) for sample in samples)


def _steps(names: Sequence[str]) -> list[tuple[str, str]]:
    return list(pairwise(names))


def main() -> None:
    """Run one of the two measurements and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["cost", "packed"])
    what = parser.parse_args().what
    head = {"command": f"python benchmarks/credit.py {what}", "machine": describe_environment(), "seed": SEED}
    head |= {"threads": torch.get_num_threads(), "load_at_start": os.getloadavg()}
    result = head | (measure_cost() if what == "cost" else measure_packing()) | {"load_at_end": os.getloadavg()}
    write_result(f"credit-{what}", result)
    figures_shown = (
        ("share_of_learning", "met") if what == "cost" else ("by_turns", "growth_of_tokens", "growth_of_seconds")
    )
    json.dump({name: result[name] for name in figures_shown}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
