"""Time of a full Arena iteration compared with a step of TRL's GRPOTrainer, with the same model, prompt and tokens.

    python benchmarks/against_trl.py                           # a few minutes
    python benchmarks/against_trl.py --rows 64 --tokens 128    # other sizes, as for a GPU
    python benchmarks/against_trl.py --quick                   # one round, few tokens: does it still work?

Arena runs `Lab.iterate`: it plays 8 matches of a negotiation's first turn (one deal, a GRPO group), logs them, assigns
credit, learns with a KL to a reference, publishes, rates and commits. TRL takes a step with 8 completions of the same
prompt: rewards, reference, update. Both sample exactly 48 tokens per reply at temperature 1, compute in bf16 over
float32 weights, and take one AdamW step. TRL runs in its own process, once per setting, and alternates with Arena step
by step. There are no checkpoints and no evaluation. On a GPU both take all rows in one micro-batch, and the result file
is named after the GPU.

The verdict uses TRL's fastest setting with float32 weights and optimiser, as in Arena. `bf16 weights` shows the time of
less precise learning. Writes results/against-trl.json.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from peer_process import ORIGINAL_ENVIRONMENT, PeerProcess, Stopwatch
from reporting import format_command, write_result

# isort: split
import arena  # noqa: F401  before torch is loaded, because it sets how OpenMP waits

# isort: split
import torch
from timing import add_device, compute_ratios
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
GOAL = 0.6
"""Maximum ratio of Arena's time to TRL's."""
ROWS, TOKENS = 8, 48
GPU_SETTINGS = ("learn.token_budget=65536",)
"""All rows in one micro-batch, as in TRL. A CPU is faster with few tokens at a time."""
EQUAL_PRECISION = ("autocast", "fp32")
"""TRL's settings with float32 weights and optimiser."""


def make_experiment(seed: int, rows: int, group: int) -> Experiment:
    """Return a GRPO experiment on a negotiation of one turn, in which `group` replies share a prompt.

    As in TRL, all weights are trained without gradient checkpointing.
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
        *(GPU_SETTINGS if torch.cuda.is_available() else ()),
    ]
    return compose([recipe_layer("negotiation-shown"), *map(set_layer, layers)])


class FixedLength:
    """Wrapper of a lab's engine that makes all replies `tokens` long, and records prompts and reply lengths."""

    def __init__(self, lab: Lab, tokens: int) -> None:
        self.tokens, self.generate = tokens, lab.engine.generate
        self.prompts: list[tuple[int, ...]] = []
        self.reply_lengths: list[int] = []
        lab.engine.generate = self  # type: ignore[method-assign]

    async def __call__(self, requests: Sequence[Request]) -> list[Completion]:
        """Generate replies of the fixed length, without stop ids."""
        fixed = [replace(request, max_tokens=self.tokens, stop_ids=frozenset()) for request in requests]
        self.prompts += [request.ids for request in requests]
        completions = await self.generate(fixed)
        self.reply_lengths += [len(completion.ids) for completion in completions]
        return completions

    def take_lengths(self) -> dict[str, list[int]]:
        """Return the lengths of the prompts and replies since the last call, and forget them."""
        found = {"prompts": [len(prompt) for prompt in self.prompts], "replies": self.reply_lengths}
        self.prompts, self.reply_lengths = [], []
        return found


