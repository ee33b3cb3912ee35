"""How fast is Arena? Each figure beside a bare transformers program doing the same work in the same process.

    python tests/benchmarks/speed.py                  # SmolLM2, on the GPU if there is one; minutes
    python tests/benchmarks/speed.py --model nano     # the same for the tiny policy
    python tests/benchmarks/speed.py --quick          # one round of everything, small: does it still work?

Writes results/speed-cpu.json or results/speed-cuda.json (`speed-cpu-nano.json`, `…-quick.json` likewise).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import agents.scoring
from agents.engines.base import Request
from agents.scoring import pack
from agents.weights import DEFAULT, load_model
from arena.doctor import environment
from arena.lab import Lab
from arena.learn.trainer import Sample
from peers import BareGenerate, BareTraining
from timing import ratios, seconds_of, take_turns
from workload import Played, device_of, experiment_for, open_lab, play, recipe_of, samples_from, settings

HERE = Path(__file__).parent
RESULTS = HERE / "results"
TARGETS = {"play": 0.8, "train": 0.9}


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int
    rows: int
    context: int
    new: int


def size_for(quick: bool) -> Size:
    """More on a GPU, where it costs seconds."""
    if quick:
        return Size(rounds=1, rows=8, context=32, new=8)
    return Size(5, 32, 256, 24) if torch.cuda.is_available() else Size(2, 32, 64, 24)


# -- 1: from the command to the first match ---------------------------------------------------------------


def first_match(model: str, repeats: int, warm: int) -> dict[str, Any]:
    """Seconds from `arena run` to the first finished match on the disk, by what the run folder shows."""
    runs = [_one_start(model) for _ in range(warm + repeats)][warm:]
    command = " ".join(["arena", *_start_command(model, Path("RUN"))[3:]])
    what = (
        "a fresh process, polled every 20 ms, killed after its first match; files cached by an unmeasured first run. "
        "imports: until config.yaml is there (python, torch, transformers, the checked experiment); load: from there "
        "to the first event file (deepspeed, weights, reference, optimiser; nano: its warm start comes before); "
        "play: from there to the first line of log/0001.jsonl"
    )
    parts = {part: median(run[part] for run in runs) for part in runs[0]}
    return {"what": what, "command": command, "repeats": runs, "median": parts}


def _start_command(model: str, out: Path) -> list[str]:
    command = [sys.executable, "-m", "arena", "run", "selfplay", "--game", "negotiation", "--json"]
    command += ["--recipe", recipe_of(model), "--iterations", "1", "--out", str(out)]
    for setting in [*settings(model, False), "play.matches=2"]:
        command += ["--set", setting]
    return command


def _one_start(model: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "errors", "w+") as errors:
        out = Path(folder) / "run"
        signs = {"imports": out / "config.yaml", "load": out / "tensorboard", "play": out / "log" / "0001.jsonl"}
        begun = last = time.perf_counter()
        process = subprocess.Popen(_start_command(model, out), stdout=subprocess.DEVNULL, stderr=errors)
        found: dict[str, float] = {}
        try:
            for part, sign in signs.items():
                while not (sign.is_dir() or (sign.is_file() and sign.stat().st_size)):
                    if process.poll() is not None:
                        errors.seek(0)
                        raise SystemExit(f"arena run ended before its first match:\n{errors.read()}")
                    time.sleep(0.02)
                found[part], last = time.perf_counter() - last, time.perf_counter()
        finally:
            process.kill()
            process.wait()
    return found | {"total": last - begun}


# -- 2 and 5: where an iteration's time goes, peak memory -------------------------------------------------


def whole_iterations(model: str, quick: bool) -> dict[str, Any]:
    """Two iterations of the recipe in a process of their own; see one_iteration.py."""
    command = [sys.executable, str(HERE / "one_iteration.py"), "--model", model, *(["--quick"] if quick else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return found | {"command": " ".join(["python", "tests/benchmarks/one_iteration.py", *command[2:]])}


# -- 3: play against generate -----------------------------------------------------------------------------


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
            seconds[name].append(seconds_of(lambda peer=peer, batches=played.batches: peer.replay(batches))[0])
    assert played is not None
    what = {
        "ours": "one iteration's matches of the recipe, both seats one untrained policy: orchestrator, games, roles, "
        "fsynced log, engine with its caches dropped before each round. Shares a role's opening between rows and "
        "keeps each stream's keys and values between turns",
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
    found = {"what": what, "seconds": seconds, "whole": _compared(whole)}
    return found | {"after_first": _compared(after) if size.rounds > 1 else after}


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
        lab.publish()  # drops what earlier rounds left in the caches
        lab.engine.decode(policy, requests)

    return work


def _after_first(one: list[float], all_: list[float], size: Size) -> list[float]:
    return [size.rows * (size.new - 1) / max(1e-9, b - a) for a, b in zip(one, all_, strict=True)]


# -- 4: the update against a plain training step ----------------------------------------------------------


def training(lab: Lab, bare: BareTraining, samples: list[Sample], rounds: int) -> dict[str, Any]:
    """One optimiser step on the streams of real matches."""
    trainer = next(iter(lab.trainers.values()))
    trainer.rule = replace(trainer.rule, lr=0.0, epochs=1, minibatches=1)
    unshared = patch.object(agents.scoring, "_shared_opening", lambda family: 0)
    streams, heat, budget = [s.stream for s in samples], [s.temperature for s in samples], trainer.rule.token_budget

    def composition() -> list[list[int]]:
        return [list(batch.index) for batch in pack(streams, heat, budget)]

    def ours() -> None:
        trainer.update(samples, np.random.default_rng(0))

    def ours_unshared() -> None:
        with unshared:
            ours()

    same_rows = composition()
    with unshared:
        same_budget = composition()
    arms = {"ours": ours, "bare, same rows": lambda: bare.step(samples, same_rows)}
    if same_budget != same_rows:
        arms |= {"ours, no shared prefix": ours_unshared, "bare, same budget": lambda: bare.step(samples, same_budget)}
    few = samples[:2]
    bare.step(few, [[0], [1]][: len(few)])
    trainer.update(few, np.random.default_rng(0))
    seconds = take_turns(arms, rounds)
    tokens = sum(len(stream.ids) for stream in streams)
    what = {
        "ours": "PolicyTrainer.update: micro-batches of at most `token_budget` padded ids, the role's opening run "
        "once per micro-batch, logits at sampled positions only, entropy and statistics, gate, DeepSpeed",
        "ours, no shared prefix": "the same with every stream run whole",
        "bare": BareTraining.what,
        "same rows": "micro-batches of the streams that share one of ours",
        "same budget": "micro-batches of at most `token_budget` padded ids without sharing",
        "tokens": "ids of all streams, the same count for every arm; `sampled` of them bear the loss",
    }
    rates = {name: [tokens / s for s in times] for name, times in seconds.items()}
    counts = {"streams": len(samples), "tokens": tokens, "sampled": sum(len(s.advantages) for s in samples)}
    rows = {"same rows": [len(b) for b in same_rows], "same budget": [len(b) for b in same_budget]}
    return {"what": what, "token_budget": budget, **counts, "micro_batches": rows, "seconds": seconds} | _compared(
        rates
    )


# -- the whole ---------------------------------------------------------------------------------------------


def _compared(rates: dict[str, list[float]]) -> dict[str, Any]:
    """Tokens/s of every arm, and of ours over each peer's."""
    ours = [name for name in rates if name.startswith("ours")]
    against = {f"{a} / {b}": ratios(rates[a], rates[b]) for a in ours for b in rates if b not in ours}
    return {"tokens_per_second": {n: {"rounds": r, "median": median(r)} for n, r in rates.items()}, "ratio": against}


