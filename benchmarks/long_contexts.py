"""Long contexts whose thoughts are stripped: computed and distinct tokens, memory, and the number of matches that fit.

    python benchmarks/long_contexts.py              # some minutes of one core
    python benchmarks/long_contexts.py --formula    # only the table for 512 matches of 8,192 tokens

In the miniature, matches of nano play in step, as in an iteration. In each turn a seat reads 24 tokens, thinks 64 and
says 12; its later contexts contain what it said, but not its thoughts. Arms differ in the memory for caches, as a share
of the final size of all contexts, and in the number of batches, one or four. Tokens are distinct if their prefixes
differ. Computed tokens are rows times columns of all passes, including padding. For 512 matches of 8,192 tokens, the
formula of `arena.fits`, which is compared here with the caches' bytes, gives the memory of larger models. The time per
token is at least that of reading all caches once. Writes results/long_contexts.json.
"""

import argparse
import asyncio
import json
import sys
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from engine_requests import make_request  # noqa: E402
from shared_tokens import OBSERVED, SPOKEN, THOUGHT, count_distinct  # noqa: E402

from agents.engines.decoding import Decoder  # noqa: E402
from agents.engines.in_process import InProcessEngine  # noqa: E402
from agents.engines.kv import BatchKV, KVStore  # noqa: E402
from agents.precision import Precision  # noqa: E402
from agents.published import FolderWeights  # noqa: E402
from agents.stream import Stream  # noqa: E402
from agents.weights import resolve  # noqa: E402
from arena.doctor import describe_environment  # noqa: E402
from arena.fits.formulas import ComputeConfig, estimate_cache_per_token, estimate_frozen_weights  # noqa: E402
from arena.fits.shape import count_shape, read_shape  # noqa: E402

RESULTS = HERE / "results" / "long_contexts.json"
OPENING = 32
"""Tokens of the opening that all matches share."""
SHARES, BATCHES = (1.1, 0.75, 0.5, 0.25), (1, 4)
MATCHES, TOKENS = 512, 8192
ROWS = 256
"""Default rows of a batch; see `arena.fits.formulas.estimate_play_buffers`."""
MODELS: dict[str, dict[str, int]] = {
    "Qwen2.5-0.5B": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    "Qwen2.5-3B": {"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16},
    "Qwen2.5-7B": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28},
}
"""Sizes in the models' configs. They have two key-value heads, except that the last has four."""
CARDS = {"H100, 80 GB": (80e9, 3.35e12), "H200, 141 GB": (141e9, 4.8e12)}
"""Bytes of memory, and bytes per second of bandwidth (NVIDIA's data sheets)."""


class ComputeCounter:
    """Counter of the tokens that decoders compute and of the peak bytes of their caches."""

    def __init__(self) -> None:
        self.tokens = self.stored = self.batch = 0

    def install(self) -> None:
        """Replace methods of decoders and caches so that they count from now on."""
        original_pass, put, join = Decoder._pass, KVStore.put, BatchKV.__init__

        def count_pass(decoder: Any, policies: Any, batch: Any, tokens: torch.Tensor, *more: Any) -> Any:
            self.tokens += tokens.numel()
            return original_pass(decoder, policies, batch, tokens, *more)

        def count_put(store: KVStore, key: str, kv: Any) -> None:
            put(store, key, kv)
            self.stored = max(self.stored, store._bytes)

        def count_join(batch: Any, *arguments: Any, **options: Any) -> None:
            join(batch, *arguments, **options)
            self.batch = max(self.batch, batch.full_data.numel() * batch.full_data.element_size())

        Decoder._pass, KVStore.put, BatchKV.__init__ = count_pass, count_put, count_join  # type: ignore[method-assign,assignment]


