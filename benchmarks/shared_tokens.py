"""Computed and distinct tokens of a learning step, with and without prefix trees.

    python benchmarks/shared_tokens.py            # counts, then seconds with SmolLM2: some minutes of one core
    python benchmarks/shared_tokens.py --counts   # only exact counts; saved seconds stay

The cases are groups (four deals with eight attempts each, which share their beginning and agree for some turns),
branches (a match of ten turns, branches of it, and branches of those), and a match of 5, 20 and 100 turns whose
thoughts are stripped from later contexts. Tokens are distinct if their prefixes differ, that is, if they are different
nodes in the tree of the streams' prefixes. Seconds are the CPU time of a forward and backward pass over all weights.
Its arms alternate: with trees, without, and with the fewest tokens that trees allow, regardless of the cost of
attention. Writes results/shared_tokens.json.
"""

import argparse
import asyncio
import json
import os
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import torch

from agents.chat import ChatFrame
from agents.costs import estimate_costs
from agents.engines.base import Completion, Request
from agents.model_folder import load_tokenizer
from agents.packing import Costs, count_shared, plan_passes
from agents.players.model import ChatPlayer
from agents.players.writers import script_completion
from agents.policy import load_module
from agents.reply import ReplySpec
from agents.role import Role
from agents.scoring import StreamScorer, build_batch
from agents.stream import Stream
from agents.weights import DEFAULT, resolve
from arena.doctor import describe_environment
from games.contracts import Message, View

BUDGETS = (2048, 16384)
TIMED = ("groups", "branches", "strip, 20 turns")
ROUNDS = 3
RESULTS = Path(__file__).parent / "results" / "shared_tokens.json"
WORDS = 40_000
CHEAP = 10
"""Factor on the cost of tokens relative to attention, in the arm with the fewest tokens."""
OBSERVED, THOUGHT, SPOKEN = 24, 64, 12
"""Tokens per turn in streams whose thoughts are stripped: shown to the seat, thought, spoken."""
VOCABULARY = [" one", " two", " red", " blue", " sun", " sea", " old", " new"]
"""Words that are one SmolLM2 token each."""


def draw_text(rng: np.random.Generator, tokens: int) -> str:
    """Return a text of `tokens` random words of one token each."""
    return "".join(VOCABULARY[i] for i in rng.integers(len(VOCABULARY), size=tokens)).strip()


def play_turns(frame: ChatFrame, history: str, turns: int, seed: int) -> list[Stream]:
    """Return the streams of a seat that thinks and speaks for `turns` turns, with the role's setting `history`."""
    reply = ReplySpec(format="tagged", action="act", private="think")
    role = Role(role="thinker", system="Be wise.", reply=reply, history=history)  # type: ignore[arg-type]
    writer = np.random.default_rng((seed, 0))

    async def write(view: View, request: Request, summary: bool = False) -> Completion:
        return script_completion(frame, role.reply.write(draw_text(writer, SPOKEN), private=draw_text(writer, THOUGHT)))

    player, rng = (
        ChatPlayer(role=role, frame=frame, policy="p", key="m/a", seed=(seed,), write=write),
        np.random.default_rng((seed, 1)),
    )

    async def play() -> None:
        for turn in range(turns):
            message = Message.of("b", draw_text(rng, OBSERVED))
            await player.act(View("a", turn, (message,), "", {}, {}, None))

    asyncio.run(play())
    return player.streams


def extend_stream(stream: Stream, rng: np.random.Generator, first: int, count: int, choices: int = WORDS) -> None:
    """Append `count` turns of 24 shown and 16 sampled tokens. With fewer `choices`, streams agree more often."""
    for turn in range(first, first + count):
        token_ids = np.random.default_rng(int(rng.integers(choices)) + 1000 * turn).integers(WORDS, size=16).tolist()
        stream.observe(np.random.default_rng([turn, token_ids[0]]).integers(WORDS, size=24).tolist())
        stream.append_sampled(token_ids, [-1.0] * 16, turn)


def make_groups() -> list[Stream]:
    """Return the streams of eight attempts at each of four deals: 120 tokens of rules, 40 per deal, similar turns."""
    streams, rules = [], np.random.default_rng(0).integers(WORDS, size=120).tolist()
    for deal in range(4):
        for attempt in range(8):
            stream = Stream()
            stream.observe([*rules, *np.random.default_rng([1, deal]).integers(WORDS, size=40).tolist()])
            extend_stream(stream, np.random.default_rng([2, deal, attempt]), 0, 4, choices=3)
            streams.append(stream)
    return streams


