"""Agreement of vLLM with the trainer's log-probabilities and with the in-process engine's greedy replies.

    make engines                                            # in vLLM's environment, after benchmarks/engines.py
    .venv-vllm/bin/python benchmarks/agreement.py --quick   # only nano, a few turns: does it still work?

A lab plays 1,000 matches of the model's recipe through vLLM. vLLM's log-probabilities of its own tokens are compared
with the trainer's, as the gate does before an update. Then both engines continue 100 distinct sampled texts greedily.
At the first different token, the trainer's log-probabilities of the two tokens are compared: a small difference is due
to rounding, a large one to a bug. Writes results/agreement.json.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from reporting import write_result

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from engine_requests import make_request  # noqa: E402
from workload import get_trainer, make_experiment, open_lab  # noqa: E402

from agents.engines.base import Completion, Request  # noqa: E402
from agents.engines.in_process import InProcessEngine  # noqa: E402
from agents.published import ModuleWeights  # noqa: E402
from agents.stream import Stream  # noqa: E402
from arena.cli.loop import wait  # noqa: E402
from arena.config.layers import compose, to_yaml  # noqa: E402
from arena.config.sources import set_layer, text_layer  # noqa: E402
from arena.credit.samples import make_samples  # noqa: E402
from arena.doctor import describe_environment  # noqa: E402
from arena.lab import Lab  # noqa: E402

ARMS = {"nano, fp32": ("nano", "fp32"), "SmolLM2, fp32": ("smollm2-135m-instruct", "fp32"),
        "SmolLM2, bf16": ("smollm2-135m-instruct", "bf16")}  # fmt: skip
TURNS, GREEDY, REPLY = 1000, 100, 16


def measure_agreement(lab: Lab, turns: int, greedy: int) -> dict[str, Any]:
    """Return the log-probability gaps over one iteration, and how often greedy replies of both engines differ."""
    credited = wait(lab.credit(1, wait(lab.play(1)).records)).credited
    samples = make_samples(credited, lab.parts.temperatures)
    trainer = get_trainer(lab)
    scores = trainer.compute_scores([s.stream for s in samples], [s.temperature for s in samples])
    gaps = np.abs(np.concatenate([now.logprobs - s.behaviour for now, s in zip(scores, samples, strict=True)]))
    count = sum(len(c.trajectory.turns) for c in credited)
    assert count >= turns, f"{count} turns"
    requests = make_greedy_requests([s.stream for s in samples])[:greedy]
    in_process = InProcessEngine(lab.experiment.resolved_precision)
    wait(in_process.publish("shared", 0, ModuleWeights(trainer.model)))
    theirs, ours = wait(lab.engine.generate(requests)), wait(in_process.generate(requests))
    ties = [
        divergence
        for request, *pair in zip(requests, theirs, ours, strict=True)
        if (divergence := measure_divergence(lab, request, *pair)) is not None
    ]
    return {
        "turns": count,
        "tokens": len(gaps),
        "mean gap": float(gaps.mean()),
        "largest gap": float(gaps.max()),
        "tolerance of the gate": trainer.tolerance,
        "greedy replies": len(requests),
        "different ones among them": len({reply.ids for reply in ours}),
        "greedy replies that differ": len(ties),
        "log-probabilities apart where they part": ties,
    }


def make_greedy_requests(streams: Sequence[Stream]) -> list[Request]:
    """Return a greedy request for each distinct sampled text."""
    texts = dict.fromkeys(tuple(stream.ids) for stream in streams)
    return [make_request(ids, REPLY, f"greedy-{i}", "shared", (i,), temperature=0.0) for i, ids in enumerate(texts)]


def measure_divergence(lab: Lab, request: Request, theirs: Completion, ours: Completion) -> float | None:
    """Return the trainer's log-probability gap between the first different tokens, or None if the replies are equal."""
    if theirs.ids == ours.ids:
        return None
    position = next(k for k, (a, b) in enumerate(zip(theirs.ids, ours.ids, strict=True)) if a != b)
    both = []
    for reply in (theirs, ours):
        stream = Stream()
        stream.observe([*request.ids, *reply.ids[:position]])
        stream.append_sampled([reply.ids[position]], [0.0], 0)
        both.append(stream)
    one, other = (float(scores.logprobs[0]) for scores in get_trainer(lab).compute_scores(both, [1.0, 1.0]))
    return abs(one - other)


def main() -> None:
    """Measure all arms and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    arms, turns, greedy = (list(ARMS)[:1], 20, 5) if quick else (list(ARMS), TURNS, GREEDY)
    result: dict[str, Any] = {
        "command": "python benchmarks/agreement.py",
        "machine": describe_environment(),
        "arms": {},
    }
    for arm in arms:
        model, precision = ARMS[arm]
        settings = ["policies.shared.imitate=null", "credit.estimator=zero", "engine={kind: vllm, max_model_len: 1024}",
                    f"precision={precision}", f"play.matches={turns}"]  # fmt: skip
        layers = [text_layer("recipe", to_yaml(make_experiment(model, False))), *map(set_layer, settings)]
        with open_lab(compose(layers)) as lab:
            try:
                result["arms"][arm] = measure_agreement(lab, turns, greedy)
            finally:
                wait(lab.close())
        print(arm, json.dumps(result["arms"][arm]), flush=True)
    if not quick:
        write_result("agreement", result)


if __name__ == "__main__":
    main()
