"""One whole iteration of Arena beside one step of TRL's GRPOTrainer: same model, same prompt, same number of tokens.

    python tests/benchmarks/against_trl.py            # a few minutes
    python tests/benchmarks/against_trl.py --quick    # one round, few tokens: does it still work?

Ours is `Lab.iterate`: play 8 matches of a negotiation's first turn (one deal, a GRPO group), log, credit, learn with a
KL to a reference, publish, rate, seal. TRL's is a step with 8 completions of such a prompt, rewards, reference, update.
Both write exactly 48 tokens each, at temperature 1, bf16 over float32 weights, AdamW, one optimiser step. TRL runs in a
process of its own, once for each of its settings, and all take turns, step by step. No checkpoints, no evaluation.

The verdict is by TRL's fastest setting that keeps weights and optimiser in float32 as we do; `bf16 weights` is what it
would take with less exact learning. Writes results/against-trl.json.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from neighbour import THEIRS, Neighbour, Stopwatch

# isort: split
import arena  # noqa: F401  before torch is loaded: it says how OpenMP waits

# isort: split
import torch
from timing import ratios
from workload import open_lab

from agents.engines.base import Completion, Request
from agents.weights import DEFAULT, resolve
from arena.config import Experiment, compose, recipe_layer, set_layer
from arena.doctor import environment
from arena.lab import Lab

HERE = Path(__file__).parent
RESULTS = HERE / "results"
GOAL = 0.6
ROWS = 8
EQUAL = ("autocast", "fp32")
"""TRL's settings with float32 weights and optimiser."""


def experiment_of(seed: int) -> Experiment:
    """GRPO on a negotiation of one turn; a reward for unlike words sees to it that advantages are not all zero."""
    layers = [
        "game.options={illegal: end, max_turns: 1}",
        f"play={{matches: {ROWS}, group: {ROWS}, in_flight: {ROWS}}}",
        "credit={estimator: grpo, stages: [{repetition: {weight: 0.2}}]}",
        "iterations=1000",
        "checkpoint.every=1000",
        f"seed={seed}",
    ]
    return compose([recipe_layer("negotiation"), *map(set_layer, layers)])


class FixedLength:
    """Has every reply of an engine be of the same length, and notes what it was asked."""

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


def measure(seed: int, tokens: int, rounds: int, settings: Sequence[str]) -> dict[str, Any]:
    """Seconds of every step of ours and of TRL's settings, in turns."""
    experiment = experiment_of(seed)
    rule = experiment.learn
    asked = {"model": str(resolve(DEFAULT)), "rows": ROWS, "tokens": tokens, "steps": rounds + 1, "seed": seed}
    asked |= {"lr": rule.lr, "betas": rule.betas, "grad_clip": rule.grad_clip, "beta": 0.02}
    steps: dict[str, list[dict[str, float]]] = {name: [] for name in ("arena", *settings)}
    with open_lab(experiment) as lab, ExitStack() as stack:
        fixed = FixedLength(lab, tokens)
        lab.iterate(1)  # unmeasured: kernels are chosen and memory is taken
        prompt, ours = fixed.prompts[0], [fixed.take()]
        ready, peers = {}, {}
        for name in settings:
            peers[name] = stack.enter_context(Neighbour([sys.executable, HERE / "trl_peer.py"], THEIRS))
            ready[name] = peers[name].ask(setting=name, prompt=prompt, **asked)
            peers[name].ask()  # unmeasured likewise
        for k in range(2, rounds + 2):
            watch = Stopwatch()
            row = lab.iterate(k)
            steps["arena"].append(watch.read() | row["seconds"])
            ours.append(fixed.take())
            for name, peer in peers.items():
                steps[name].append(peer.ask())
    if any(count != tokens for part in ours for count in part["replies"]):
        raise SystemExit("a reply of ours was not as long as it should be: no fair comparison")
    return {
        "seed": seed,
        "rows": ROWS,
        "tokens": tokens,
        "lengths of our prompts": sorted({n for part in ours for n in part["prompts"]}),
        "length of TRL's prompt": len(prompt),
        "threads": torch.get_num_threads(),
        "peers": ready,
        "steps": steps,
    }


def compared(steps: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Ours over each of TRL's settings, by wall and by processor time, and the verdict."""
    found: dict[str, Any] = {}
    for what in ("seconds", "cpu_seconds"):
        each = {name: [step[what] for step in done] for name, done in steps.items()}
        found[what] = {name: median(times) for name, times in each.items()}
        found[f"ratio of {what}"] = {name: ratios(each["arena"], each[name]) for name in each if name != "arena"}
    best = min((name for name in EQUAL if name in steps), key=lambda name: found["seconds"][name])
    figure = found["ratio of seconds"][best]["median"]
    verdict = {"against": best, "ratio": figure, "goal": GOAL, "met": figure <= GOAL}
    return found | {"verdict": verdict}


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The figures worth a glance."""
    yield f"a step of {result['rows']} × {result['tokens']} tokens, median of {len(result['steps']['arena'])}"
    for name, seconds in result["seconds"].items():
        ratio = result["ratio of seconds"].get(name, {"median": 1.0})["median"]
        cpu = result["ratio of cpu_seconds"].get(name, {"median": 1.0})["median"]
        whose = "Arena" if name == "arena" else f"TRL, {name}"
        yield f"    {whose:20} {seconds:6.2f} s    Arena / it: {ratio:.2f} by the clock, {cpu:.2f} by CPU time"
    verdict = result["verdict"]
    yield (
        f"an iteration takes at most {GOAL} of TRL's ({verdict['against']})    {verdict['ratio']:.2f}    "
        f"{'met' if verdict['met'] else 'NOT met'}"
    )


def main() -> None:
    """Measure and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.perf_counter()
    result: dict[str, Any] = {"command": " ".join(["python", "tests/benchmarks/against_trl.py", *sys.argv[1:]])}
    result |= {"machine": environment(), "load_at_start": os.getloadavg(), "model": DEFAULT}
    if options.quick:
        result |= measure(options.seed, 8, 1, ["autocast"])
    else:
        result |= measure(options.seed, 48, options.rounds, ["autocast", "fp32", "bf16 weights"])
    result |= compared(result["steps"])
    result |= {"load_at_end": os.getloadavg(), "seconds in all": time.perf_counter() - began}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"against-trl{'-quick' if options.quick else ''}.json").write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(lines(result)))


if __name__ == "__main__":
    main()