def in_process(model: str, quick: bool) -> dict[str, Any]:
    """Figures 3 and 4: one lab, and beside it a peer with weights of its own."""
    size, experiment = size_for(quick), experiment_for(model, quick)
    with open_lab(experiment) as lab:
        lab.imitate()
        device, folder, bf16 = device_of(lab), next(iter(lab.policies.values())).source, experiment.precision == "bf16"
        peer = load_model(folder).to(device)
        bare = {"bare, autocast" if bf16 else "bare": BareGenerate(peer, autocast=bf16)}
        if bf16:
            bare["bare, bf16 weights"] = BareGenerate(load_model(folder, torch.bfloat16).to(device), autocast=False)
        play(lab, 0)  # unmeasured: kernels are chosen and memory is taken
        for one in bare.values():
            one([[5, 6, 7]] * size.rows, 2)
        played_figures, played = playing(lab, bare, size.rounds)
        found = {"play": played_figures, "decode": decoding(lab, bare, size)}
        samples = samples_from(lab, size.rounds, played)
        bare_training = BareTraining(peer, next(iter(lab.trainers.values())).rule)
        found["train"] = training(lab, bare_training, samples, size.rounds)
    threads = torch.get_num_threads()
    return found | {"seed": experiment.seed, "precision": experiment.precision, "threads": threads}


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """The worst ratio of ours as it is to any peer, against the target."""
    found = {}
    for name, target in TARGETS.items():
        worst = min(r["median"] for pair, r in result[name]["ratio"].items() if pair.startswith("ours / "))
        found[name] = {"worst_ratio": worst, "target": target, "met": worst >= target}
    return found


def table(result: dict[str, Any]) -> str:
    """The figures worth a glance."""
    parts = result["first_match"]["median"]
    lines = ["first match     " + "  ".join(f"{name} {value:.1f} s" for name, value in parts.items())]
    for part in result["iteration"]["iterations"]:
        named = ("iterate", "play", "learn", "commit")
        lines.append(
            f"iteration {part['iteration']}     " + "  ".join(f"{n} {part['seconds'][n]:.2f} s" for n in named)
        )
        lines += [f"    {name} {100 * share:.1f} %" for name, share in part["shares"].items()]
    lines += [f"memory          {when}: {most}" for when, most in result["iteration"]["peak_memory"].items()]
    compared = {"play": result["play"], "decode": result["decode"]["whole"], "train": result["train"]}
    for name, figures in compared.items():
        lines.append(f"{name}, tokens/s")
        lines += [f"    {arm:32} {rate['median']:.0f}" for arm, rate in figures["tokens_per_second"].items()]
        lines += [f"    {pair:52} {ratio['median']:.2f}" for pair, ratio in figures["ratio"].items()]
    return "\n".join([*lines, f"verdict         {json.dumps(result['verdict'])}"])


def main() -> None:
    """Measure everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    model, quick, begun = options.model, options.quick, time.perf_counter()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    result: dict[str, Any] = {"command": " ".join(["python", "tests/benchmarks/speed.py", *sys.argv[1:]])}
    result |= {"machine": environment(), "load_at_start": os.getloadavg(), "model": model, "device": device}
    result["first_match"] = first_match(model, repeats=1 if quick else 3, warm=0 if quick else 1)
    result["iteration"] = whole_iterations(model, quick)
    result |= in_process(model, quick)
    result |= {"verdict": verdict(result), "load_at_end": os.getloadavg(), "seconds": time.perf_counter() - begun}
    parts = ["speed", device, *([] if model == DEFAULT else [Path(model).name]), *(["quick"] if quick else [])]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{'-'.join(parts)}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


if __name__ == "__main__":
    main()
