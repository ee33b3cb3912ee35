"""Estimated memory of loading, playing and learning compared with measured peaks. Linux only.

    python benchmarks/fits.py           # nano, SmolLM2-135M, a random model of 0.5B; up to 5 GB, ten minutes
    python benchmarks/fits.py --quick   # only nano: does it still work?
    python benchmarks/fits.py --page    # update the table in docs/what-fits.md from the saved results

Each phase runs in a new process. The peak is the kernel's high-water mark, reset after loading. Contexts, replies and
samples are random, with the sizes that the estimate assumes. Writes results/fits.json and the table in
docs/what-fits.md.
"""

import argparse
import asyncio
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from processes import read_memory, reset_peak, run_script
from reporting import format_command, write_result

from agents.adapter_config import AdapterSpec
from agents.bf16 import can_pack_here
from agents.model_config import read_json
from agents.precision import Precision
from agents.stream import Stream
from arena.cli.loop import wait
from arena.fits.formulas import (
    ComputeConfig,
    LearningWorkload,
    PlayWorkload,
    estimate_loading,
    estimate_play,
    estimate_update,
)
from arena.fits.shape import read_shape

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = HERE / "results", HERE.parent / "docs" / "what-fits.md"
SEED, TOLERANCE, RANDOM = 0, 0.15, "random-0.5b"
RANDOM_CONFIG = {
    "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}  # fmt: skip
"""Sizes of Qwen2.5-0.5B."""


@dataclass(frozen=True)
class Work:
    """Work of one process: playing or learning with a model, and its sizes."""

    phase: str
    model: str
    precision: str
    rows: int
    """Concurrent replies when playing, or samples of an update of two steps when learning."""
    context: int
    budget: int = 0
    adapters: int = 0

    @property
    def new_tokens(self) -> int:
        """Number of a context's tokens in the first turn."""
        return 3 * self.context // 8

    @property
    def reply_tokens(self) -> int:
        """Maximum tokens of a reply, which is half of what a turn adds to a context."""
        return self.context // 8


WORK = (
    Work("play", "nano", "fp32", 128, 256),
    Work("learn", "nano", "fp32", 256, 128, budget=4096),
    Work("play", "smollm2-135m-instruct", "bf16", 32, 256),
    Work("learn", "smollm2-135m-instruct", "bf16", 16, 256, budget=1024),
    Work("learn", "smollm2-135m-instruct", "bf16", 16, 256, budget=1024, adapters=2),
    Work("play", RANDOM, "bf16", 16, 128),
    Work("learn", RANDOM, "bf16", 8, 128, budget=256, adapters=1),
)


def save_random_model(folder: Path) -> None:
    """Save a random model with the sizes of `RANDOM_CONFIG` in bfloat16, with nano's tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from agents.model_folder import load_tokenizer
    from agents.weights import resolve

    torch.manual_seed(SEED)
    config = AutoConfig.for_model(**RANDOM_CONFIG)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    load_tokenizer(resolve("nano")).save_pretrained(folder)


def measure_playing(work: Work, folder: Path) -> dict[str, float]:
    """Return the peak GB of loading frozen weights, and of extending contexts turn by turn until they are full."""
    from engine_requests import make_request

    from agents.engines.in_process import InProcessEngine
    from agents.heap import trim_memory
    from agents.published import FolderWeights

    rng, engine = np.random.default_rng(SEED), InProcessEngine(Precision(work.precision))
    vocabulary = read_json(folder, "config.json")["vocab_size"]
    reset_peak()
    wait(engine.publish("a", 0, FolderWeights(folder)))
    loaded = read_memory()["peak"]
    trim_memory()
    reset_peak()

    def draw_ids(count: int) -> list[int]:
        return [int(token) for token in rng.integers(5, vocabulary, count)]

    async def play_turns() -> None:
        streams = [draw_ids(work.new_tokens) for _ in range(work.rows)]
        while len(streams[0]) + work.reply_tokens <= work.context:
            lengths = rng.integers(
                work.reply_tokens // 2, work.reply_tokens + 1, work.rows
            )  # replies end at different times
            requests = [make_request(ids, int(lengths[i]), str(i), "a", (SEED, i)) for i, ids in enumerate(streams)]
            for ids, reply in zip(streams, await engine.generate(requests), strict=True):
                ids += [*reply.ids, *draw_ids(2 * work.reply_tokens - len(reply.ids))]

    asyncio.run(play_turns())
    return {"loading": loaded, "play": read_memory()["peak"]}


def measure_learning(work: Work, folder: Path) -> dict[str, float]:
    """Return the peak GB of policies that learn one after another while an engine serves the others, as in a run."""
    from agents.engines.in_process import InProcessEngine
    from agents.heap import trim_memory
    from agents.policy import Bases, NewAdapter, Policy
    from arena.learn.settings import UpdateSpec
    from arena.learn.trainer import PolicyTrainer

    rng, precision = np.random.default_rng(SEED), Precision(work.precision)
    bases, engine = Bases(precision), InProcessEngine(precision)
    vocabulary = read_json(folder, "config.json")["vocab_size"]
    rule = UpdateSpec(token_budget=work.budget, minibatches=2, regularisers={}, gate_tolerance=1e9)
    trainers = []
    for k in range(max(1, work.adapters)):
        new = NewAdapter(AdapterSpec(), k, str(folder)) if work.adapters else None
        policy = Policy.load(f"p{k}", folder, folder, True, new, bases, precision)
        trainers.append(PolicyTrainer(policy.name, policy.model, rule, precision.uses_bf16_products, policy.base))
        wait(engine.publish(policy.name, 0, wait(trainers[-1].weights())))
    samples = [_make_sample(rng, int(work.context * rng.uniform(0.8, 1)), vocabulary) for _ in range(work.rows)]
    trim_memory()
    reset_peak()
    for trainer in trainers:
        wait(engine.release(trainer.name))
        trainer.carry_out(trainer.plan(samples, rng))
    return {"learning": read_memory()["peak"]}


def _make_sample(rng: np.random.Generator, length: int, vocabulary: int) -> Any:
    from arena.learn.samples import Sample

    ids, half, stream = [int(one) for one in rng.integers(5, vocabulary, length)], length // 2, Stream()
    stream.observe(ids[half:])
    stream.append_sampled(ids[:half], [-1.0] * half, 0)
    advantages = rng.normal(size=half).astype(np.float32)
    return Sample(
        stream=stream,
        advantages=advantages,
        behaviour=np.full(half, -1, np.float32),
        temperature=1.0,
        places=np.zeros(half, np.int64),
        learned=np.ones(half, np.bool_),
    )


def estimate_memory(work: Work, model: str, packs: bool) -> dict[str, dict[str, int]]:
    """Return the estimated bytes by phase and part. `packs` is whether the processor packs bfloat16 matrices."""
    shape, files = read_shape(model)
    config = ComputeConfig(Precision(work.precision), packs=packs)
    if work.phase == "play":
        sizes = PlayWorkload(work.rows, work.rows, work.context, work.new_tokens)
        return {
            "loading": estimate_loading(shape, config, files, frozen=True),
            "play": estimate_play(shape, config, sizes),
        }
    rank = AdapterSpec().rank if work.adapters else None
    return {
        "learning": estimate_update(
            shape,
            config,
            LearningWorkload(tokens=work.budget, sampled=work.budget // 2, learners=max(1, work.adapters), rank=rank),
        ),
    }


def compare(work: Work, folder: str) -> list[dict[str, Any]]:
    """Measure the work in a new process. Returns a row per phase with estimate, measurement and their ratio."""
    estimates = estimate_memory(work, folder, can_pack_here())
    peaks = run_script("fits.py", "--work", json.dumps(asdict(work)), "--folder", folder)
    rows = [
        {
            **asdict(work),
            "phase": phase,
            "parts": parts,
            "estimated_gb": sum(parts.values()) / 1e9,
            "measured_gb": peaks[phase],
            "ratio": sum(parts.values()) / 1e9 / peaks[phase],
        }
        for phase, parts in estimates.items()
    ]
    print("\n".join(format_table(rows).splitlines()[2:]), flush=True)
    return rows


def format_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as the table of docs/what-fits.md."""
    lines = ["| model | what | estimated | measured | ratio |", "|---|---|---|---|---|"]
    for row in rows:
        learned = f"{row['adapters']} adapter{'s' * (row['adapters'] > 1)}" if row["adapters"] else "all weights"
        work = {
            "loading": f"loading, {row['precision']}",
            "play": f"play, {row['precision']}, {row['rows']} replies × {row['context']} tokens",
            "learning": f"learning, {row['precision']}, {learned}, {row['budget']:,} tokens a pass",
        }[row["phase"]]
        sizes = f"{row['estimated_gb']:.2f} GB | {row['measured_gb']:.2f} GB | {row['ratio']:.2f}"
        lines.append(f"| {row['model']} | {work} | {sizes} |")
    return "\n".join(lines)


def update_page(rows: list[dict[str, Any]]) -> None:
    """Replace the table in docs/what-fits.md."""
    before, mark, rest = PAGE.read_text("utf-8").partition("<!-- fits -->\n")
    _, end, after = rest.partition("<!-- /fits -->")
    PAGE.write_text(f"{before}{mark}{format_table(rows)}\n{end}{after}", "utf-8")


def main() -> None:
    """Measure all of `WORK` and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        from agents.weights import resolve

        work = Work(**json.loads(options.work))
        if work.phase == "make":
            save_random_model(Path(options.folder))
            return
        print(
            json.dumps({"play": measure_playing, "learn": measure_learning}[work.phase](work, resolve(options.folder)))
        )
        return
    if options.page:
        update_page(json.loads((RESULTS / "fits.json").read_text("utf-8"))["rows"])
        return
    from arena.doctor import describe_environment

    with TemporaryDirectory() as folder:
        workloads = [work for work in WORK if not options.quick or work.model == "nano"]
        if any(work.model == RANDOM for work in workloads):
            run_script("fits.py", "--work", json.dumps(asdict(Work("make", RANDOM, "bf16", 0, 0))), "--folder", folder)
        rows = [row for w in workloads for row in compare(w, folder if w.model == RANDOM else w.model)]
    result: dict[str, Any] = {"command": format_command()}
    result |= {
        "machine": describe_environment(),
        "seed": SEED,
        "packs": can_pack_here(),
        "within": TOLERANCE,
        "rows": rows,
    }
    result["met"] = all(abs(row["ratio"] - 1) <= TOLERANCE for row in rows)
    write_result("fits", result, options.quick)
    if not options.quick:
        update_page(rows)
    print(format_table(rows), "\nall within 15 %" if result["met"] else "\nNOT all within 15 %")


if __name__ == "__main__":
    main()
