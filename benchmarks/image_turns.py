"""Time and memory of playing and learning turns with images, compared with bare transformers.

    PYTHONPATH=. python benchmarks/image_turns.py    # SmolVLM's and Qwen2.5-VL's layouts, a minute of one core

A model of random weights reads a picture and 40 tokens of text per stream and writes 24. Play compares the engine's
replies with `generate` on the same batch. Learning compares a scorer's forward and backward pass with the model's own
over the same streams in one batch. Seconds are CPU time, the median of alternating rounds. Memory is the peak growth of
a new process during a step, after the same step with one stream (Linux only). Writes results/image_turns.json.
"""

import argparse
import asyncio
import gc
import json
import multiprocessing
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch
from engine_requests import make_request
from processes import read_memory, reset_peak

from agents.costs import estimate_costs
from agents.engines.in_process import InProcessEngine
from agents.heap import trim_memory
from agents.packing import plan_passes
from agents.published import ModuleWeights
from agents.scoring import StreamScorer, build_batch
from agents.stream import Stream
from agents.vision import get_vision
from arena.doctor import describe_environment
from tests.factories.eyes import make_config, make_picture, make_reference_inputs, make_span, make_vision_model

FAMILIES = ("smolvlm", "qwen2_5_vl")
STREAMS, TEXT, REPLY, ROUNDS = 8, 40, 24, 5
SIZES = {"hidden_size": 384, "intermediate_size": 1024, "num_attention_heads": 6,
         "num_key_value_heads": 6, "head_dim": 64, "vocab_size": 8192}  # fmt: skip
RESULTS = Path(__file__).parent / "results" / "image_turns.json"


def make_model(family: str) -> Any:
    """Return a random model of about ten million parameters with a model family's layout."""
    config = make_config(family)
    config.text_config.update(SIZES)
    config.text_config.rope_parameters = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [8, 12, 12]}
    if hasattr(config.vision_config, "out_hidden_size"):
        config.vision_config.out_hidden_size = SIZES["hidden_size"]
    return make_vision_model(family, 0, config)


def make_streams(vision: Any) -> list[Stream]:
    """Return streams of equal length, each with a picture, text and a reply."""
    streams = []
    for seed in range(STREAMS):
        ids = torch.randint(20, 8000, (TEXT + REPLY,), generator=torch.Generator().manual_seed(seed)).tolist()
        span, stream = make_span(vision, make_picture(seed, 48, 48), 4), Stream()
        stream.observe([*ids[:4], *[vision.image_token] * span.length, *ids[4:TEXT]], [span])
        stream.append_sampled(ids[TEXT:], [-1.0] * REPLY, 0)
        streams.append(stream)
    return streams


def make_batch(vision: Any, streams: list[Stream], end: int | None = None) -> dict[str, torch.Tensor]:
    """Return the arguments of transformers' forward pass over the first `end` tokens of all streams, as one batch."""
    inputs = [make_reference_inputs(vision, stream.ids[:end], stream.media) for stream in streams]
    return {name: torch.cat([each[name] for each in inputs]) for name in inputs[0]}


def learn_bare(model: Any, vision: Any, streams: list[Stream]) -> None:
    """Run the model's own forward and backward pass over the streams."""
    logits = model(**make_batch(vision, streams)).logits[:, -REPLY - 1 : -1]
    sampled = torch.tensor([stream.ids[-REPLY:] for stream in streams])
    torch.log_softmax(logits, -1).gather(-1, sampled[..., None]).sum().backward()  # type: ignore[no-untyped-call]
    _clear(model)


def learn_here(model: Any, vision: Any, streams: list[Stream]) -> None:
    """Run Arena's forward and backward pass over the streams."""
    for plan in plan_passes(streams, 8192, costs=estimate_costs(model)):
        StreamScorer(model)(build_batch(streams, [1.0] * len(streams), plan)).logprobs.sum().backward()
    model.zero_grad(set_to_none=True)


def play_bare(model: Any, vision: Any, streams: list[Stream]) -> None:
    """Sample replies with transformers' `generate`."""
    inputs = make_batch(vision, streams, len(streams[0]) - REPLY)
    model.generate(**inputs, do_sample=True, min_new_tokens=REPLY, max_new_tokens=REPLY)
    _clear(model)


def play_here(model: Any, vision: Any, streams: list[Stream]) -> None:
    """Sample replies with Arena's engine."""
    requests = []
    for i, stream in enumerate(streams):
        ids, media = stream.before(len(stream) - REPLY)
        requests.append(replace(make_request(ids, REPLY, str(i), seed=(i,)), media=tuple(media)))

    async def play() -> None:
        engine = InProcessEngine()
        await engine.open()
        await engine.publish("p", 1, ModuleWeights(model))
        await engine.generate(requests)
        await engine.close()

    asyncio.run(play())


def _clear(model: Any) -> None:
    model.zero_grad(set_to_none=True)
    if hasattr(model.base_model, "rope_deltas"):
        model.base_model.rope_deltas = None


STEPS = {
    "play": {"arena": play_here, "transformers": play_bare},
    "learning": {"arena": learn_here, "transformers": learn_bare},
}


def measure_seconds(family: str, phase: str, rounds: int) -> dict[str, float]:
    """Return the median CPU seconds of a phase's step by arm, over alternating rounds."""
    model = make_model(family)
    vision = get_vision(model)
    streams = make_streams(vision)
    seconds: dict[str, list[float]] = {name: [] for name in STEPS[phase]}
    for _ in range(rounds + 1):  # the first is a warm-up
        for name, step in STEPS[phase].items():
            start = process_time()
            step(model, vision, streams)
            seconds[name].append(process_time() - start)
    return {name: round(median(each[1:]), 4) for name, each in seconds.items()}


def measure_memory(family: str, phase: str, name: str) -> float:
    """Return this process's peak growth in MiB during one step of an arm. Call it in a new process."""
    torch.set_num_threads(1)
    model = make_model(family)
    vision = get_vision(model)
    streams = make_streams(vision)
    STEPS[phase][name](model, vision, streams[:1])
    gc.collect()
    trim_memory()
    reset_peak()
    before = read_memory()["now"]
    STEPS[phase][name](model, vision, streams)
    return round((read_memory()["peak"] - before) * 1e9 / 2**20, 1)


def main() -> None:
    """Measure all families and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    found: dict[str, Any] = {"environment": describe_environment()}
    for family in FAMILIES:
        for phase, steps in STEPS.items():
            seconds, memory = measure_seconds(family, phase, rounds), {}
            for name in steps:
                with multiprocessing.get_context("spawn").Pool(1) as fresh:
                    memory[name] = fresh.apply(measure_memory, (family, phase, name))
            measured = {"seconds": seconds, "MiB": memory} | {
                f"{what} ratio": round(each["arena"] / each["transformers"], 3)
                for what, each in (("seconds", seconds), ("MiB", memory))
            }
            found.setdefault(family, {})[phase] = measured
            print(family, phase, measured)
    RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
