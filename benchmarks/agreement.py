"""Do the engines say the same? Matches played through vLLM, scored by the trainer; greedy replies beside our own.

    make engines                                                  # after its own, in vLLM's environment
    .venv-vllm/bin/python benchmarks/agreement.py --quick   # nano alone, a few turns: does it still work?

An ordinary lab plays 1,000 matches of the model's recipe through vLLM; what vLLM noted of its own tokens is compared
with what the trainer's weights say of them, as the gate does before an update. Then both engines greedily continue 100
of the texts that were sampled, no two alike. Where they part, the trainer's log-probabilities of the two tokens at that
place are compared: a tie of nearly equals is rounding, anything else is a fault. Writes results/agreement.json.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from workload import experiment_for, open_lab, trainer_of  # noqa: E402

from agents.engines.base import Completion, Request  # noqa: E402
from agents.engines.in_process import InProcessEngine  # noqa: E402
from agents.published import ModuleWeights  # noqa: E402
from agents.stream import Stream  # noqa: E402
from arena.cli.loop import wait  # noqa: E402
from arena.config.layers import compose, to_yaml  # noqa: E402
from arena.config.sources import set_layer, text_layer  # noqa: E402
from arena.credit.samples import make_samples  # noqa: E402
from arena.doctor import environment  # noqa: E402
from arena.lab import Lab  # noqa: E402

ARMS = {"nano, fp32": ("nano", "fp32"), "SmolLM2, fp32": ("smollm2-135m-instruct", "fp32"),
        "SmolLM2, bf16": ("smollm2-135m-instruct", "bf16")}  # fmt: skip
TURNS, GREEDY, REPLY = 1000, 100, 16


def measured(lab: Lab, turns: int, greedy: int) -> dict[str, Any]:
    """Gaps over the turns of one play, and over greedy replies."""
    credited = wait(lab.credit(1, wait(lab.play(1)).records)).credited
    samples = make_samples(credited, lab.parts.temperatures)
    trainer = trainer_of(lab)
    said = trainer.compute_scores([s.stream for s in samples], [s.temperature for s in samples])
    gaps = np.abs(np.concatenate([now.logprobs - s.behaviour for now, s in zip(said, samples, strict=True)]))
    count = sum(len(c.trajectory.turns) for c in credited)
    assert count >= turns, f"{count} turns"
    asked = contexts([s.stream for s in samples])[:greedy]
    here = InProcessEngine(lab.experiment.settled_precision)
    wait(here.publish("shared", 0, ModuleWeights(trainer.model)))
    theirs, ours = wait(lab.engine.generate(asked)), wait(here.generate(asked))
    ties = [
        tie for ask, *pair in zip(asked, theirs, ours, strict=True) if (tie := parting(lab, ask, *pair)) is not None
    ]
    return {
        "turns": count,
        "tokens": len(gaps),
        "mean gap": float(gaps.mean()),
        "largest gap": float(gaps.max()),
        "tolerance of the gate": trainer.tolerance,
        "greedy replies": len(asked),
        "different ones among them": len({reply.ids for reply in ours}),
        "greedy replies that differ": len(ties),
        "log-probabilities apart where they part": ties,
    }


def contexts(streams: Sequence[Stream]) -> list[Request]:
    """Every text that was sampled, the same but once, to be continued greedily."""
    return [
        Request(
            policy="shared",
            ids=ids,
            key=f"greedy-{i}",
            max_tokens=REPLY,
            temperature=0.0,
            top_p=1.0,
            top_k=0,
            stop_ids=frozenset(),
            seed=(i,),
        )
        for i, ids in enumerate(dict.fromkeys(tuple(stream.ids) for stream in streams))
    ]


def parting(lab: Lab, ask: Request, theirs: Completion, ours: Completion) -> float | None:
    """Return the log-probability gap of two replies' tokens where they part, by the trainer; None where they do not."""
    if theirs.ids == ours.ids:
        return None
    place = next(k for k, (a, b) in enumerate(zip(theirs.ids, ours.ids, strict=True)) if a != b)
    both = []
    for reply in (theirs, ours):
        stream = Stream()
        stream.observe([*ask.ids, *reply.ids[:place]])
        stream.wrote([reply.ids[place]], [0.0], 0)
        both.append(stream)
    one, other = (float(scores.logprobs[0]) for scores in trainer_of(lab).compute_scores(both, [1.0, 1.0]))
    return abs(one - other)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    arms, turns, greedy = (list(ARMS)[:1], 20, 5) if quick else (list(ARMS), TURNS, GREEDY)
    result: dict[str, Any] = {"command": "python benchmarks/agreement.py", "machine": environment(), "arms": {}}
    for arm in arms:
        model, precision = ARMS[arm]
        more = ["policies.shared.imitate=null", "credit.estimator=zero", "engine={kind: vllm, max_model_len: 1024}",
                f"precision={precision}", f"play.matches={turns}"]  # fmt: skip
        layers = [text_layer("recipe", to_yaml(experiment_for(model, False))), *map(set_layer, more)]
        with open_lab(compose(layers)) as lab:
            try:
                result["arms"][arm] = measured(lab, turns, greedy)
            finally:
                wait(lab.close())
        print(arm, json.dumps(result["arms"][arm]), flush=True)
    if not quick:
        (HERE / "results" / "agreement.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
