"""Time and memory of a learning step compared with a bare transformers program, and a profile of Arena's step.

    python benchmarks/learn_step.py                     # a quarter of an hour on two quiet cores
    python benchmarks/learn_step.py --before CHECKOUT   # also an older checkout
    python benchmarks/learn_step.py --profile           # time of Arena's step by kind of operation
    python benchmarks/learn_step.py --quick             # the smallest workload once: does it still work?

Each arm is a process with SmolLM2-135M and its own allocator settings. Arms alternate, so that a busy machine slows all
of them equally. All do the same work: log-probabilities under a frozen reference, forward pass, PPO with a KL to the
reference, backward pass, clipping, AdamW; bf16 products, float32 weights, lr 0. Streams share no prefix. Writes
results/learn-step.json, or learn-step-profile.json.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from peer_process import find_benchmarks
from reporting import format_command, write_result

from agents.computing import compute
from agents.precision import Precision
from agents.published import ModuleWeights
from arena.cli.loop import wait

HERE = Path(__file__).resolve().parent
WORKLOADS = {
    "8 streams of 70": (8, 70, 70),
    "8 streams of 500": (8, 500, 500),
    "32 streams of 70 to 500": (32, 70, 500),
    "128 streams of 70": (128, 70, 70),
    "128 streams of 70 to 500": (128, 70, 500),
}
"""Number of streams, and their minimum and maximum length. Half of the tokens are sampled, in turns of up to 16."""
ROUNDS = {"8 streams of 70": 7, "8 streams of 500": 3}
"""Measured rounds, after one warm-up. The other workloads are measured once, because earlier ones have warmed up."""
TOKEN_BUDGET = 1024
TARGETS = {"warm": 1.0, "cold": 1.2}
"""Maximum ratios of Arena's time to the bare program's."""


# -- the arms, each in its own process -----------------------------------------------------------------------


def make_streams(workload: str) -> list[Any]:
    """Return the workload's random streams, the same for every arm."""
    import numpy as np

    from agents.stream import Stream

    count, shortest, longest = WORKLOADS[workload]
    rng, streams = np.random.default_rng(0), []
    for _ in range(count):
        stream, turn, length = Stream(), 0, int(rng.integers(shortest, longest + 1))
        while len(stream) < length:
            observed, sampled = (rng.integers(100, 40_000, min(16, length - len(stream))).tolist() for _ in range(2))
            stream.observe(observed)
            sampled = sampled[: length - len(stream)]
            stream.append_sampled(sampled, [-10.0] * len(sampled), turn)
            turn += 1
        streams.append(stream)
    return streams


def make_samples(workload: str) -> list[Any]:
    """Return the workload's streams as samples for a trainer."""
    import numpy as np

    from arena.learn.samples import Sample

    rng, samples = np.random.default_rng(1), []
    for stream in make_streams(workload):
        is_sampled = np.asarray(stream.mask, bool)
        turns = np.asarray(stream.turns)[is_sampled]
        advantages, behaviour = rng.normal(size=is_sampled.sum()), np.asarray(stream.logprobs)[is_sampled]
        learned = np.ones(len(turns), bool)
        samples.append(
            Sample(
                stream=stream,
                advantages=advantages.astype(np.float32),
                behaviour=behaviour.astype(np.float32),
                temperature=1.0,
                places=turns,
                learned=learned,
            )
        )
    return samples


def make_arena_step() -> Callable[[str], None]:
    """Load a trainer and an engine with its reference, as in a run. Returns a function that steps on a workload."""
    import numpy as np
    import torch

    from agents.bf16 import convert_to_bf16
    from agents.engines.in_process import InProcessEngine
    from agents.model_folder import load_model
    from agents.weights import DEFAULT, resolve
    from arena.config.experiment import LearnSpec
    from arena.learn.trainer import PolicyTrainer

    engine = InProcessEngine(Precision.BF16)
    rule = LearnSpec(lr=0.0, token_budget=TOKEN_BUDGET, gate_tolerance=1e9)

    async def load() -> PolicyTrainer:
        """Load in the compute thread. A second thread that uses OpenMP would put all its workers to sleep."""
        reference = await compute(lambda: convert_to_bf16(load_model(resolve(DEFAULT)).requires_grad_(False)))
        await engine.publish("reference", 0, ModuleWeights(reference))
        return await compute(lambda: PolicyTrainer("shared", load_model(resolve(DEFAULT)), rule, bf16=True))

    trainer = wait(load())

    def step(workload: str) -> None:
        samples = make_samples(workload)
        scored = wait(engine.score("reference", [s.stream for s in samples], [1.0] * len(samples)))
        samples = [s.with_reference(r) for s, r in zip(samples, scored, strict=True)]
        wait(trainer.update(trainer.plan(samples, np.random.default_rng(0))))

    wait(compute(torch.set_num_threads, int(os.environ["OMP_NUM_THREADS"])))
    return step