def make_branches() -> list[Stream]:
    """Return the streams of a match of ten turns, eight branches of it, and eight branches of those."""
    trunk = Stream()
    trunk.observe(np.random.default_rng(0).integers(WORDS, size=120).tolist())
    extend_stream(trunk, np.random.default_rng(1), 0, 10)
    streams = [trunk]
    for number in range(16):
        rng = np.random.default_rng([3, number])
        parent, turn = streams[0 if number < 8 else number - 7], int(rng.integers(2, 9))
        length = 120 + 40 * turn
        branch = Stream(parent.ids[:length], parent.mask[:length], parent.logprobs[:length], parent.turns[:length])
        extend_stream(branch, rng, turn, 10 - turn)
        streams.append(branch)
    return streams


def make_cases() -> dict[str, list[Stream]]:
    """Return the streams of each case."""
    frame = ChatFrame(load_tokenizer(resolve(DEFAULT)))
    stripped = {f"strip, {turns} turns": play_turns(frame, "strip", turns, 0) for turns in (5, 20, 100)}
    return {"groups": make_groups(), "branches": make_branches(), **stripped}


def count_distinct(streams: list[Stream]) -> int:
    """Return the number of nodes in the tree of the streams' prefixes."""
    ordered = sorted(stream.ids for stream in streams)
    shared = [0, *(count_shared(a, b) for a, b in pairwise(ordered))]
    return sum(len(ids) - common for ids, common in zip(ordered, shared, strict=True))


def count_tokens(streams: list[Stream], model_costs: Costs) -> dict[str, Any]:
    """Return the numbers of streams, tokens and distinct tokens, and the computed tokens by token budget and arm.

    Computed tokens include padding. `model_costs` are the model's packing costs.
    """
    row: dict[str, Any] = {
        "streams": len(streams),
        "tokens": sum(map(len, streams)),
        "distinct": count_distinct(streams),
    }
    for budget in BUDGETS:
        tokens = {
            arm: sum(plan.tokens for plan in plan_passes(streams, budget, costs=each))
            for arm, each in make_arms(model_costs).items()
        }
        ratios = {arm: round(count / row["distinct"], 3) for arm, count in tokens.items()}
        row[f"budget {budget}"] = {"computed": tokens, "per_distinct": ratios}
    return row


def make_arms(model_costs: Costs) -> dict[str, Costs]:
    """Return the packing costs of each arm, derived from the model's own."""
    return {
        "trees": model_costs,
        "no trees": Costs(model_costs.start),
        "fewest tokens": Costs(model_costs.start, CHEAP * model_costs.scores),
    }


def measure_seconds(scorer: StreamScorer, streams: list[Stream], model_costs: Costs) -> float:
    """Return the CPU seconds of a forward and backward pass over all streams."""
    start = process_time()
    for plan in plan_passes(streams, BUDGETS[0], costs=model_costs):
        scorer(build_batch(streams, [1.0] * len(streams), plan)).logprobs.sum().backward()
    scorer.zero_grad()
    return process_time() - start


def compare_seconds(model: torch.nn.Module, model_costs: Costs, cases: dict[str, list[Stream]]) -> dict[str, Any]:
    """Return the median seconds of all arms, which alternate, and the ratios of the arm `trees` to the others."""
    scorer, rows = StreamScorer(model, bf16=True), {}
    for name in TIMED:
        measure_seconds(scorer, cases[name][:2], model_costs)
        each = [
            [measure_seconds(scorer, cases[name], arm_costs) for arm_costs in make_arms(model_costs).values()]
            for _ in range(ROUNDS)
        ]
        seconds = dict(zip(make_arms(model_costs), (median(column) for column in zip(*each, strict=True)), strict=True))
        ratios = {arm: round(seconds["trees"] / spent, 3) for arm, spent in seconds.items() if arm != "trees"}
        rows[name] = {arm: round(spent, 2) for arm, spent in seconds.items()} | {"trees / others": ratios}
        print(name, rows[name], flush=True)
    return rows


def main() -> None:
    """Count tokens, measure times, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", action="store_true", help="exact counts alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load_module(resolve(DEFAULT))
    costs, cases = estimate_costs(model, bf16=True), make_cases()
    result = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    environment = {
        "command": "python benchmarks/shared_tokens.py",
        "machine": describe_environment(),
        "costs": costs._asdict(),
    }
    result |= environment | {"counts": {name: count_tokens(streams, costs) for name, streams in cases.items()}}
    print(json.dumps(result["counts"], indent=1))
    if not options.counts:
        result["seconds"] = compare_seconds(model, costs, cases) | {"rounds": ROUNDS, "load": os.getloadavg()}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