def measure(
    seed: int, rows: int, tokens: int, rounds: int, settings: Sequence[str], group: int | None = None
) -> dict[str, Any]:
    """Time alternating steps of Arena and TRL, for each of TRL's settings. Returns all times with their ratios.

    `group` is the number of Arena's replies that share a prompt (None: all).
    """
    experiment = make_experiment(seed, rows, group or rows)
    rule = experiment.learn
    request = {"model": str(resolve(DEFAULT)), "rows": rows, "tokens": tokens, "steps": rounds + 1, "seed": seed}
    request |= {"lr": rule.lr, "betas": rule.betas, "grad_clip": rule.grad_clip, "beta": 0.02}
    pairs: dict[str, dict[str, Any]] = {}
    with open_lab(experiment) as lab:
        fixed = FixedLength(lab, tokens)
        wait(lab.iterate(1))  # warm-up: chooses kernels and allocates memory
        prompt = fixed.prompts[0]
        for name in settings:
            pairs[name] = {"arena": [], "trl": []}
            with PeerProcess([sys.executable, HERE / "trl_peer.py"], ORIGINAL_ENVIRONMENT) as peer:
                pairs[name]["peer"] = peer.ask(setting=name, prompt=prompt, **request)
                peer.ask()  # warm-up
                for _ in range(rounds):
                    watch = Stopwatch()
                    row = wait(lab.iterate(lab.done + 1))
                    pairs[name]["arena"].append(watch.read() | {"parts": row["seconds"]})
                    pairs[name]["trl"].append(peer.ask())
        lengths = fixed.take_lengths()
    if set(lengths["replies"]) != {tokens}:
        raise SystemExit("a reply of Arena does not have the requested length: the comparison would not be fair")
    sizes = {"lengths of our prompts": sorted(set(lengths["prompts"])), "length of TRL's prompt": len(prompt)}
    counts = {"seed": seed, "rows": rows, "tokens": tokens, "rounds": rounds, "threads": torch.get_num_threads()}
    return counts | sizes | {"settings": {name: pair | compare(pair) for name, pair in pairs.items()}}


def compare(pair: dict[str, Any]) -> dict[str, Any]:
    """Return the median wall and CPU seconds of both sides, and the ratios of Arena's steps to TRL's."""
    result: dict[str, Any] = {}
    for unit in ("seconds", "cpu_seconds"):
        times_by_side = {side: [step[unit] for step in pair[side]] for side in ("arena", "trl")}
        result[unit] = {side: median(times) for side, times in times_by_side.items()}
        result[f"ratio of {unit}"] = compute_ratios(times_by_side["arena"], times_by_side["trl"])
    return result


def judge_ratio(settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Compare the ratio to TRL's fastest setting of equal precision with the goal."""
    ratios = {name: settings[name]["ratio of seconds"]["median"] for name in EQUAL_PRECISION if name in settings}
    best = max(ratios, key=lambda name: ratios[name])
    return {"against": best, "ratio": ratios[best], "goal": GOAL, "met": ratios[best] <= GOAL}


def format_summary(result: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the printed summary."""
    yield f"a step of {result['rows']} × {result['tokens']} tokens, median of {result['rounds']}"
    for name, found in result["settings"].items():
        seconds, ratio = found["seconds"], found["ratio of seconds"]["median"]
        yield (
            f"    TRL, {name:14} {seconds['trl']:6.2f} s    Arena {seconds['arena']:6.2f} s    Arena / TRL "
            f"{ratio:.2f} by wall time, {found['ratio of cpu_seconds']['median']:.2f} by CPU time"
        )
    goal = result["verdict"]
    claim = f"an iteration takes at most {GOAL} of TRL's step ({goal['against']})"
    yield f"{claim:54} {goal['ratio']:.2f}    {'met' if goal['met'] else 'NOT met'}"


def main() -> None:
    """Measure all settings and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    result: dict[str, Any] = {"command": format_command()}
    result |= {"machine": describe_environment(), "load_at_start": os.getloadavg(), "model": DEFAULT}
    if options.quick:
        result |= measure(options.seed, options.rows, 8, 1, ["autocast"])
    else:
        sizes = options.rows, options.tokens, options.rounds
        result |= measure(options.seed, *sizes, ["autocast", "fp32", "bf16 weights"])
    result |= {"verdict": judge_ratio(result["settings"])}
    result |= {"load_at_end": os.getloadavg(), "seconds in all": time.perf_counter() - start}
    write_result(add_device("against-trl"), result, options.quick)
    print("\n".join(format_summary(result)))


if __name__ == "__main__":
    main()
