"""Best-of-N evaluation: chances by theory, judges with and without a seat, costs and refusals."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agents.engines.base import Capabilities, Completion, Request
from agents.policy import Policy
from agents.role import Role, Votes, load_role
from agents.stream import Stream
from agents.weights import resolve
from arena.cli.loop import wait
from arena.errors import ConfigError
from arena.evaluate import sampled
from arena.evaluate.best_of import BestOf, find_answering_seat, play_best_of, seat_contenders
from arena.evaluate.specs import ContenderLoader
from arena.evaluate.verifier import ASK, Verifier, find_judge_seat
from arena.play.contenders import Contender, ModelContender, ScriptedContender, play_one
from arena.play.match import MatchPlan
from arena.play.settings import GameSpec
from arena.records import MatchRecord
from tests.factories.guess import CHANCE, GUESS, JUDGED
from tests.factories.toy_engine import ToyEngine

SPEC, WITH_JUDGE = GameSpec(name=GUESS), GameSpec(name=JUDGED)
ANSWER = {"solver": "7", "judge": "no"}


def run_best_of(name: str = "third", deals: int = 300, **options: Any) -> BestOf:
    (contender,) = wait(ContenderLoader().load(name, games=[GUESS]))
    settings: dict[str, Any] = {"n": 4, "seed": 3, "rules": ["majority", "oracle"], **options}
    return wait(play_best_of({"solver": contender}, "solver", SPEC, deals=deals, **settings))


def test_rates_equal_the_theory_for_a_random_player() -> None:
    """No two wrong answers agree: with one right answer of four the first match decides, with two the majority."""
    result, wrong = run_best_of(), 1 - CHANCE
    one_right = 4 * CHANCE * wrong**3
    theory = {"mean": CHANCE, "majority": 1 - wrong**4 - one_right * 3 / 4, "oracle": 1 - wrong**4}
    for row in result.rows:
        low, high = result.mean(row, "success")[1:]
        assert low < theory[row.name] < high, row.name
        assert result.mean(row, "payoff").estimate == pytest.approx(2 * result.mean(row, "success").estimate)
        difference = result.difference(row, "success").estimate
        assert difference == pytest.approx(
            result.mean(row, "success").estimate - result.mean(result.rows[0], "success").estimate
        )
    assert [(row.matches, row.turns, row.tokens) for row in result.rows] == [(1, 1, 0), (4, 4, 0), (4, 4, 0)]
    for k, values in result.curves["oracle"].items():
        assert np.mean(values) == pytest.approx(1 - wrong**k, abs=0.07)


def test_concurrency_changes_nothing() -> None:
    alone, together = (run_best_of(deals=20, in_flight=size).to_json() for size in (1, 64))
    assert alone == together
    assert alone != run_best_of(deals=20, seed=4).to_json()
    assert run_best_of(deals=10).curves["oracle"][4] == run_best_of(deals=20).curves["oracle"][4][:10], (
        "deals depend on the seed"
    )


def test_model_samples_equally_in_any_batch() -> None:
    alone, together = (run_best_of("nano", deals=2, in_flight=size).to_json() for size in (1, 8))
    assert alone == together and alone["rows"][0]["tokens"] > 0


def test_deal_with_a_failing_match_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:

    async def fail_some(plan: MatchPlan, *arguments: Any, **options: Any) -> MatchRecord:
        record = await play_one(plan, *arguments, **options)
        return replace(record, status="failed", reason="lost") if str(plan.identity).startswith("0001-0002") else record

    monkeypatch.setattr(sampled, "play_one", fail_some)
    result = run_best_of(deals=10)
    assert (result.missing, result.failed) == (1, {"lost": 3})
    assert len(result.rows[0].values["success"]) == 9


def test_answer_is_the_games_or_the_last_act() -> None:
    wrong = list_answers("reasoning", "random", protocol="retry", illegal="end")
    assert [text for text in wrong if not text.lstrip("-").isdigit()] == []
    assert {len(text) for text in list_answers(GUESS, "sure")} == {1, 2, 3}, (
        "02 is not 2 in a game without a canonical form"
    )


def list_answers(game: str, name: str, **options: Any) -> list[str]:
    (contender,) = wait(ContenderLoader().load(name, games=[game]))
    seat = find_answering_seat(contender, spec := GameSpec(name=game, options=options))
    samples, _ = wait(sampled.sample_matches({seat: contender}, seat, spec, 1, 20, 3, {}, lambda: None, 8))
    return [sample.answer for sample in samples[0]]


def test_games_without_a_single_answer_are_refused() -> None:
    script = ScriptedContender("random")
    assert find_answering_seat(script, WITH_JUDGE) == "solver"
    for game, message in (("kuhn_poker", "reports no `success`"), ("debate", "3 seats in debate")):
        with pytest.raises(ConfigError, match=message):
            find_answering_seat(script, GameSpec(name=game))
    with pytest.raises(ConfigError, match="who plays judge"):
        seat_contenders(make_contender(), WITH_JUDGE, "solver", None, None, "")


# -- models whose replies are known ------------------------------------------------------------------------------------


class FixedReplyEngine(ToyEngine):
    """An engine with fixed replies that scores every token with probability 0.25."""

    capabilities = Capabilities(serves_several=True, records_entropy=True)

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.frame, self.scored = policy.frame, list[str]()

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return [self._say(request) for request in requests]

    def _say(self, request: Request) -> Completion:
        ids = (*self.frame.encode(ANSWER[request.key.split("/")[1]]), self.frame.stop_id)[: request.max_tokens]
        zeros = (0.0,) * len(ids)
        return Completion(ids, zeros, "stop", 0, zeros)

    async def score(
        self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float], full_vocabulary: bool = False
    ) -> list[np.ndarray]:
        self.scored += [self.frame.decode(stream.ids) for stream in streams]
        return [np.log(np.full(stream.sampled_count, 0.25, np.float32)) for stream in streams]

    def forget(self, key: str) -> None:
        pass


def make_contender(name: str = "one") -> ModelContender:
    source = resolve("nano")
    policy, role = Policy.load(name, source, source, train=False), load_role("nano_player")

    def cast(game: str, seat: str) -> tuple[Policy, Role]:
        return policy, role

    return ModelContender(name, FixedReplyEngine(policy), cast)


def judge_values(judge: ModelContender, spec: GameSpec, seat: str, others: Contender | None = None) -> list[float]:
    contender, values = make_contender(), list[float]()
    verifier = Verifier(judge, contender, spec, "solver", seat)

    async def read(record: MatchRecord) -> float:
        values.append(await verifier(record))
        return values[-1]

    lineup = seat_contenders(contender, spec, "solver", others, judge if seat else None, seat)
    wait(play_best_of(lineup, "solver", spec, n=2, deals=2, seed=0, rules=["p_yes"], scorers={"p_yes": read}))
    return values


def test_judge_without_a_seat_reads_the_conversation() -> None:
    judge = make_contender("judge")
    assert isinstance(judge.engine, FixedReplyEngine)
    token_count = len(judge.engine.frame.encode("yes"))
    assert judge_values(judge, SPEC, "") == pytest.approx([0.25**token_count] * 4)
    for text in judge.engine.scored:
        assert ASK in text and text.rstrip().endswith("yes")
        assert 0 < text.index("7") < text.index(ASK), "first the answer, then the question"


def test_judge_with_a_seat_is_asked_at_its_seat() -> None:
    judge = make_contender("judge")
    assert isinstance(judge.engine, FixedReplyEngine)
    assert find_judge_seat(judge, WITH_JUDGE, "solver") == "judge"
    assert find_judge_seat(judge, SPEC, "solver") == ""
    values = judge_values(judge, WITH_JUDGE, "judge")
    assert len(values) == 4 and all(0 < p < 1 for p in values)
    for text in judge.engine.scored:
        assert ASK not in text and text.rstrip().endswith("yes") and "no" not in text[text.rindex("7") :]


def test_unreadable_conversation_differs_from_a_negative_verdict() -> None:
    judge = make_contender("judge")
    judge.engine.max_context = 8
    assert judge_values(judge, SPEC, "") == [-math.inf] * 4
    script = ScriptedContender("random")
    for refused_judge, contender, message in (
        (script, make_contender(), "has no probability"),
        (make_contender(), script, "no tokens for a judge"),
    ):
        with pytest.raises(ConfigError, match=message):
            Verifier(refused_judge, contender, SPEC, "solver", "")


def test_token_costs_include_all_samples() -> None:
    contender = make_contender()
    assert isinstance(contender.engine, FixedReplyEngine)
    reply = len(contender.engine.frame.encode("7")) + 1
    result = wait(
        play_best_of(
            {"solver": contender},
            "solver",
            SPEC,
            n=4,
            deals=3,
            seed=0,
            rules=["oracle"],
            decodings=["greedy", "cautious", "votes"],
        )
    )
    costs = {row.name: (row.matches, row.tokens) for row in result.rows}
    assert costs == {"mean": (1, reply), "oracle": (4, 4 * reply), "greedy": (1, reply), "cautious": (1, reply),
                     "votes": (1, 4 * reply)}  # fmt: skip
    assert sampled.with_decoding(contender, "greedy", 4).cast("g", "s")[1].sampling.temperature == 0.0


def test_decoding_keeps_the_roles_settings() -> None:
    contender = sampled.with_decoding(make_contender(), "votes", 4)
    assert contender.cast("g", "s")[1].sampling.votes == Votes(samples=4)
    assert sampled.with_decoding(contender, "votes", 9).cast("g", "s")[1].sampling.votes == Votes(samples=4)
    other = sampled.with_decoding(contender, "cautious", 9).cast("g", "s")[1].sampling
    assert other.votes is None and other.cautious is not None
    no_entropy = replace(contender, engine=ToyEngine())
    with pytest.raises(ConfigError, match="entropies"):
        sampled.with_decoding(no_entropy, "cautious", 4)
