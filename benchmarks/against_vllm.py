"""Arena's play compared with raw vLLM on the same prompts, with 1 to 128 rows in flight, on a CPU.

    make against-vllm                                                                  # makes vLLM's environment first
    python benchmarks/against_vllm.py --vllm-python .venv-vllm/bin/python           # eight minutes
    python benchmarks/against_vllm.py --vllm-python .venv-vllm/bin/python --quick   # does it still work?

`decode`: replies of exactly 48 tokens at temperature 1 to the first turns of as many negotiations as are in flight,
with new deals each round; Arena uses `engine.generate`. Both use their default prefix caches. `base`: the same with the
base model instead of the recipe's adapter, as vLLM serves it. `play`: the recipe's matches through orchestrator, games,
roles and log. vLLM receives the contexts of each batch that Arena's engine decoded, in the same order, and samples as
many tokens per row. Both caches are empty at the start of a round, as after an update. Arena records every token's
log-probability; vLLM does not return them. Ratios are Arena's tokens per second over vLLM's.

vLLM runs in its own process with the interpreter of --vllm-python. The two alternate batch by batch, and both compute
in this machine's faster precision, bfloat16 or float32. `agreement`: each scores the tokens that the other has sampled.
Writes results/against-vllm.json, or against-vllm-fp32.json.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from peer_process import ORIGINAL_ENVIRONMENT, PeerProcess, Stopwatch
from reporting import format_command, write_result

# isort: split
import arena  # noqa: F401  before torch is loaded, because it sets how OpenMP waits

# isort: split
import numpy as np
import torch
from engine_requests import make_requests
from timing import compute_ratios
from workload import DecodeBatch, open_lab, play_iteration

from agents.engines.base import Completion, Request
from agents.players.writers import script_completion
from agents.published import FolderWeights
from agents.stream import Stream
from agents.weights import DEFAULT, resolve
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import recipe_layer, set_layer
from arena.doctor import describe_environment
from arena.lab import Lab
from arena.learn.machine import find_fastest_precision

HERE = Path(__file__).parent
IN_FLIGHT = (1, 8, 32, 64, 128)
GOAL, GOAL_IN_FLIGHT = 1.0, 8
"""Minimum ratio, and the smallest number of matches in flight at which it must be reached."""
MAX_GAP = 0.1
"""Accepted mean difference of log-probabilities in nats, as between two bf16 programs."""
POLICY, BASE = "shared", "base"


def make_experiment(in_flight: int, seed: int) -> Experiment:
    """Return the negotiation recipe with `in_flight` concurrent matches, and at least eight matches."""
    layers = [f"play.matches={max(8, in_flight)}", f"play.in_flight={in_flight}", f"seed={seed}"]
    return compose([recipe_layer("negotiation"), *map(set_layer, layers)])


def make_vllm_settings(in_flight: int, quick: bool, bf16: bool) -> dict[str, Any]:
    """Return vLLM's settings: its defaults except for precision, sizes and text handling. Compiles unless `quick`."""
    settings = {"skip_tokenizer_init": True, "generation_config": "vllm", "disable_log_stats": True}
    settings |= {"dtype": "bfloat16" if bf16 else "float32"}
    return settings | {"max_model_len": 1024, "max_num_seqs": in_flight, "enforce_eager": quick}


def make_vllm_environment(python: Path) -> dict[str, str]:
    """Return the environment variables of vLLM's process, so that it uses one process and torch's own libgomp."""
    torch_lib = next(python.parent.parent.glob("lib/python*/site-packages/torch/lib"))
    gomp = ":".join(map(str, sorted(torch_lib.glob("libgomp*.so*"))[:1]))
    variables = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "2", "LD_PRELOAD": gomp}
    return variables | {name: value for name, value in ORIGINAL_ENVIRONMENT.items() if name != "PYTHONPATH"}


# -- the same prompts for both -------------------------------------------------------------------------------


def collect_openings(lab: Lab, k: int, count: int) -> list[tuple[int, ...]]:
    """Return the contexts of the first turns in iteration k. Players walk away at once, so that no model is used."""
    contexts: list[tuple[int, ...]] = []
    walk = script_completion(lab.policies[POLICY].frame, "WALK")

    async def walk_away(requests: Sequence[Request]) -> list[Completion]:
        contexts.extend(request.ids for request in requests)
        return [walk] * len(requests)

    generate, lab.engine.generate = lab.engine.generate, walk_away  # type: ignore[method-assign]
    try:
        wait(lab.play(k))
    finally:
        lab.engine.generate = generate  # type: ignore[method-assign]
    return contexts[:count]


