"""Arena's play beside raw vLLM on the same prompts, with 1 to 128 rows in flight. CPU builds of both.

    make against-vllm                                                                  # makes vLLM's environment first
    python benchmarks/against_vllm.py --vllm-python .venv-vllm/bin/python           # eight minutes
    python benchmarks/against_vllm.py --vllm-python .venv-vllm/bin/python --quick   # does it still work?

`decode`: the openings of that many negotiations, new deals in each round, exactly 48 new tokens each at temperature 1;
ours through `engine.generate`, prefix caches of both as they come. `base`: the same without the recipe's adapter, which
vLLM does not serve either. `play`: the recipe's matches through orchestrator,
games, roles and log; vLLM gets the contexts of every batch that our engine decoded, in the same order, and samples as
many tokens for each row as ours did; both caches are empty when a round begins, as after an update. We keep every
token's log-probability, vLLM is not asked for it. Ratios are of tokens a second, ours over vLLM's: above 1 is faster.

vLLM runs in a process of its own, whose interpreter --vllm-python names, and both sides take turns batch by batch.
Both compute in what is fastest here, bfloat16 or float32. `agreement`: what each samples is scored by the other. Writes
results/against-vllm.json, or against-vllm-fp32.json.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from neighbour import THEIRS, Neighbour, Stopwatch

# isort: split
import arena  # noqa: F401  before torch is loaded: it says how OpenMP waits

# isort: split
import numpy as np
import torch
from timing import ratios
from workload import DecodeBatch, open_lab, play, requests_for

from agents.engines.base import Completion, Request
from agents.players.model import spoken
from agents.published import FolderWeights
from agents.stream import Stream
from agents.weights import DEFAULT, resolve
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import recipe_layer, set_layer
from arena.doctor import environment
from arena.lab import Lab
from arena.learn.machine import find_fastest_precision

HERE = Path(__file__).parent
RESULTS = HERE / "results"
IN_FLIGHT = (1, 8, 32, 64, 128)
GOAL, FROM = 1.0, 8
"""The ratio to reach, and from how many in flight on."""
CLOSE = 0.1
"""Mean difference of log-probabilities, in nats, between two bf16 programs that compute the same."""
POLICY, BASE = "shared", "base"


def experiment_of(in_flight: int, seed: int) -> Experiment:
    """The negotiation recipe with that many matches at once, at least eight of them."""
    layers = [f"play.matches={max(8, in_flight)}", f"play.in_flight={in_flight}", f"seed={seed}"]
    return compose([recipe_layer("negotiation"), *map(set_layer, layers)])


def settings(in_flight: int, quick: bool, bf16: bool) -> dict[str, Any]:
    """vLLM's: its own defaults but for precision, size, and what has to do with text; compiled, where time allows."""
    plain = {"skip_tokenizer_init": True, "generation_config": "vllm", "disable_log_stats": True}
    plain |= {"dtype": "bfloat16" if bf16 else "float32"}
    return plain | {"max_model_len": 1024, "max_num_seqs": in_flight, "enforce_eager": quick}


def their_environment(python: Path) -> dict[str, str]:
    """One process, which uses all cores as vLLM's own workers do: on the libgomp that torch comes with."""
    torch_lib = next(python.parent.parent.glob("lib/python*/site-packages/torch/lib"))
    gomp = ":".join(map(str, sorted(torch_lib.glob("libgomp*.so*"))[:1]))
    own = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "2", "LD_PRELOAD": gomp}
    return own | {name: value for name, value in THEIRS.items() if name != "PYTHONPATH"}


# -- the same prompts for both -----------------------------------------------------------------------------


def openings(lab: Lab, k: int, count: int) -> list[tuple[int, ...]]:
    """The contexts in which matches of iteration k open. Their players walk away, so that no model is asked."""
    asked: list[tuple[int, ...]] = []
    walk = spoken(lab.policies[POLICY].frame, "WALK")

    async def walks(requests: Sequence[Request]) -> list[Completion]:
        asked.extend(request.ids for request in requests)
        return [walk] * len(requests)

    generate, lab.engine.generate = lab.engine.generate, walks  # type: ignore[method-assign]
    try:
        wait(lab.play(k))
    finally:
        lab.engine.generate = generate  # type: ignore[method-assign]
    return asked[:count]


