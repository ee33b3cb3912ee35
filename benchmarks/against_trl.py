"""One whole iteration of Arena beside one step of TRL's GRPOTrainer: same model, same prompt, same number of tokens.

    python benchmarks/against_trl.py                           # a few minutes
    python benchmarks/against_trl.py --rows 64 --tokens 128    # other sizes, as for a GPU
    python benchmarks/against_trl.py --quick                   # one round, few tokens: does it still work?

Ours is `Lab.iterate`: play 8 matches of a negotiation's first turn (one deal, a GRPO group), log, credit, learn with a
KL to a reference, publish, rate, seal. TRL's is a step with 8 completions of such a prompt, rewards, reference, update.
Both write exactly 48 tokens each, at temperature 1, bf16 over float32 weights, AdamW, one optimiser step. TRL runs in a
process of its own, once for each of its settings, and takes turns with us, step by step. No checkpoints, no evaluation.
On a GPU both take all rows in one micro-batch, and the file is named after it.

The verdict is by TRL's fastest setting that keeps weights and optimiser in float32 as we do; `bf16 weights` is what it
would take with less exact learning. Writes results/against-trl.json.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from neighbour import THEIRS, Neighbour, Stopwatch

# isort: split
import arena  # noqa: F401  before torch is loaded: it says how OpenMP waits

# isort: split
import torch
from timing import file_name, ratios
from workload import open_lab

from agents.engines.base import Completion, Request
from agents.weights import DEFAULT, resolve
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import recipe_layer, set_layer
from arena.doctor import describe_environment
from arena.lab import Lab

HERE = Path(__file__).parent
RESULTS = HERE / "results"
GOAL = 0.6
ROWS, TOKENS = 8, 48
ON_A_GPU = ("learn.token_budget=65536",)
"""All rows in one micro-batch, as TRL has them; a CPU is faster with few tokens at a time."""
EQUAL = ("autocast", "fp32")
"""TRL's settings with float32 weights and optimiser."""


def experiment_of(seed: int, rows: int, group: int) -> Experiment:
    """GRPO on a negotiation of one turn; a reward for unlike words sees to it that advantages are not all zero.

    All weights learn, and nothing is computed twice to save memory: as TRL has it. `group` replies share a prompt.
    """
    layers = [
        "learn.gradient_checkpointing=false",
        "learn.offload_reference=false",
        "game.options={illegal: end, max_turns: 1}",
        f"play={{matches: {rows}, group: {group}, in_flight: {rows}}}",
        "credit={estimator: grpo, stages: [{repetition: {weight: 0.2}}]}",
        "iterations=1000",
        "checkpoint.every=1000",
        f"seed={seed}",
        *(ON_A_GPU if torch.cuda.is_available() else ()),
    ]
    return compose([recipe_layer("negotiation-shown"), *map(set_layer, layers)])


class FixedLength:
    """Let every reply of an engine be of the same length, and note what it was asked."""

    def __init__(self, lab: Lab, tokens: int) -> None:
        self.tokens, self.generate = tokens, lab.engine.generate
        self.prompts: list[tuple[int, ...]] = []
        self.written: list[int] = []
        lab.engine.generate = self  # type: ignore[method-assign]

    async def __call__(self, requests: Sequence[Request]) -> list[Completion]:
        """The same requests, without stop ids."""
        whole = [replace(request, max_tokens=self.tokens, stop_ids=frozenset()) for request in requests]
        self.prompts += [request.ids for request in requests]
        completions = await self.generate(whole)
        self.written += [len(completion.ids) for completion in completions]
        return completions

    def take(self) -> dict[str, list[int]]:
        """Lengths of prompts and replies since the last time."""
        found = {"prompts": [len(prompt) for prompt in self.prompts], "replies": self.written}
        self.prompts, self.written = [], []
        return found