def make_bare_step() -> Callable[[str], None]:
    """Load the bare transformers program. Returns a function that steps on a workload."""
    import torch
    from bare_training import BareTraining

    from agents.model_folder import load_model
    from agents.weights import DEFAULT, resolve
    from arena.config.experiment import LearnSpec

    folder = resolve(DEFAULT)
    # not frozen, because autocast caches casts only of parameters that require a gradient
    reference = load_model(folder)
    training = BareTraining(load_model(folder), LearnSpec(), bf16=True, reference=reference)

    def step(workload: str) -> None:
        samples = make_samples(workload)
        training.step(samples, BareTraining.fill(samples, TOKEN_BUDGET))

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    return step


def serve(arm: str) -> None:
    """Run a step for each workload named on a line of standard input, and print its figures."""
    step = {"ours": make_arena_step, "bare": make_bare_step}[arm]()
    print(json.dumps({"ready": arm}), flush=True)
    for line in sys.stdin:
        with measure_block() as found:
            step(json.loads(line))
        print(json.dumps(found), flush=True)


@contextmanager
def measure_block() -> Iterator[dict[str, float]]:
    """Measure a block's time, page faults and peak memory. Yields a dict that is filled when the block ends."""
    figures: dict[str, float] = {}
    usage, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    yield figures
    wall, usage_after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_SELF)
    cpu = usage_after.ru_utime + usage_after.ru_stime - usage.ru_utime - usage.ru_stime
    faults, peak = usage_after.ru_minflt - usage.ru_minflt, usage_after.ru_maxrss * 1024 / 1e9
    figures |= {"seconds": wall, "cpu": cpu, "page_faults": faults, "peak_gb": peak}


# -- the comparison ------------------------------------------------------------------------------------------