def ask_ours(lab: Lab, requests: list[Request]) -> list[Completion]:
    """All at once, as the matches of a run do."""
    completions = asyncio.run(lab.engine.generate(requests))
    for request in requests:
        lab.engine.forget(request.key)
    return completions


def ask_theirs(peer: Neighbour, batch: DecodeBatch) -> dict[str, Any]:
    """As many tokens for each context as ours sampled."""
    tokens = [len(completion.ids) for completion in batch.completions]
    found = peer.ask(what="generate", prompts=batch.contexts, tokens=tokens)
    if found["tokens"] != tokens:
        raise SystemExit(f"vLLM wrote {found['tokens']} tokens, not {tokens}: no fair comparison")
    return found


# -- what is compared --------------------------------------------------------------------------------------


Rounds = dict[str, list[dict[str, float]]]


def decoding(lab: Lab, peer: Neighbour, in_flight: int, tokens: int, rounds: int, policy: str) -> dict[str, Any]:
    """One batch of openings in each round; the first is not measured."""
    steps: Rounds = {"ours": [], "vllm": []}
    for k in range(rounds + 1):
        contexts = openings(lab, 1000 + k, in_flight)
        requests = requests_for(contexts, tokens, f"round {k}", policy)
        watch = Stopwatch()
        completions = ask_ours(lab, requests)
        ours = watch.read()
        theirs = ask_theirs(peer, DecodeBatch(tuple(requests), tuple(completions)))
        if k:
            steps["ours"].append(ours)
            steps["vllm"].append({name: theirs[name] for name in ours})
    return _compared([in_flight * tokens] * rounds, steps)


def playing(lab: Lab, peer: Neighbour, rounds: int) -> dict[str, Any]:
    """An iteration's matches, and then their batches by vLLM."""
    steps: Rounds = {"ours": [], "vllm": []}
    tokens, shapes = [], []
    for k in range(1, rounds + 1):
        peer.ask(what="forget")
        watch = Stopwatch()
        played = play(lab, k)
        ours = watch.read() | {"seconds": played.seconds}
        answers = [ask_theirs(peer, batch) for batch in played.batches]
        steps["ours"].append(ours)
        steps["vllm"].append({name: sum(answer[name] for answer in answers) for name in ours})
        tokens.append(played.tokens)
        shapes.append([[len(batch.requests), batch.longest] for batch in played.batches])
    return {"batches [rows, longest reply]": shapes} | _compared(tokens, steps)


def _compared(tokens: list[int], steps: Rounds) -> dict[str, Any]:
    found: dict[str, Any] = {"tokens": tokens, "steps": steps}
    for what in ("seconds", "cpu_seconds"):
        rates = {s: [n / step[what] for n, step in zip(tokens, done, strict=True)] for s, done in steps.items()}
        found[f"tokens per {what}"] = {side: median(each) for side, each in rates.items()}
        found[f"ratio by {what}"] = ratios(rates["ours"], rates["vllm"])
    return found


def agreement(lab: Lab, peer: Neighbour, tokens: int) -> dict[str, Any]:
    """Log-probabilities of what one side sampled, by that side less by the other: of the same ids, in nats."""
    contexts = openings(lab, 999, 8)
    completions = ask_ours(lab, requests_for(contexts, tokens, "agreement", POLICY))
    whole = [[*ids, *completion.ids] for ids, completion in zip(contexts, completions, strict=True)]
    by_vllm = peer.ask(what="score", prompts=whole, starts=[len(ids) for ids in contexts])["logprobs"]
    by_us = [completion.logprobs for completion in completions]
    found = {"sampled by us": _gap(by_us, by_vllm)}
    theirs = peer.ask(what="generate", prompts=contexts, tokens=[tokens] * len(contexts), noted=True)
    streams = []
    for ids, said, logprobs in zip(contexts, theirs["ids"], theirs["logprobs"], strict=True):
        streams.append(Stream())
        streams[-1].observe(ids)
        streams[-1].wrote(tuple(said), tuple(logprobs), 0)
    scored = wait(lab.engine.score(POLICY, streams, [1.0] * len(streams)))
    found["sampled by vLLM"] = _gap(theirs["logprobs"], scored)
    return found


