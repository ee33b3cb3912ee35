"""Tokens that go through the model in one learning step, beside the distinct ones, with trees in rows and without.

    python benchmarks/shared_tokens.py            # counts, then seconds with SmolLM2: some minutes of one core
    python benchmarks/shared_tokens.py --counts   # exact counts alone; the seconds that are kept stay

Cases: groups (four deals, eight attempts each, which begin alike and agree for some turns), branches (a match of ten
turns from which others part, and others from those), and a match of 5, 20 and 100 turns whose thoughts are stripped
from what follows. A token is distinct by all that is before it: a node in the tree of the streams' prefixes. Seconds
are a processor's, of forward and backward over all weights, in turns: with trees, without, and with as few tokens as
trees can make it, whatever their attention costs. Writes results/shared_tokens.json.
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
from agents.packing import Costs, count_shared, plan_passes
from agents.players.model import ChatPlayer, script_completion
from agents.policy import load_module
from agents.reply import ReplySpec
from agents.role import Role
from agents.scoring import StreamScorer, build_batch
from agents.stream import Stream
from agents.weights import DEFAULT, load_tokenizer, resolve
from arena.doctor import environment
from games.contracts import Message, View

BUDGETS = (2048, 16384)
TIMED = ("groups", "branches", "strip, 20 turns")
ROUNDS = 3
RESULTS = Path(__file__).parent / "results" / "shared_tokens.json"
WORDS = 40_000
CHEAP = 10
"""How many times cheaper attention is taken to be where trees are to save tokens at any price."""
SHOWN, THOUGHT, SAID = 24, 64, 12
"""Tokens per turn in stripped streams: shown to the seat, thought, spoken."""
VOCABULARY = [" one", " two", " red", " blue", " sun", " sea", " old", " new"]
"""Words of one SmolLM2 token each."""


def draw_text(rng: np.random.Generator, tokens: int) -> str:
    """Draw a text of `tokens` one-token words."""
    return "".join(VOCABULARY[i] for i in rng.integers(len(VOCABULARY), size=tokens)).strip()


def play_turns(frame: ChatFrame, history: str, turns: int, seed: int) -> list[Stream]:
    """Return the streams of one seat that thinks and speaks for `turns` turns under the given `history` setting."""
    reply = ReplySpec(format="tagged", action="act", private="think")
    role = Role(role="thinker", system="Be wise.", reply=reply, history=history)  # type: ignore[arg-type]
    writer = np.random.default_rng((seed, 0))

    async def write(view: View, request: Request, summary: bool = False) -> Completion:
        return script_completion(frame, role.reply.write(draw_text(writer, SAID), private=draw_text(writer, THOUGHT)))

    player, rng = (
        ChatPlayer(role=role, frame=frame, policy="p", key="m/a", seed=(seed,), write=write),
        np.random.default_rng((seed, 1)),
    )

    async def play() -> None:
        for turn in range(turns):
            shown = Message.of("b", draw_text(rng, SHOWN))
            await player.act(View("a", turn, (shown,), "", {}, {}, None))

    asyncio.run(play())
    return player.streams


def turns_after(stream: Stream, rng: np.random.Generator, first: int, count: int, choices: int = WORDS) -> None:
    """Go on with turns: 24 tokens shown, 16 written; the fewer choices, the more often two say the same."""
    for turn in range(first, first + count):
        said = np.random.default_rng(int(rng.integers(choices)) + 1000 * turn).integers(WORDS, size=16).tolist()
        stream.observe(np.random.default_rng([turn, said[0]]).integers(WORDS, size=24).tolist())
        stream.append_sampled(said, [-1.0] * 16, turn)


def groups() -> list[Stream]:
    """Four deals of eight attempts of four turns: 120 tokens of rules, 40 of the deal, each turn one of three."""
    found, rules = [], np.random.default_rng(0).integers(WORDS, size=120).tolist()
    for deal in range(4):
        for attempt in range(8):
            stream = Stream()
            stream.observe([*rules, *np.random.default_rng([1, deal]).integers(WORDS, size=40).tolist()])
            turns_after(stream, np.random.default_rng([2, deal, attempt]), 0, 4, choices=3)
            found.append(stream)
    return found


def branches() -> list[Stream]:
    """A match of ten turns, eight that leave it after some turns, and eight that leave those."""
    trunk = Stream()
    trunk.observe(np.random.default_rng(0).integers(WORDS, size=120).tolist())
    turns_after(trunk, np.random.default_rng(1), 0, 10)
    found = [trunk]
    for number in range(16):
        rng = np.random.default_rng([3, number])
        before, turn = found[0 if number < 8 else number - 7], int(rng.integers(2, 9))
        at = 120 + 40 * turn
        branch = Stream(before.ids[:at], before.mask[:at], before.logprobs[:at], before.turns[:at])
        turns_after(branch, rng, turn, 10 - turn)
        found.append(branch)
    return found


def cases() -> dict[str, list[Stream]]:
    """The streams of each case."""
    frame = ChatFrame(load_tokenizer(resolve(DEFAULT)))
    stripped = {f"strip, {turns} turns": play_turns(frame, "strip", turns, 0) for turns in (5, 20, 100)}
    return {"groups": groups(), "branches": branches(), **stripped}


def distinct(streams: list[Stream]) -> int:
    """Number of nodes in the tree of the streams' prefixes."""
    ordered = sorted(stream.ids for stream in streams)
    shared = [0, *(count_shared(a, b) for a, b in pairwise(ordered))]
    return sum(len(ids) - common for ids, common in zip(ordered, shared, strict=True))


