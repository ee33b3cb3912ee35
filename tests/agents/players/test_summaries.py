"""Memory `summary`: sampled ids are trained ids, contexts keep their limit, and no game reads a summary."""

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agents.chat import ChatFrame
from agents.engines.base import Completion, Request
from agents.memory import Memory
from agents.model_folder import load_tokenizer
from agents.players.model import ChatPlayer
from agents.players.scripted import make_scripted
from agents.players.writers import make_demonstration_writer
from agents.role import Role, load_role
from agents.weights import resolve
from arena.credit.assign import assign
from arena.credit.batch import TurnBatch
from arena.credit.samples import make_samples
from arena.credit.settings import CreditSpec
from arena.play.branches import Branch
from arena.play.contenders import ModelContender, play_one
from arena.play.match import Limits, MatchPlan, play_match
from arena.records import MatchRecord, Seating, trajectories
from games.contracts import MatchId
from games.recall import Recall
from tests.factories.babble import POLICIES, drop_times

FRAME = ChatFrame(load_tokenizer(resolve("nano")))
KEEPER = load_role("nano_keeper")
LIMITS = Limits()


def make_keeper(**memory: Any) -> Role:
    return KEEPER.model_copy(update={"memory": Memory(**{**KEEPER.memory.model_dump(exclude={"turns"}), **memory})})


class RandomSummaryEngine:
    """Engine with random summaries, whose acts pass until a summary is requested."""

    max_context = 10**9

    def __init__(self) -> None:
        self.completions: list[tuple[Request, Completion]] = []

    async def generate(self, requests: Any) -> list[Completion]:
        return [self._complete(request) for request in requests]

    def _complete(self, request: Request) -> Completion:
        rng = np.random.default_rng(request.seed)
        context = FRAME.decode(request.ids)
        text = " ".join(rng.choice(["ball 3", "king 2", "hat 7"], 2)) if context.endswith("keep") else "PASS"
        text = str(rng.integers(10)) if "ask" in context.split("PASS")[-1] and text == "PASS" else text
        ids = (*FRAME.encode(text), FRAME.stop_id)[: request.max_tokens]
        finish: Any = "stop" if ids[-1] == FRAME.stop_id else "length"
        self.completions.append((request, Completion(ids, tuple(rng.normal(-1, 0.1, len(ids)).tolist()), finish, 3)))
        return self.completions[-1][1]

    def forget(self, key: str) -> None:
        pass


def play_with_summaries(
    role: Role, engine: Any, number: int = 0, branch: Branch | None = None, limits: Limits = LIMITS, **options: Any
) -> MatchRecord:
    options = {"lines": 12, "facts": 4, **options}
    contender = ModelContender("p", engine, lambda game, seat: (POLICIES["p"], role))
    seats = {"keeper": Seating(role.role, "p", 3, True, "model")}
    identity = branch.identity if branch else MatchId(1, number)
    plan = MatchPlan(identity=identity, game="recall", options=options, seed=number, seats=seats, branch=branch)
    return asyncio.run(play_one(plan, {"keeper": contender}, 5, limits))


def list_own_streams(record: MatchRecord) -> list[tuple[int, float, int]]:
    return [
        (token, logprob, turn)
        for s in record.streams["keeper"]
        for token, mask, logprob, turn in zip(s.ids, s.mask, s.logprobs, s.turns, strict=True)
        if mask
    ]


@pytest.mark.parametrize("context", [40, 48, 64])
def test_trained_ids_are_sampled_ids_across_summaries(context: int) -> None:
    for number in range(5):
        engine = RandomSummaryEngine()
        record = play_with_summaries(make_keeper(context=context, summaries=40), engine, number)
        assert record.status == "finished", record.reason
        summaries = [turn for turn in record.turns if turn.source == "summary"]
        assert summaries and len(record.streams["keeper"]) == len(summaries) + 1
        sampled = [
            (t, p, k) for k, (_, c) in enumerate(engine.completions) for t, p in zip(c.ids, c.logprobs, strict=True)
        ]
        assert list_own_streams(record) == sampled
        for stream, turns in zip(record.streams["keeper"], list_runs(record), strict=True):
            assert len(stream) <= context
            for turn in turns:  # what it was sampled from is what the stream holds before it
                begin = stream.turns.index(turn)
                assert tuple(stream.ids[:begin]) == engine.completions[turn][0].ids


def list_runs(record: MatchRecord) -> list[list[int]]:
    """List the turns of each stream, which ends with a summary that the next one begins with."""
    runs: list[list[int]] = [[]]
    for turn in record.turns:
        runs[-1].append(turn.index)
        if turn.source == "summary":
            runs.append([])
    return runs


def test_a_new_stream_begins_with_the_summary_as_it_was_sampled() -> None:
    engine = RandomSummaryEngine()
    record = play_with_summaries(make_keeper(), engine)
    streams = record.streams["keeper"]
    for before, after in itertools.pairwise(streams):
        last = before.turns[-1]
        summary = engine.completions[last][1].ids
        assert record.turns[last].source == "summary" and tuple(before.ids[-len(summary) :]) == summary
        opening = [*FRAME.open("you"), *FRAME.ask("keep"), *summary]
        assert after.ids[: len(opening)] == opening and not any(after.mask[: len(opening)])


def test_no_game_reads_a_summary_and_every_line_is_shown_once() -> None:
    role = make_keeper()
    record = play_with_summaries(role, RandomSummaryEngine())
    acts = [turn for turn in record.turns if turn.source == "policy"]
    assert [turn.action for turn in acts[:-1]] == ["PASS"] * 12 and all(turn.valid for turn in acts)
    assert all(turn.messages and not turn.rewards.get("illegal") for turn in acts)
    for turn in record.turns:
        if turn.source == "summary":
            assert (turn.messages, turn.action, turn.valid, turn.rewards) == ((), "", True, {})
    lines = [turn.messages[-1].text for turn in acts]
    game = Recall(lines=12, facts=4)
    game.reset(seed=0)
    assert lines[:-1] == game.script and lines[-1] == f"ask {game.question}"
    assert sum(turn.tokens for turn in record.turns) == len(list_own_streams(record)), "limits count them as tokens"