def _gap(sampler: Sequence[Sequence[float]], other: Sequence[Sequence[float] | np.ndarray]) -> dict[str, float]:
    gaps = np.concatenate([np.asarray(a) - np.asarray(b) for a, b in zip(sampler, other, strict=True)])
    size = np.abs(gaps)
    return {"tokens": len(gaps), "mean": float(gaps.mean()), "mean size": float(size.mean()), "most": float(size.max())}


# -- the whole ---------------------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All sizes, with one engine of vLLM's and a lab of ours for each."""
    quick = options.quick
    sizes, rounds, tokens = (IN_FLIGHT[:2], 1, 8) if quick else (IN_FLIGHT, options.rounds, 48)
    result: dict[str, Any] = {"seed": options.seed, "tokens a row": tokens, "in_flight": {}}
    python = Path(options.vllm_python).absolute()
    with Neighbour([python, HERE / "vllm_peer.py"], their_environment(python)) as peer:
        bf16 = find_fastest_precision() == "bf16"
        asked = settings(max(sizes), quick, bf16)
        result["peer"] = peer.ask(model=str(resolve(DEFAULT)), settings=asked) | {"settings": asked}
        for in_flight in sizes:
            with open_lab(experiment_of(in_flight, options.seed)) as lab:
                if "agreement" not in result:
                    result["agreement"] = agreement(lab, peer, tokens)
                wait(lab.engine.publish(BASE, 0, FolderWeights(resolve(DEFAULT))))
                names = {"decode": POLICY, "base": BASE}
                found = {what: decoding(lab, peer, in_flight, tokens, rounds, own) for what, own in names.items()}
                result["in_flight"][in_flight] = found | {"play": playing(lab, peer, rounds)}
    return result | {"threads": torch.get_num_threads()} | verdict(result)


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """The least ratio where the goal holds, and whether both compute the same."""
    found = {}
    for what in ("decode", "base", "play"):
        least = min(v[what]["ratio by seconds"]["median"] for n, v in result["in_flight"].items() if n >= FROM)
        found[what] = {"least_ratio": least, "goal": GOAL, "from": FROM, "met": least >= GOAL}
    gap = max(side["mean size"] for side in result["agreement"].values())
    return {"verdict": found | {"agreement": {"mean_size": gap, "goal": CLOSE, "met": gap <= CLOSE}}}


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The figures worth a glance."""
    yield "in flight           tokens/s: ours    vLLM    ours / vLLM    by CPU time"
    for in_flight, found in result["in_flight"].items():
        for what, figures in found.items():
            rate = figures["tokens per seconds"]
            ratio, cpu = figures["ratio by seconds"]["median"], figures["ratio by cpu_seconds"]["median"]
            yield f"    {in_flight:>4} {what:8} {rate['ours']:16.0f} {rate['vllm']:7.0f} {ratio:14.2f} {cpu:14.2f}"
    for what, goal in result["verdict"].items():
        if what == "agreement":
            claim, figure = f"log-probabilities within {CLOSE} nats of vLLM's", goal["mean_size"]
        else:
            claim, figure = f"{what} at least as fast as vLLM from {FROM} in flight on", goal["least_ratio"]
        yield f"{claim:54} {figure:.3f}    {'met' if goal['met'] else 'NOT met'}"


def main() -> None:
    """Measure and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", required=True, help="the interpreter of an environment with vLLM")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.perf_counter()
    result: dict[str, Any] = {"command": " ".join(["python", "benchmarks/against_vllm.py", *sys.argv[1:]])}
    result |= {"machine": environment(), "load_at_start": os.getloadavg(), "model": DEFAULT}
    result |= measure(options)
    result |= {"load_at_end": os.getloadavg(), "seconds in all": time.perf_counter() - began}
    RESULTS.mkdir(exist_ok=True)
    fp32, quick = "-fp32" * (result["peer"]["settings"]["dtype"] == "float32"), "-quick" * options.quick
    (RESULTS / f"against-vllm{fp32}{quick}.json").write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(lines(result)))


if __name__ == "__main__":
    main()