def counted(streams: list[Stream], own: Costs) -> dict[str, Any]:
    """Tokens through the model, padding counted, by token budget."""
    row: dict[str, Any] = {"streams": len(streams), "tokens": sum(map(len, streams)), "distinct": distinct(streams)}
    for budget in BUDGETS:
        tokens = {
            arm: sum(one.tokens for one in plan_passes(streams, budget, costs=each)) for arm, each in arms(own).items()
        }
        ratios = {arm: round(count / row["distinct"], 3) for arm, count in tokens.items()}
        row[f"budget {budget}"] = {"computed": tokens, "per_distinct": ratios}
    return row


def arms(own: Costs) -> dict[str, Costs]:
    """The costs by which streams are packed."""
    return {"trees": own, "no trees": Costs(own.start), "fewest tokens": Costs(own.start, CHEAP * own.scores)}


def seconds(scorer: StreamScorer, streams: list[Stream], own: Costs) -> float:
    """Seconds of this process for a forward and backward pass over all streams."""
    begun = process_time()
    for one in plan_passes(streams, BUDGETS[0], costs=own):
        scorer(build_batch(streams, [1.0] * len(streams), one)).logprobs.sum().backward()
    scorer.zero_grad()
    return process_time() - begun


def timed(model: torch.nn.Module, own: Costs, found: dict[str, list[Stream]]) -> dict[str, Any]:
    """Seconds of all ways in turns, and the medians' ratios to those of trees."""
    scorer, rows = StreamScorer(model, bf16=True), {}
    for name in TIMED:
        seconds(scorer, found[name][:2], own)
        each = [[seconds(scorer, found[name], way) for way in arms(own).values()] for _ in range(ROUNDS)]
        took = dict(zip(arms(own), (median(column) for column in zip(*each, strict=True)), strict=True))
        ratios = {arm: round(took["trees"] / spent, 3) for arm, spent in took.items() if arm != "trees"}
        rows[name] = {arm: round(spent, 2) for arm, spent in took.items()} | {"trees / others": ratios}
        print(name, rows[name], flush=True)
    return rows


def main() -> None:
    """Count, time, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", action="store_true", help="exact counts alone")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    model = load_module(resolve(DEFAULT))
    own, found = estimate_costs(model, bf16=True), cases()
    result = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    about = {"command": "python benchmarks/shared_tokens.py", "machine": environment(), "costs": own._asdict()}
    result |= about | {"counts": {name: counted(streams, own) for name, streams in found.items()}}
    print(json.dumps(result["counts"], indent=1))
    if not chosen.counts:
        result["seconds"] = timed(model, own, found) | {"rounds": ROUNDS, "load": os.getloadavg()}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