def sample_here(lab: Lab, requests: list[Request]) -> list[Completion]:
    """Sample the replies to all requests at once, as the matches of a run do."""
    completions = asyncio.run(lab.engine.generate(requests))
    for request in requests:
        lab.engine.forget(request.key)
    return completions


def sample_by_vllm(peer: PeerProcess, batch: DecodeBatch) -> dict[str, Any]:
    """Let vLLM sample as many tokens per context as Arena did. Raises SystemExit if the numbers differ."""
    tokens = [len(completion.ids) for completion in batch.completions]
    found = peer.ask(method="generate", prompts=batch.contexts, tokens=tokens)
    if found["tokens"] != tokens:
        raise SystemExit(f"vLLM wrote {found['tokens']} tokens, not {tokens}: the comparison would not be fair")
    return found


# -- the comparisons -----------------------------------------------------------------------------------------


Rounds = dict[str, list[dict[str, float]]]


def compare_decoding(
    lab: Lab, peer: PeerProcess, in_flight: int, tokens: int, rounds: int, policy: str
) -> dict[str, Any]:
    """Time one batch of openings per round with both engines. The first round is a warm-up."""
    steps: Rounds = {"ours": [], "vllm": []}
    for k in range(rounds + 1):
        contexts = collect_openings(lab, 1000 + k, in_flight)
        requests = make_requests(contexts, tokens, f"round {k}", policy)
        watch = Stopwatch()
        completions = sample_here(lab, requests)
        ours = watch.read()
        theirs = sample_by_vllm(peer, DecodeBatch(tuple(requests), tuple(completions)))
        if k:
            steps["ours"].append(ours)
            steps["vllm"].append({name: theirs[name] for name in ours})
    return _summarize([in_flight * tokens] * rounds, steps)


def compare_play(lab: Lab, peer: PeerProcess, rounds: int) -> dict[str, Any]:
    """Time one iteration's matches per round, and then vLLM on the same batches."""
    steps: Rounds = {"ours": [], "vllm": []}
    tokens, shapes = [], []
    for k in range(1, rounds + 1):
        peer.ask(method="forget")
        watch = Stopwatch()
        record = play_iteration(lab, k)
        ours = watch.read() | {"seconds": record.seconds}
        answers = [sample_by_vllm(peer, batch) for batch in record.batches]
        steps["ours"].append(ours)
        steps["vllm"].append({name: sum(answer[name] for answer in answers) for name in ours})
        tokens.append(record.tokens)
        shapes.append([[len(batch.requests), batch.longest] for batch in record.batches])
    return {"batches [rows, longest reply]": shapes} | _summarize(tokens, steps)


def _summarize(tokens: list[int], steps: Rounds) -> dict[str, Any]:
    summary: dict[str, Any] = {"tokens": tokens, "steps": steps}
    for unit in ("seconds", "cpu_seconds"):
        rates = {side: [n / step[unit] for n, step in zip(tokens, each, strict=True)] for side, each in steps.items()}
        summary[f"tokens per {unit}"] = {side: median(each) for side, each in rates.items()}
        summary[f"ratio by {unit}"] = compute_ratios(rates["ours"], rates["vllm"])
    return summary


def measure_agreement(lab: Lab, peer: PeerProcess, tokens: int) -> dict[str, Any]:
    """Return statistics of the difference in nats between both engines' log-probabilities, by sampling engine."""
    contexts = collect_openings(lab, 999, 8)
    completions = sample_here(lab, make_requests(contexts, tokens, "agreement", POLICY))
    sequences = [[*ids, *completion.ids] for ids, completion in zip(contexts, completions, strict=True)]
    by_vllm = peer.ask(method="score", prompts=sequences, starts=[len(ids) for ids in contexts])["logprobs"]
    by_us = [completion.logprobs for completion in completions]
    found = {"sampled by us": _summarize_gaps(by_us, by_vllm)}
    theirs = peer.ask(method="generate", prompts=contexts, tokens=[tokens] * len(contexts), with_logprobs=True)
    streams = []
    for ids, reply, logprobs in zip(contexts, theirs["ids"], theirs["logprobs"], strict=True):
        streams.append(Stream())
        streams[-1].observe(ids)
        streams[-1].append_sampled(tuple(reply), tuple(logprobs), 0)
    scored = wait(lab.engine.score(POLICY, streams, [1.0] * len(streams)))
    found["sampled by vLLM"] = _summarize_gaps(theirs["logprobs"], scored)
    return found