def test_limits_count_summaries() -> None:
    record = play_with_summaries(make_keeper(), RandomSummaryEngine())
    assert len(record.turns) > 13
    cut = play_with_summaries(make_keeper(), RandomSummaryEngine(), limits=Limits(turns=len(record.turns) - 1))
    assert (cut.status, cut.reason) == ("failed", f"turn limit: {len(record.turns) - 1} turns taken")


def test_a_match_is_cut_off_when_no_summary_is_left() -> None:
    record = play_with_summaries(make_keeper(summaries=1), RandomSummaryEngine())
    assert (record.status, record.report["ended"], record.report["right"]) == ("finished", "context", False)
    assert sum(turn.source == "summary" for turn in record.turns) == 1 and record.payoffs == {"keeper": 0.0}
    staked = play_with_summaries(make_keeper(summaries=1), RandomSummaryEngine(), stake=0.5)
    assert staked.payoffs == {"keeper": -0.5} and staked.turns[-1].rewards == {"stake": -0.5}
    assert max(map(len, record.streams["keeper"])) <= 48


def test_refuses_context_too_small_for_a_turn_in_one_line() -> None:
    record = play_with_summaries(make_keeper(context=16), RandomSummaryEngine())
    assert record.status == "failed" and record.failure and record.failure.kind == "game"
    assert "role nano_keeper: memory.context: 16 tokens have no room" in record.reason and "raise it" in record.reason


def test_messages_longer_than_the_context_end_the_match() -> None:
    role = make_keeper(context=60).model_copy(update={"turn": "{% for i in range(50) %}rest {% endfor %}"})
    record = play_with_summaries(role, RandomSummaryEngine())
    assert (record.status, record.report["ended"], record.turns) == ("finished", "context", ())


def test_a_branch_repeats_summaries_token_for_token() -> None:
    role = make_keeper()
    record = play_with_summaries(role, RandomSummaryEngine(), 3)
    for turn in range(1, len(record.turns)):
        engine = RandomSummaryEngine()
        again = play_with_summaries(role, engine, 3, Branch(record, turn))
        assert again.status == "finished", again.reason
        assert all(request.seed[-1] >= turn for request, _ in engine.completions)
        actual, reference = drop_times(record)["turns"][:turn], drop_times(again)["turns"][:turn]
        assert [{**t, "rewards": {}} for t in actual] == [{**t, "rewards": {}} for t in reference]


def test_summaries_are_credited_for_later_turns_or_excluded() -> None:
    records = [play_with_summaries(make_keeper(), RandomSummaryEngine(), number) for number in range(30)]
    batch = TurnBatch([t for record in records for t in trajectories(record)])
    counts: dict[bool, int] = {}
    for masked in (False, True):
        select = [{"written_as": {"sources": ["summary"]}}] if masked else []
        rule = CreditSpec.model_validate({"estimator": "mars", "select": select})
        credited = assign(batch, rule)
        samples = make_samples(credited, {"nano_keeper": 1.0})
        counts[masked] = sum(int(s.learned.sum()) for s in samples)
        for item in credited:
            paid = sum(item.rewards)
            baseline = {float(a) - paid for a in item.advantages}
            assert len(baseline) == 1, "with γ = 1 every turn, summaries too, has the return of what followed"
    summaries = sum(t.tokens for record in records for t in record.turns if t.source == "summary")
    assert summaries and counts[False] - counts[True] == summaries


def test_an_oracle_demonstrates_summaries_that_hold_the_facts() -> None:
    right = 0
    for seed in range(10):
        game = Recall(lines=12, facts=4)
        writer = make_demonstration_writer(make_scripted("oracle", 0, game), KEEPER, FRAME)
        player = ChatPlayer(
            role=KEEPER, frame=FRAME, policy="p", key="d", seed=(0,), write=writer, source="demonstration"
        )
        plan = MatchPlan(
            identity=MatchId(0, 0),
            game="recall",
            options={},
            seed=seed,
            seats={"keeper": Seating("nano_keeper", "p", 0, True, "model")},
        )
        record = asyncio.run(play_match(plan, game, {"keeper": player}, Limits()))
        assert {turn.source for turn in record.turns} == {"demonstration", "summary"}
        right += record.report["right"] is True
    assert right == 10


def test_script_without_summary_writes_an_empty_one() -> None:
    game = Recall(lines=12, facts=4)
    player = ChatPlayer(
        role=KEEPER,
        frame=FRAME,
        policy="p",
        key="d",
        seed=(0,),
        write=make_demonstration_writer(make_scripted("random", 0, game), KEEPER, FRAME),
    )
    plan = MatchPlan(
        identity=MatchId(0, 0),
        game="recall",
        options={},
        seed=1,
        seats={"keeper": Seating("nano_keeper", "p", 0, True, "model")},
    )
    record = asyncio.run(play_match(plan, game, {"keeper": player}, Limits()))
    assert {turn.raw for turn in record.turns if turn.source == "summary"} == {""}


def test_a_log_keeps_summaries() -> None:
    record = play_with_summaries(make_keeper(), RandomSummaryEngine())
    again = MatchRecord.from_json(record.to_json())
    assert [turn.source for turn in again.turns] == [turn.source for turn in record.turns]
    assert replace(again, failure=None).to_json() == record.to_json()