def measure(
    seed: int, rows: int, tokens: int, rounds: int, settings: Sequence[str], group: int | None = None
) -> dict[str, Any]:
    """Return the seconds of alternating steps of ours and of TRL, for each of TRL's settings.

    So many of our replies have a prompt in common: all, or a `group`.
    """
    experiment = experiment_of(seed, rows, group or rows)
    rule = experiment.learn
    asked = {"model": str(resolve(DEFAULT)), "rows": rows, "tokens": tokens, "steps": rounds + 1, "seed": seed}
    asked |= {"lr": rule.lr, "betas": rule.betas, "grad_clip": rule.grad_clip, "beta": 0.02}
    pairs: dict[str, dict[str, Any]] = {}
    with open_lab(experiment) as lab:
        fixed = FixedLength(lab, tokens)
        wait(lab.iterate(1))  # unmeasured: kernels are chosen and memory is taken
        prompt = fixed.prompts[0]
        for name in settings:
            pairs[name] = {"arena": [], "trl": []}
            with Neighbour([sys.executable, HERE / "trl_peer.py"], THEIRS) as peer:
                pairs[name]["peer"] = peer.ask(setting=name, prompt=prompt, **asked)
                peer.ask()  # unmeasured likewise
                for _ in range(rounds):
                    watch = Stopwatch()
                    row = wait(lab.iterate(lab.done + 1))
                    pairs[name]["arena"].append(watch.read() | {"parts": row["seconds"]})
                    pairs[name]["trl"].append(peer.ask())
        lengths = fixed.take()
    if set(lengths["replies"]) != {tokens}:
        raise SystemExit("a reply of ours was not as long as it should be: no fair comparison")
    sizes = {"lengths of our prompts": sorted(set(lengths["prompts"])), "length of TRL's prompt": len(prompt)}
    counts = {"seed": seed, "rows": rows, "tokens": tokens, "rounds": rounds, "threads": torch.get_num_threads()}
    return counts | sizes | {"settings": {name: pair | compared(pair) for name, pair in pairs.items()}}


def compared(pair: dict[str, Any]) -> dict[str, Any]:
    """Ours over TRL's, step by step, by wall and by processor time."""
    found: dict[str, Any] = {}
    for what in ("seconds", "cpu_seconds"):
        each = {side: [step[what] for step in pair[side]] for side in ("arena", "trl")}
        found[what] = {side: median(times) for side, times in each.items()}
        found[f"ratio of {what}"] = ratios(each["arena"], each["trl"])
    return found


def verdict(settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Against the fastest of TRL's settings that compute as exactly as we do: the one we look worst beside."""
    against = {name: settings[name]["ratio of seconds"]["median"] for name in EQUAL if name in settings}
    best = max(against, key=lambda name: against[name])
    return {"against": best, "ratio": against[best], "goal": GOAL, "met": against[best] <= GOAL}


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The figures worth a glance."""
    yield f"a step of {result['rows']} × {result['tokens']} tokens, median of {result['rounds']}"
    for name, found in result["settings"].items():
        seconds, ratio = found["seconds"], found["ratio of seconds"]["median"]
        yield (
            f"    TRL, {name:14} {seconds['trl']:6.2f} s    Arena {seconds['arena']:6.2f} s    Arena / TRL "
            f"{ratio:.2f} by the clock, {found['ratio of cpu_seconds']['median']:.2f} by CPU time"
        )
    goal = result["verdict"]
    claim = f"an iteration takes at most {GOAL} of TRL's step ({goal['against']})"
    yield f"{claim:54} {goal['ratio']:.2f}    {'met' if goal['met'] else 'NOT met'}"


def main() -> None:
    """Measure and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.perf_counter()
    result: dict[str, Any] = {"command": " ".join(["python", "benchmarks/against_trl.py", *sys.argv[1:]])}
    result |= {"machine": describe_environment(), "load_at_start": os.getloadavg(), "model": DEFAULT}
    if options.quick:
        result |= measure(options.seed, options.rows, 8, 1, ["autocast"])
    else:
        sizes = options.rows, options.tokens, options.rounds
        result |= measure(options.seed, *sizes, ["autocast", "fp32", "bf16 weights"])
    result |= {"verdict": verdict(result["settings"])}
    result |= {"load_at_end": os.getloadavg(), "seconds in all": time.perf_counter() - began}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / file_name("against-trl", options.quick)).write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(lines(result)))


if __name__ == "__main__":
    main()