def _summarize_gaps(
    sampler: Sequence[Sequence[float]], other: Sequence[Sequence[float] | np.ndarray]
) -> dict[str, float]:
    gaps = np.concatenate([np.asarray(a) - np.asarray(b) for a, b in zip(sampler, other, strict=True)])
    size = np.abs(gaps)
    return {"tokens": len(gaps), "mean": float(gaps.mean()), "mean size": float(size.mean()), "most": float(size.max())}


# -- the measurement -----------------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all numbers of matches in flight, with one vLLM engine and one lab per number."""
    quick = options.quick
    sizes, rounds, tokens = (IN_FLIGHT[:2], 1, 8) if quick else (IN_FLIGHT, options.rounds, 48)
    result: dict[str, Any] = {"seed": options.seed, "tokens a row": tokens, "in_flight": {}}
    python = Path(options.vllm_python).absolute()
    with PeerProcess([python, HERE / "vllm_peer.py"], make_vllm_environment(python)) as peer:
        bf16 = find_fastest_precision() == "bf16"
        settings = make_vllm_settings(max(sizes), quick, bf16)
        result["peer"] = peer.ask(model=str(resolve(DEFAULT)), settings=settings) | {"settings": settings}
        for in_flight in sizes:
            with open_lab(make_experiment(in_flight, options.seed)) as lab:
                if "agreement" not in result:
                    result["agreement"] = measure_agreement(lab, peer, tokens)
                wait(lab.engine.publish(BASE, 0, FolderWeights(resolve(DEFAULT))))
                names = {"decode": POLICY, "base": BASE}
                found = {
                    name: compare_decoding(lab, peer, in_flight, tokens, rounds, policy)
                    for name, policy in names.items()
                }
                result["in_flight"][in_flight] = found | {"play": compare_play(lab, peer, rounds)}
    return result | {"threads": torch.get_num_threads()} | judge_goals(result)


def judge_goals(result: dict[str, Any]) -> dict[str, Any]:
    """Compare the lowest ratios from `GOAL_IN_FLIGHT` on, and the mean log-probability gap, with their goals."""
    verdicts = {}
    for name in ("decode", "base", "play"):
        lowest = min(
            v[name]["ratio by seconds"]["median"] for n, v in result["in_flight"].items() if n >= GOAL_IN_FLIGHT
        )
        verdicts[name] = {"least_ratio": lowest, "goal": GOAL, "from": GOAL_IN_FLIGHT, "met": lowest >= GOAL}
    gap = max(side["mean size"] for side in result["agreement"].values())
    return {"verdict": verdicts | {"agreement": {"mean_size": gap, "goal": MAX_GAP, "met": gap <= MAX_GAP}}}


def format_summary(result: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the printed summary."""
    yield "in flight           tokens/s: ours    vLLM    ours / vLLM    by CPU time"
    for in_flight, found in result["in_flight"].items():
        for name, figures in found.items():
            rate = figures["tokens per seconds"]
            ratio, cpu = figures["ratio by seconds"]["median"], figures["ratio by cpu_seconds"]["median"]
            yield f"    {in_flight:>4} {name:8} {rate['ours']:16.0f} {rate['vllm']:7.0f} {ratio:14.2f} {cpu:14.2f}"
    for name, goal in result["verdict"].items():
        if name == "agreement":
            claim, figure = f"log-probabilities within {MAX_GAP} nats of vLLM's", goal["mean_size"]
        else:
            claim, figure = f"{name} at least as fast as vLLM from {GOAL_IN_FLIGHT} in flight on", goal["least_ratio"]
        yield f"{claim:54} {figure:.3f}    {'met' if goal['met'] else 'NOT met'}"


def main() -> None:
    """Measure all sizes and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", required=True, help="the interpreter of an environment with vLLM")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.perf_counter()
    result: dict[str, Any] = {"command": format_command()}
    result |= {"machine": describe_environment(), "load_at_start": os.getloadavg(), "model": DEFAULT}
    result |= measure(options)
    result |= {"load_at_end": os.getloadavg(), "seconds in all": time.perf_counter() - began}
    fp32 = "-fp32" * (result["peer"]["settings"]["dtype"] == "float32")
    write_result(f"against-vllm{fp32}", result, options.quick)
    print("\n".join(format_summary(result)))


if __name__ == "__main__":
    main()
