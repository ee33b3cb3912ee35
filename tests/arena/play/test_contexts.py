"""Contexts never outgrow the model: matches end there with a reason, and preflight warns."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents.engines.base import Completion
from agents.engines.in_process import InProcessEngine
from agents.errors import ContextFull
from agents.model_config import NO_LIMIT, read_positions
from agents.policy import Policy
from agents.role import Role, load_role
from agents.weights import resolve
from arena.errors import ConfigError
from arena.play.branches import Branch
from arena.play.contenders import ModelContender, play_one
from arena.play.contexts import check_contexts
from arena.play.joining import ForkPoint, JoiningContender
from arena.play.logged import LogSource
from arena.play.match import Limits, MatchPlan
from arena.play.settings import GameSpec, SeatSpec, TableSpec
from arena.play.tables import Table
from arena.records import MatchRecord, Seating
from games.contracts import MatchId
from tests.factories.babble import FRAME, POLICIES
from tests.factories.matches import ScriptedPayGame
from tests.factories.requests import make_request
from tests.factories.short_contexts import POSITIONS, assert_context_full, play_talk, save_short_nano
from tests.factories.toy_engine import ToyEngine

NANO = load_role("nano_player")


def make_role(max_tokens: int = 20, **memory: Any) -> Role:
    sampling = NANO.sampling.model_copy(update={"max_tokens": max_tokens})
    role_memory = NANO.memory.model_validate({"kind": "all"} | memory)
    return NANO.model_copy(update={"sampling": sampling, "memory": role_memory})


class LongRepliesEngine:
    """Engine whose replies are a legal step and use all tokens they may."""

    def __init__(self, max_context: int = 10**9) -> None:
        self.max_context, self.longest = max_context, 0

    async def generate(self, requests: Any) -> list[Completion]:
        return [self._one(request) for request in requests]

    def _one(self, request: Any) -> Completion:
        self.longest = max(self.longest, len(request.ids) + request.max_tokens)
        words = FRAME.encode("NORTH |" + " so" * request.max_tokens)
        ids = tuple(words[: request.max_tokens])
        return Completion(ids, (-1.0,) * len(ids), "length", 3)

    def forget(self, key: str) -> None:
        pass


def make_contender(engine: Any, policy: Policy, role: Role) -> ModelContender:
    return ModelContender("p", engine, lambda game, seat: (policy, role))


def play_maze(
    engine: LongRepliesEngine, policy: Policy, role: Role, branch: Branch | None = None, maze_contender: Any = None
) -> MatchRecord:
    seats = {"walker": Seating(role.role, "p", 3, True, "model")}
    identity = branch.identity if branch else MatchId(1, 0)
    plan = MatchPlan(
        identity=identity, game="maze", options={"size": 3, "max_turns": 40}, seed=1, seats=seats, branch=branch
    )
    return asyncio.run(play_one(plan, {"walker": maze_contender or make_contender(engine, policy, role)}, 5, Limits()))


@pytest.mark.parametrize("by", ["model", "engine"])
def test_match_ends_when_the_next_reply_exceeds_the_positions(by: str) -> None:
    policy = replace(POLICIES["p"], positions=900 if by == "model" else 10**6)
    engine = LongRepliesEngine(900 if by == "engine" else 10**6)
    record = play_maze(engine, policy, make_role())
    assert (record.status, record.report["ended"]) == ("finished", "context")
    assert len(record.turns) > 3 and engine.longest <= 900
    assert all(len(stream) <= 900 for streams in record.streams.values() for stream in streams)
    assert record.reason.startswith("walker: context limit: ") and record.reason.endswith(" 20 of 900")
    assert MatchRecord.from_json(record.to_json()) == record
    roomy = play_maze(LongRepliesEngine(), replace(policy, positions=10**6), make_role())
    assert roomy.report["ended"] != "context" and roomy.reason == ""


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("engine", [InProcessEngine, ToyEngine])
def test_match_of_a_short_model_uses_all_positions(engine: Any, tmp_path: Path) -> None:
    folder = save_short_nano(tmp_path / "short")

    async def play() -> MatchRecord:
        served = engine()
        record = await play_talk(served, folder)
        completions = await served.generate([make_request([5] * (POSITIONS - 6), policy="short", max_tokens=6)])
        assert len(completions[0].ids) == 6, "the last position is used"
        with pytest.raises(ContextFull, match=f"{POSITIONS - 5} tokens and a reply of up to 6 of {POSITIONS}"):
            await served.generate([make_request([5] * (POSITIONS - 5), policy="short", max_tokens=6)])
        unlimited = await play_talk(served, folder, NO_LIMIT)
        assert (unlimited.status, unlimited.report["ended"]) == ("finished", "context"), "an engine cuts no reply short"
        assert [turn.raw for turn in unlimited.turns] == [turn.raw for turn in record.turns]
        return record

    assert_context_full(asyncio.run(play()))


def test_a_window_and_summaries_stay_within_the_positions() -> None:
    policy = replace(POLICIES["p"], positions=600)
    summaries: dict[str, Any] = {"kind": "summary", "context": 4096, "tokens": 16, "summaries": 99}
    memories: list[dict[str, Any]] = [{"kind": "window", "turns": 2}, summaries]
    for memory in memories:
        engine = LongRepliesEngine()
        record = play_maze(engine, policy, make_role(**memory))
        assert record.report["ended"] != "context", memory
        assert 350 < engine.longest <= 600


def test_first_reply_without_room_fails_the_match() -> None:
    record = play_maze(LongRepliesEngine(), replace(POLICIES["p"], positions=60), make_role(59))
    assert record.status == "failed" and record.failure and record.failure.kind == "game"
    assert "max_tokens" in record.reason


def test_fork_by_a_smaller_model_has_no_room() -> None:
    original = play_maze(LongRepliesEngine(), replace(POLICIES["p"], positions=10**6), make_role())
    small = make_contender(LongRepliesEngine(), replace(POLICIES["p"], positions=200), make_role())
    joining = JoiningContender(small, ForkPoint(original, 20, ""))
    record = play_maze(LongRepliesEngine(), POLICIES["p"], make_role(), maze_contender=joining)
    assert record.status == "failed" and record.failure and record.failure.kind == "limit"
    assert "no room for the match so far" in record.reason and "of 200" in record.reason


def test_branch_longer_than_the_model_fails() -> None:
    original = play_maze(LongRepliesEngine(), replace(POLICIES["p"], positions=10**6), make_role())
    record = play_maze(LongRepliesEngine(), replace(POLICIES["p"], positions=200), make_role(), Branch(original, 20))
    assert record.status == "failed" and "context limit" in record.reason


def check_maze(role: Role, context: int = 10**9) -> list[str]:
    table = Table(GameSpec(name="maze", options={"max_turns": 40}), {"walker": role}, {"walker": "p"})
    nano = resolve("nano")
    policy = replace(POLICIES["p"], positions=read_positions(nano))
    return asyncio.run(check_contexts([table], {"p": policy}.get, context, 100))


def test_preflight_warns_of_replies_that_can_fill_the_context() -> None:
    (note,) = check_maze(make_role(400))
    assert note.startswith("maze: the context of walker may be full after ") and "of 2,048" in note
    assert len(check_maze(make_role(60), 1000)) == 1 and check_maze(make_role(60, kind="window", turns=2), 1000) == []
    assert check_maze(make_role(4)) == []


def test_preflight_counts_replies_of_other_seats() -> None:
    """Four replies of 100 tokens each fit, but not together with those of the other seat."""
    table = Table(GameSpec(name="beats"), {"a": make_role(100), "b": make_role(100)}, {"a": "p", "b": "p"})

    class LongTable(Table):
        def make_game(self) -> Any:
            return ScriptedPayGame(length=8)

    table = LongTable(table.game, table.roles, table.holders)
    policy = replace(POLICIES["p"], positions=650)
    notes = asyncio.run(check_contexts([table], {"p": policy}.get, 10**9, 100))
    assert [note.split(" may be full")[0] for note in notes] == ["beats: the context of a"]


def test_preflight_refuses_a_reply_that_can_never_fit() -> None:
    with pytest.raises(ConfigError, match=r"walker has no room for a reply .*max_tokens of role nano_player"):
        check_maze(make_role(2048))


def test_a_log_of_longer_contexts_than_the_learner_holds_is_refused() -> None:
    record = play_maze(LongRepliesEngine(), replace(POLICIES["p"], positions=10**6), make_role())
    table = TableSpec(game=GameSpec(name="maze"), seats={"walker": SeatSpec(role="nano_player", policy="p")})
    longest = max(map(len, record.streams["walker"]))
    for limit in (longest, longest - 1):
        spec: Any = SimpleNamespace(log="runs/other")
        source = LogSource(None, spec, [table], {"p": limit}, None)  # type: ignore[arg-type]
        if limit == longest:
            assert source._adopt(1, 0, record).seats["walker"].trained
            continue
        with pytest.raises(ConfigError, match=rf"walker of match 0001-0000 .* {longest:,} tokens.* {limit:,}"):
            source._adopt(1, 0, record)
