"""Matches of agent programs with an engine that samples calls and texts in unusual tokens, by the request's seed."""

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
from agents.model_folder import load_tokenizer
from agents.players.servers import Endpoints
from agents.policy import Policy
from agents.tool_formats import ToolCall, make_call_id
from agents.weights import resolve
from arena.play.lineup import Lineup, make_seatings
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
    """Return a parsed request of chat completions."""
    return parse("chat", json.dumps({"model": "m", "messages": list(messages), **fields}).encode())


@cache
def load_frame(family: str) -> ChatFrame:
    """Return the chat frame of a tool family, of `nano` (no tool turns) or of `seeing` (a nano with vision)."""
    if family == "seeing":
        tokenizer = load_tokenizer(resolve("nano"))
        tokenizer.add_tokens(["<image>"], special_tokens=True)
        return ChatFrame(tokenizer, ImageToken(tokenizer.convert_tokens_to_ids("<image>"), 4))
    return ChatFrame(load_tokenizer(resolve("nano")) if family == "nano" else build_tool_tokenizer(family))


class ToolCallEngine:
    """Engine whose replies are calls or texts, in other tokens than their text encodes to."""

    max_context = 4000
    capabilities = Capabilities(has_vision=True)

    def __init__(self, of: ChatFrame) -> None:
        self.frame = of
        self.completions: list[tuple[Request, Completion]] = []

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        await asyncio.sleep(0)
        return [self._complete(request) for request in requests]

    def _complete(self, request: Request) -> Completion:
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
        full = (*ids, self.frame.stop_id)
        completion = Completion(full, tuple(rng.normal(-1.0, 0.1, len(full)).tolist()), "stop", 3)
        self.completions.append((request, completion))
        return completion

    def forget(self, key: str) -> None:
        pass


def make_command(program: str, *arguments: str) -> str:
    """Return the command that runs a test agent with this interpreter."""
    return " ".join([sys.executable, str(PROGRAMS / f"{program}.py"), *arguments])


def make_lineup(
    harness: str,
    family: str = "qwen25",
    limits: Limits = PATIENT,
    game: str = "tasks",
    **options: Any,
) -> tuple[Lineup, ToolCallEngine, list[str]]:
    """Return a lineup with one table at which an agent program plays, its engine, and the list of notes."""
    notes: list[str] = []
    engine: Any = ToolCallEngine(load_frame(family))
    policy = Policy(
        name="p", source=Path(), model=None, tokenizer=None, frame=load_frame(family), trained=True, version=3
    )
    table = make_table(GameSpec(name=game, options=options), {"agent": str(PROGRAMS / "agent.yaml")})
    object.__setattr__(table, "harnesses", {"agent": harness})
    object.__setattr__(table, "holders", {"agent": "p"})
    lineup = Lineup(
        tables=[table], policies={"p": policy}, engine=engine, seed=5, limits=limits, endpoints=Endpoints(),
        harnesses=HarnessServer(notes.append),
    )  # fmt: skip
    return lineup, engine, notes


def make_plan(lineup: Lineup, number: int = 0) -> MatchPlan:
    """Return the plan of a match at the lineup's table."""
    (table,) = lineup.tables
    seats = make_seatings(table, table.holders, lineup.policies)
    return MatchPlan(
        identity=MatchId(1, number),
        game=table.game.name,
        options=dict(table.game.options),
        seed=100 + number,
        seats=seats,
    )


async def play_matches(lineup: Lineup, count: int = 1) -> list[MatchRecord]:
    """Play matches of the table concurrently, and close the server."""
    try:
        past: Any = NoPastVersions()
        return list(await asyncio.gather(*(lineup.play(make_plan(lineup, n), past) for n in range(count))))
    finally:
        await lineup.close()


def assert_exact_tokens(record: MatchRecord, engine: ToolCallEngine) -> None:
    """Assert that each turn's tokens are what the engine sampled in the context before them in the stream."""
    completions = {
        (request.key, request.ids): done for request, done in engine.completions if request.key.startswith(record.id)
    }
    turns = []
    for stream in record.streams["agent"]:
        for turn in sorted({turn for turn in stream.turns if turn >= 0}):
            begin, count = stream.turns.index(turn), stream.turns.count(turn)
            (done,) = [d for (_, ids), d in completions.items() if ids == tuple(stream.ids[:begin])]
            assert tuple(stream.ids[begin : begin + count]) == done.ids
            assert tuple(stream.logprobs[begin : begin + count]) == done.logprobs
            assert all(stream.mask[begin : begin + count])
            turns.append(turn)
        assert all(not own for own, turn in zip(stream.mask, stream.turns, strict=True) if turn < 0)
    assert sorted(turns) == [turn.index for turn in record.turns if turn.tokens]
    assert len(turns) == len(completions)
