"""Time and memory of image turns, play and learning, beside bare transformers steps in the same run.

    python benchmarks/image_turns.py            # SmolVLM's and Qwen2.5-VL's layouts, a minute of one core

A model of random weights reads a picture and 40 tokens of text per stream and says 24. Play: the engine's replies
beside `generate` with the same batch. Learning: a scorer's pass, forward and backward, beside the model's own over the
same streams as one batch. Seconds are CPU time, the median of alternating rounds; memory is the largest growth of the
process. Writes results/image_turns.json.
"""

import argparse
import asyncio
import json
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch

from agents.costs import costs
from agents.engines.base import Request
from agents.engines.in_process import InProcessEngine
from agents.packing import passes
from agents.published import ModuleWeights
from agents.scoring import StreamScorer, batch_of
from agents.stream import Stream
from agents.vision import vision_of
from arena.doctor import environment
from tests.factories.eyes import bare_inputs, config_of, make_eyes, picture, span

FAMILIES = ("smolvlm", "qwen2_5_vl")
STREAMS, TEXT, SAID, ROUNDS = 8, 40, 24, 5
SIZES = {"hidden_size": 384, "intermediate_size": 1024, "num_attention_heads": 6,
         "num_key_value_heads": 6, "head_dim": 64, "vocab_size": 8192}  # fmt: skip
RESULTS = Path(__file__).parent / "results" / "image_turns.json"


def make_model(family: str) -> Any:
    """Return a random model of some ten million parameters in the layout of a family."""
    config = config_of(family)
    config.text_config.update(SIZES)
    config.text_config.rope_parameters = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [8, 12, 12]}
    if hasattr(config.vision_config, "out_hidden_size"):
        config.vision_config.out_hidden_size = SIZES["hidden_size"]
    return make_eyes(family, 0, config)


def make_streams(vision: Any) -> list[Stream]:
    """Return streams of a picture, text and a reply each, all of equal length."""
    streams = []
    for seed in range(STREAMS):
        ids = torch.randint(20, 8000, (TEXT + SAID,), generator=torch.Generator().manual_seed(seed)).tolist()
        seen, one = span(vision, picture(seed, 48, 48), 4), Stream()
        one.observe([*ids[:4], *[vision.image_token] * seen.length, *ids[4:TEXT]], [seen])
        one.wrote(ids[TEXT:], [-1.0] * SAID, 0)
        streams.append(one)
    return streams


def together(vision: Any, streams: list[Stream], end: int | None = None) -> dict[str, torch.Tensor]:
    """Return the arguments of transformers' own pass over the streams' first tokens up to `end` as one batch."""
    each = [bare_inputs(vision, one.ids[:end], one.media) for one in streams]
    return {name: torch.cat([one[name] for one in each]) for name in each[0]}


def learn_bare(model: Any, vision: Any, streams: list[Stream]) -> None:
    """Run the model's own forward and backward pass over the streams."""
    logits = model(**together(vision, streams)).logits[:, -SAID - 1 : -1]
    said = torch.tensor([one.ids[-SAID:] for one in streams])
    torch.log_softmax(logits, -1).gather(-1, said[..., None]).sum().backward()  # type: ignore[no-untyped-call]
    _forget(model)


def learn_here(model: Any, vision: Any, streams: list[Stream]) -> None:
    """Run the scorer's forward and backward passes over the streams."""
    for one in passes(streams, 8192, costs=costs(model)):
        StreamScorer(model)(batch_of(streams, [1.0] * len(streams), one)).logprobs.sum().backward()
    model.zero_grad(set_to_none=True)


def play_bare(model: Any, vision: Any, streams: list[Stream]) -> None:
    """Sample replies with transformers' `generate`."""
    given = together(vision, streams, len(streams[0]) - SAID)
    model.generate(**given, do_sample=True, min_new_tokens=SAID, max_new_tokens=SAID)
    _forget(model)


def play_here(model: Any, vision: Any, streams: list[Stream]) -> None:
    """Sample replies with the engine."""
    asked = []
    for i, one in enumerate(streams):
        ids, media = one.before(len(one) - SAID)
        asked.append(
            Request(
                policy="p", ids=tuple(ids), media=tuple(media), key=str(i), max_tokens=SAID, temperature=1.0, top_p=1.0,
                top_k=0, stop_ids=frozenset(), seed=(i,),
            )
        )  # fmt: skip

    async def play() -> None:
        engine = InProcessEngine()
        await engine.open()
        await engine.publish("p", 1, ModuleWeights(model))
        await engine.generate(asked)
        await engine.close()

    asyncio.run(play())


def _forget(model: Any) -> None:
    model.zero_grad(set_to_none=True)
    if hasattr(model.base_model, "rope_deltas"):
        model.base_model.rope_deltas = None


def measure(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, dict[str, float]]:
    """Return seconds (median) and peak growth in MiB of each step, over alternating rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    growth = dict.fromkeys(steps, 0.0)
    for step in steps.values():
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            before, start = _peak(), process_time()
            step()
            seconds[name].append(process_time() - start)
            growth[name] = max(growth[name], _peak() - before)
    return {name: {"seconds": round(median(seconds[name]), 4), "MiB": round(growth[name], 1)} for name in steps}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    found: dict[str, Any] = {"environment": environment()}
    for family in FAMILIES:
        model = make_model(family)
        vision = vision_of(model)
        streams = make_streams(vision)
        pairs = {"play": (play_here, play_bare), "learning": (learn_here, learn_bare)}
        for phase, pair in pairs.items():
            here, bare = (partial(step, model, vision, streams) for step in pair)
            measured: dict[str, Any] = measure({"arena": here, "transformers": bare}, rounds)
            measured["ratio"] = round(measured["arena"]["seconds"] / measured["transformers"]["seconds"], 3)
            found.setdefault(family, {})[phase] = measured
            print(family, phase, measured)
    RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
