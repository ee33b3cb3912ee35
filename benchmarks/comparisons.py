"""Comparisons: play with `generate`, decoding alone with `generate`, an update with a plain training step."""

from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from peers import BareGenerate, BareTraining
from timing import ratios, seconds_of, take_turns
from workload import Played, play, trainer_of

import agents.scoring
from agents.engines.base import Request
from agents.scoring import pack
from arena.cli.loop import wait
from arena.lab import Lab
from arena.learn.samples import Sample


@dataclass(frozen=True)
class Size:
    """Size of the work that is measured."""

    rounds: int
    rows: int
    context: int
    new: int


def size_for(quick: bool) -> Size:
    """More on a GPU, where it costs seconds."""
    if quick:
        return Size(rounds=1, rows=8, context=32, new=8)
    return Size(5, 32, 256, 24) if torch.cuda.is_available() else Size(2, 32, 64, 24)


def playing(lab: Lab, bare: dict[str, BareGenerate], rounds: int) -> tuple[dict[str, Any], Played]:
    """Matches in the real orchestrator, then each peer on the very batches of that round."""
    seconds: dict[str, list[float]] = {name: [] for name in ("ours", *bare)}
    tokens, shapes, played = [], [], None
    for k in range(1, rounds + 1):
        played = play(lab, k)
        seconds["ours"].append(played.seconds)
        tokens.append(played.tokens)
        shapes.append([[len(batch.requests), batch.longest] for batch in played.batches])
        for name, peer in bare.items():
            seconds[name].append(seconds_of(partial(peer.replay, played.batches))[0])
    assert played is not None
    what = {
        "ours": "one iteration's matches of the recipe, both seats one policy as it begins (matches get longer as it "
        "learns, and keeping caches pays more): orchestrator, games, roles, fsynced log, engine with its caches "
        "dropped before each round. Shares a role's opening between rows and keeps each stream's keys and values "
        "between turns",
        "peers": BareGenerate.what,
    }
    rates = {name: [t / s for t, s in zip(tokens, times, strict=True)] for name, times in seconds.items()}
    found = {"what": what, "tokens": tokens, "batches [rows, longest reply]": shapes, "seconds": seconds}
    return found | _compared(rates), played


