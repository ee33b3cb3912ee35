"""Matches of agent programs with an engine that writes calls and texts in odd tokens, drawn by the request's seed."""

import asyncio
import json
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from agents.chat import ChatFrame
from agents.chat_images import ImageToken
from agents.engines.base import Capabilities, Completion, Request
from agents.harness.request import AgentRequest, parse
from agents.harness.server import HarnessServer
from agents.players.servers import Endpoints
from agents.policy import Policy
from agents.tool_formats import ToolCall, make_call_id
from agents.weights import load_tokenizer, resolve
from arena.play.lineup import Lineup, seatings
from arena.play.match import Limits, MatchPlan
from arena.play.settings import GameSpec
from arena.play.tables import make_table
from arena.records import MatchRecord
from games.contracts import MatchId
from tests.factories.babble import NoPastVersions
from tests.factories.tool_templates import build_tool_tokenizer

PROGRAMS = Path(__file__).parent / "agent_programs"
PATIENT = Limits(turn_seconds=60.0)
WORDS = ("fine", "a  b", "é 🙂", "no|yes", '{"act": "x"}', "<think>hm</think> so", "\n\nwell\n")


GREETING: dict[str, Any] = {"role": "user", "content": "Hi"}


def make_chat_request(*messages: dict[str, Any], **fields: Any) -> AgentRequest:
    """A request of chat completions, parsed."""
    return parse("chat", json.dumps({"model": "m", "messages": list(messages), **fields}).encode())


@cache
def load_frame(family: str) -> ChatFrame:
    """The chat frame of a tool family, or of `nano`, which has no tool turns, or of `seeing`, a nano that sees."""
    if family == "seeing":
        tokenizer = load_tokenizer(resolve("nano"))
        tokenizer.add_tokens(["<image>"], special_tokens=True)
        return ChatFrame(tokenizer, ImageToken(tokenizer.convert_tokens_to_ids("<image>"), 4))
    return ChatFrame(load_tokenizer(resolve("nano")) if family == "nano" else build_tool_tokenizer(family))


class ToolCallEngine:
    """An engine whose replies are calls or texts, in other tokens than their text would be encoded in."""

    max_context = 4000
    capabilities = Capabilities(has_vision=True)

    def __init__(self, of: ChatFrame) -> None:
        self.frame = of
        self.made: list[tuple[Request, Completion]] = []

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        await asyncio.sleep(0)
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Completion:
        rng = np.random.default_rng(request.seed)
        word = str(rng.choice(WORDS))
        calls = [
            ToolCall(
                make_call_id(90_000 + i), str(rng.choice(["add", "join"])), {"a": int(rng.integers(9)), "b": f"é{i}"}
            )
            for i in range(int(rng.integers(0, 3)))
        ]
        ids = [token for letter in word for token in self.frame.encode(letter)]
        if calls:
            calls = calls if not self.frame.tools or self.frame.tools.several else calls[:1]
            ids = self.frame.write_calls("" if rng.random() < 0.5 else word, calls)
        whole = (*ids, self.frame.stop_id)
        done = Completion(whole, tuple(rng.normal(-1.0, 0.1, len(whole)).tolist()), "stop", 3)
        self.made.append((request, done))
        return done

    def forget(self, key: str) -> None:
        pass


def make_command(program: str, *arguments: str) -> str:
    """The command that runs a test agent with this interpreter."""
    return " ".join([sys.executable, str(PROGRAMS / f"{program}.py"), *arguments])


def make_lineup(
    harness: str,
    family: str = "qwen25",
    limits: Limits = PATIENT,
    game: str = "tasks",
    **options: Any,
) -> tuple[Lineup, ToolCallEngine, list[str]]:
    """A table at which an agent program plays, its engine, and a list for the notes."""
    notes: list[str] = []
    engine: Any = ToolCallEngine(load_frame(family))
    policy = Policy(
        name="p", source=Path(), model=None, tokenizer=None, frame=load_frame(family), trained=True, version=3
    )
    table = make_table(GameSpec(name=game, options=options), {"agent": str(PROGRAMS / "agent.yaml")})
    object.__setattr__(table, "harnesses", {"agent": harness})
    object.__setattr__(table, "holders", {"agent": "p"})
    made = Lineup(
        tables=[table], policies={"p": policy}, engine=engine, seed=5, limits=limits, endpoints=Endpoints(),
        harnesses=HarnessServer(notes.append),
    )  # fmt: skip
    return made, engine, notes


def make_plan(on: Lineup, number: int = 0) -> MatchPlan:
    """A match at its table."""
    (table,) = on.tables
    seats = seatings(table, table.holders, on.policies)
    return MatchPlan(
        identity=MatchId(1, number),
        game=table.game.name,
        options=dict(table.game.options),
        seed=100 + number,
        seats=seats,
    )


async def play_matches(on: Lineup, count: int = 1) -> list[MatchRecord]:
    """Matches of the table, all at once, after which the server is closed."""
    try:
        past: Any = NoPastVersions()
        return list(await asyncio.gather(*(on.play(make_plan(on, n), past) for n in range(count))))
    finally:
        await on.close()


def assert_exact_tokens(record: MatchRecord, engine: ToolCallEngine) -> None:
    """Check that each turn's tokens are what the engine sampled in the context that the stream has before them."""
    made = {(request.key, request.ids): done for request, done in engine.made if request.key.startswith(record.id)}
    seen = []
    for stream in record.streams["agent"]:
        for turn in sorted({turn for turn in stream.turns if turn >= 0}):
            begin, count = stream.turns.index(turn), stream.turns.count(turn)
            (done,) = [d for (_, ids), d in made.items() if ids == tuple(stream.ids[:begin])]
            assert tuple(stream.ids[begin : begin + count]) == done.ids
            assert tuple(stream.logprobs[begin : begin + count]) == done.logprobs
            assert all(stream.mask[begin : begin + count])
            seen.append(turn)
        assert all(not own for own, turn in zip(stream.mask, stream.turns, strict=True) if turn < 0)
    assert sorted(seen) == [turn.index for turn in record.turns if turn.tokens]
    assert len(seen) == len(made)