class ArmProcess:
    """Process that serves an arm with the script of a checkout."""

    def __init__(self, arm: str, checkout: Path | None = None) -> None:
        root = checkout or HERE.parent
        own_folder = find_benchmarks(root)  # an older checkout runs its own script
        path = os.pathsep.join([str(root), str(own_folder)])
        plain = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
        settings = {**plain, "PYTHONPATH": path, "OMP_NUM_THREADS": "2"}
        self.process = subprocess.Popen(
            [sys.executable, str(own_folder / "learn_step.py"), "--serve", arm], cwd=root, env=settings,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._answer()

    def run_step(self, workload: str) -> dict[str, float]:
        """Run one step on a workload and return its figures."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(workload) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, float]:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        raise SystemExit(f"the process of an arm ended early: {self.process.args!r}")

    def close(self) -> None:
        """End the process, after up to a minute in which it can remove its folders."""
        assert self.process.stdin
        self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.process.kill()
        self.process.wait()


@contextmanager
def start_arms(arms: dict[str, dict[str, Any]]) -> Iterator[dict[str, ArmProcess]]:
    """Start a process per arm, yield them by name, and close them afterwards. `arms` are `ArmProcess`'s arguments."""
    processes = {name: ArmProcess(**arguments) for name, arguments in arms.items()}
    try:
        yield processes
    finally:
        for child in processes.values():
            child.close()


def measure_warm(arms: dict[str, dict[str, Any]], quick: bool) -> dict[str, Any]:
    """Measure steps of running processes, by workload. Arms alternate."""
    found: dict[str, Any] = {}
    with start_arms(arms) as processes:
        for workload in list(WORKLOADS)[:1] if quick else WORKLOADS:
            rounds: dict[str, list[dict[str, float]]] = {name: [] for name in processes}
            unmeasured = 1 if workload in ROUNDS else 0
            for i in range(unmeasured + (1 if quick else ROUNDS.get(workload, 1))):
                for name, process in processes.items():
                    step = process.run_step(workload)
                    rounds[name] += [step] if i >= unmeasured else []
            found[workload] = _summarize(rounds)
            print(workload, json.dumps(found[workload]["ratio"]), file=sys.stderr)
    return found


def measure_cold(arms: dict[str, dict[str, Any]], quick: bool) -> dict[str, Any]:
    """Measure the first step of new processes, one process at a time."""
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
    for _ in range(1 if quick else 3):
        for name, arguments in arms.items():
            with start_arms({name: arguments}) as processes:
                rounds[name].append(processes[name].run_step("8 streams of 70"))
    return {"8 streams of 70": _summarize(rounds)}


def _summarize(rounds: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    ratios = {}
    for ours in (name for name in rounds if name.startswith("ours")):
        for peer in (name for name in rounds if name.startswith("bare") or (ours, name) == ("ours", "ours, before")):
            ratios_by_round = [a["seconds"] / b["seconds"] for a, b in zip(rounds[ours], rounds[peer], strict=True)]
            ratios[f"{ours} / {peer}"] = {"rounds": ratios_by_round, "median": median(ratios_by_round)}
    medians = {
        name: {figure: median(step[figure] for step in steps) for figure in steps[0]} for name, steps in rounds.items()
    }
    return {"rounds": rounds, "median": medians, "ratio": ratios}


# -- where our time goes -------------------------------------------------------------------------------------

KINDS = {
    "matrix products": ("mkldnn", "linear", "addmm", "aten::mm", "bmm", "matmul"),
    "attention": ("scaled_dot_product", "flash_attention"),
    "softmax and entropy over the vocabulary": ("log_softmax", "exp", "logsumexp", "gather", "TokenScores"),
    "casts and copies": ("copy_", "_to_copy", "cat", "clone"),
    "optimiser": ("adam",),
    "fills": ("fill_", "zero_"),
    "norm of the gradient": ("norm", "_foreach"),
}


def profile_step(workload: str = "8 streams of 70") -> dict[str, Any]:
    """Return the self CPU time of a warm step by kind of operation, and the twenty most expensive operations."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    step = make_arena_step()
    for _ in range(2):
        step(workload)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        start = time.perf_counter()
        step(workload)
        wall = time.perf_counter() - start
    events = [(e.key, e.self_cpu_time_total / 1e6) for e in profiler.key_averages()]
    kinds = dict.fromkeys([*KINDS, "everything else"], 0.0)
    for name, seconds in events:
        kind = next((k for k, parts in KINDS.items() if any(p in name for p in parts)), "everything else")
        kinds[kind] += seconds
    largest = sorted(events, key=lambda event: -event[1])[:20]
    python = wall - sum(seconds for _, seconds in events)
    return {"seconds": wall, "kinds": kinds | {"outside torch": max(0.0, python)}, "largest": dict(largest),
            "threads": torch.get_num_threads()}  # fmt: skip


def main() -> None:
    """Measure all arms, or profile a step, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="An older checkout, to be measured in the same run.")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--serve", choices=["ours", "bare"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve)
    from arena.doctor import describe_environment

    result: dict[str, Any] = {"command": format_command()}
    result |= {"machine": describe_environment(), "seeds": "streams 0, advantages 1", "load_at_start": os.getloadavg()}
    if options.profile:
        os.environ.setdefault("OMP_NUM_THREADS", "2")
        result["profile"] = profile_step()
    else:
        arms: dict[str, dict[str, Any]] = {"ours": {"arm": "ours"}, "bare": {"arm": "bare"}}
        if options.before:
            arms["ours, before"] = {"arm": "ours", "checkout": options.before.resolve()}
        result |= {"cold": measure_cold(arms, options.quick), "warm": measure_warm(arms, options.quick)}
        worst = {kind: max(w["ratio"]["ours / bare"]["median"] for w in result[kind].values()) for kind in TARGETS}
        result["verdict"] = {k: {"worst": worst[k], "target": t, "met": worst[k] <= t} for k, t in TARGETS.items()}
    result["load_at_end"] = os.getloadavg()
    write_result("learn-step" + "-profile" * options.profile, result, options.quick)
    print(json.dumps(result.get("profile") or result["verdict"], indent=1))


if __name__ == "__main__":
    main()