async def play(engine: InProcessEngine, matches: int, turns: int) -> list[Stream]:
    """Play all matches in step and return the streams of their turns."""
    rng, streams = np.random.default_rng(0), list[Stream]()
    opening = rng.integers(300, size=OPENING).tolist()
    contexts = [list(opening) for _ in range(matches)]
    for turn in range(turns):
        for context in contexts:
            context += rng.integers(300, size=OBSERVED).tolist()
        requests = [
            make_request(context, THOUGHT + SPOKEN, f"m{n}/a/0", seed=(turn, n)) for n, context in enumerate(contexts)
        ]
        for context, reply in zip(contexts, await engine.generate(requests), strict=True):
            stream = Stream()
            stream.observe(list(context))
            stream.append_sampled(list(reply.ids), list(reply.logprobs), 0)
            streams.append(stream)
            context += reply.ids[THOUGHT:]
    return streams


def measure_arm(counts: ComputeCounter, matches: int, turns: int, share: float, batches: int) -> dict[str, Any]:
    """Play an arm and return its row. `share` is the caches' memory over the size of all contexts in the last turn."""
    shape, _ = read_shape("nano")
    last = OPENING + turns * (OBSERVED + SPOKEN) + THOUGHT
    full_bytes = matches * last * estimate_cache_per_token(shape, ComputeConfig(Precision.FP32))
    counts.tokens = counts.stored = counts.batch = 0

    async def play_arm() -> list[Stream]:
        engine = InProcessEngine(Precision.FP32, matches // batches, int(share * full_bytes))
        await engine.open()
        await engine.publish("p", 0, FolderWeights(resolve("nano")))
        return await play(engine, matches, turns)

    start = process_time()
    streams = asyncio.run(play_arm())
    row = {"cache share": share, "batches": batches, "computed": counts.tokens, "distinct": count_distinct(streams)}
    row |= {
        "per distinct": round(counts.tokens / count_distinct(streams), 3),
        "CPU seconds": round(process_time() - start, 1),
    }
    return row | {"kept bytes": counts.stored, "batch bytes": counts.batch, "bytes by formula": full_bytes}


def count_fitting(contexts: float) -> int:
    """Return the number of matches that fit into memory for `contexts` contexts.

    Each match keeps one context; each row of the current batch needs 1.75 more.
    """
    return int(contexts / 2.75 if contexts < 2.75 * ROWS else contexts - 1.75 * ROWS)


def compute_table() -> list[dict[str, Any]]:
    """Return, by model and GPU, memory and time per token of 512 contexts of 8,192 tokens, and how many fit."""
    rows, compute = [], ComputeConfig(Precision.BF16_TRUE, gpu=True)
    for (name, sizes), (card, (memory, speed)) in product(MODELS.items(), CARDS.items()):
        heads = 4 if name.endswith("7B") else 2
        config = {"model_type": "qwen2", "vocab_size": 151936, "num_key_value_heads": heads, **sizes}
        shape = count_shape(config | {"tie_word_embeddings": not name.endswith("7B")}, name)
        token, weights = estimate_cache_per_token(shape, compute), estimate_frozen_weights(shape, compute)
        match_bytes = TOKENS * token
        rows.append(
            {
                "model": name, "card": card, "bytes per token": token, "GB of weights": round(weights / 1e9, 1),
                "GB of caches": round(MATCHES * match_bytes / 1e9, 1),
                "matches that fit, in pages": int((memory - weights) // match_bytes),
                "matches that fit, in process": count_fitting((memory - weights) / match_bytes),
                "ms to read all per token": round(1e3 * (weights + MATCHES * match_bytes) / speed, 1),
                "ms to read the weights": round(1e3 * weights / speed, 1),
            }
        )  # fmt: skip
    return rows


def main() -> None:
    """Count tokens, compute the table, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formula", action="store_true", help="the table alone")
    parser.add_argument("--matches", type=int, default=16)
    parser.add_argument("--turns", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    result |= {
        "command": "python benchmarks/long_contexts.py",
        "machine": describe_environment(),
        "formula": compute_table(),
    }
    print(json.dumps(result["formula"], indent=1))
    if not options.formula:
        counts, rows = ComputeCounter(), []
        counts.install()
        for share, batches in product(SHARES, BATCHES):
            rows.append(measure_arm(counts, options.matches, options.turns, share, batches))
            print(rows[-1], flush=True)
        result |= {"matches": options.matches, "turns": options.turns, "miniature": rows}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