def decoding(lab: Lab, bare: dict[str, BareGenerate], size: Size) -> dict[str, Any]:
    """One batch of contexts that have nothing, or only their first 16 ids, in common, against generate."""
    rng = np.random.default_rng(0)
    policy = next(iter(lab.policies))
    arms: dict[str, Any] = {}
    for new in (1, size.new):
        for shared in (16, 0):
            arms[f"ours, {shared} ids shared/{new}"] = _decode_arm(lab, policy, size, shared, new, rng)
        contexts = _contexts(lab, policy, size, 0, rng)
        for name, peer in bare.items():
            arms[f"{name}/{new}"] = lambda peer=peer, contexts=contexts, new=new: peer(contexts, new)
    seconds = take_turns(arms, size.rounds)
    names = [name.rsplit("/", 1)[0] for name in arms][: len(arms) // 2]
    whole = {name: [size.rows * size.new / s for s in seconds[f"{name}/{size.new}"]] for name in names}
    after = {name: _after_first(seconds[f"{name}/1"], seconds[f"{name}/{size.new}"], size) for name in names}
    what = (
        f"{size.rows} random contexts of {size.context} ids, {size.new} new tokens each, caches empty. `whole`: "
        "tokens/s with prefill; `after_first`: of the tokens after the first, from the difference to a call for one "
        "token. Contexts with nothing shared are prefilled by our engine one by one"
    )
    return {"what": what, "seconds": seconds, "whole": _compared(whole), "after_first": _compared(after)}


def _contexts(lab: Lab, policy: str, size: Size, shared: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    vocabulary = len(lab.policies[policy].tokenizer)
    opening = rng.integers(vocabulary, size=shared).tolist()
    return [(*opening, *rng.integers(vocabulary, size=size.context - shared).tolist()) for _ in range(size.rows)]


def _decode_arm(lab: Lab, policy: str, size: Size, shared: int, new: int, rng: np.random.Generator) -> Any:
    contexts = _contexts(lab, policy, size, shared, rng)
    requests = [
        Request(policy, ids, f"bench/{i}", new, 1.0, 1.0, 0, frozenset(), (i,)) for i, ids in enumerate(contexts)
    ]

    def work() -> None:
        wait(lab.publish())  # drops what earlier rounds left in the caches
        wait(lab.engine.generate(requests))

    return work


def _after_first(one: list[float], all_: list[float], size: Size) -> list[float]:
    extra = [max(1e-9, b - a) for a, b in zip(one, all_, strict=True)]  # a busy machine may turn it round
    return [size.rows * (size.new - 1) / seconds for seconds in extra]


def training(lab: Lab, bare: BareTraining, samples: list[Sample], rounds: int) -> dict[str, Any]:
    """One optimiser step on the streams of real matches."""
    trainer = trainer_of(lab)
    trainer.rule = trainer.rule.model_copy(update={"lr": 0.0, "epochs": 1, "minibatches": 1})
    unshared = patch.object(agents.scoring, "_shared_opening", lambda family: 0)
    streams, heat, budget = [s.stream for s in samples], [s.temperature for s in samples], trainer.rule.token_budget

    def ours() -> None:
        trainer.carry_out(trainer.plan(samples, np.random.default_rng(0)))

    def ours_unshared() -> None:
        with unshared:
            ours()

    rows = {
        "bare, same rows": [list(batch.index) for batch in pack(streams, heat, budget)],
        "bare, same budget": BareTraining.fill(samples, budget),
    }
    arms: dict[str, Any] = {"ours": ours, "ours, no shared prefix": ours_unshared}
    arms |= {name: lambda parts=parts: bare.step(samples, parts) for name, parts in rows.items()}
    few = samples[:2]
    bare.step(few, [[0], [1]][: len(few)])
    trainer.carry_out(trainer.plan(few, np.random.default_rng(0)))
    seconds = take_turns(arms, rounds)
    tokens = sum(len(stream.ids) for stream in streams)
    what = {
        "ours": "PolicyTrainer.update: micro-batches of at most `token_budget` padded ids, the role's opening run "
        "once per micro-batch, logits at sampled positions only, entropy and statistics, gate, DeepSpeed",
        "ours, no shared prefix": "the same with every stream run whole",
        "bare": BareTraining.what,
        "same rows": "micro-batches of the streams that share one of ours",
        "same budget": "streams by length, micro-batches of at most `token_budget` padded ids",
        "tokens": "ids of all streams, the same count for every arm; `sampled` of them bear the loss",
    }
    rates = {name: [tokens / s for s in times] for name, times in seconds.items()}
    counts: dict[str, Any] = {
        "streams": len(samples),
        "tokens": tokens,
        "sampled": sum(len(s.advantages) for s in samples),
    }
    sizes = {name: sorted(map(len, parts)) for name, parts in rows.items()}
    shapes = {name: {"count": len(n), "rows": [n[0], median(n), n[-1]]} for name, n in sizes.items()}
    counts |= {"token_budget": budget, "micro_batches [least, median, most rows]": shapes}
    return {"what": what, **counts, "seconds": seconds} | _compared(rates)


def _compared(rates: dict[str, list[float]]) -> dict[str, Any]:
    """Tokens/s of every arm, and of ours over each peer's."""
    ours = [name for name in rates if name.startswith("ours")]
    against = {f"{a} / {b}": ratios(rates[a], rates[b]) for a in ours for b in rates if b not in ours}
    return {"tokens_per_second": {n: {"rounds": r, "median": median(r)} for n, r in rates.items()}, "ratio": against}
