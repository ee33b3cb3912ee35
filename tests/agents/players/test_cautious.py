"""Cautious sampling: wins where the right branch is confident, and loses where the wrong one is."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from agents.chat import ChatFrame
from agents.engines.base import Completion, Request
from agents.engines.in_process import InProcessEngine
from agents.errors import RoleError
from agents.model_folder import load_model, load_tokenizer
from agents.players.cautious import MARKS, count_trials, make_cautious_writer
from agents.players.writers import make_model_writer
from agents.published import ModuleWeights
from agents.role import Cautious, Role
from agents.scoring import StreamScorer, score_streams
from agents.stream import Stream
from agents.weights import resolve
from arena.cli.loop import wait
from arena.config.seating import resolve_tables
from arena.errors import ConfigError
from tests.factories.texts import make_sampling_experiment

FRAME = ChatFrame(load_tokenizer(resolve("nano")))
RULE = Cautious()
VIEW: Any = None
STOP, DOT, RIGHT, WRONG = 0, 1, 2, 3


def make_markov_writer(rows: Mapping[int, list[float]]) -> Any:
    """Return a writer that samples from a Markov chain and counts its tokens."""
    counts = {"tokens": 0}

    async def write(view: Any, request: Request, summary: bool = False) -> Completion:
        rng, ids, logprobs, entropies = np.random.default_rng(request.seed), list[int](), [], []
        while len(ids) < request.max_tokens and not (ids and ids[-1] in request.stop_ids):
            p = np.array(rows[(*request.ids, *ids)[-1]])
            ids.append(int(rng.choice(len(p), p=p)))
            logprobs.append(float(np.log(p[ids[-1]])))
            entropies.append(float(-(p[p > 0] * np.log(p[p > 0])).sum()))
        counts["tokens"] += len(ids)
        stopped = ids[-1] in request.stop_ids
        return Completion(tuple(ids), tuple(logprobs), "stop" if stopped else "length", 4, tuple(entropies))

    return write, counts


def make_fork(sure: int) -> Mapping[int, list[float]]:
    """Return a chain from 9 to RIGHT or WRONG, one with a certain and one with an uncertain successor; then a stop."""
    knows = [0.0] * 4 + [1.0] + [0.0] * 5
    guesses = [0.0] * 4 + [0.2] * 5 + [0.0]
    dot, stop = [0.0, 1.0] + [0.0] * 8, [1.0] + [0.0] * 9
    rows = {9: [0.0, 0.0, 0.5, 0.5] + [0.0] * 6, DOT: stop, RIGHT: guesses, WRONG: guesses, sure: knows}
    return rows | dict.fromkeys(range(4, 9), dot)


def make_request(seed: int, max_tokens: int = 10, ids: tuple[int, ...] = (9,)) -> Request:
    return Request(
        policy="p",
        ids=ids,
        key="k",
        max_tokens=max_tokens,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        stop_ids=frozenset({STOP}),
        seed=(seed,),
    )


def sample_replies(rows: Mapping[int, list[float]], careful: bool, count: int = 60) -> list[Completion]:
    write, _ = make_markov_writer(rows)
    writer = make_cautious_writer(write, RULE, frozenset({DOT})) if careful else write

    async def all_of() -> list[Completion]:
        return [await writer(VIEW, make_request(seed)) for seed in range(count)]

    return asyncio.run(all_of())


def measure_right_share(rows: Mapping[int, list[float]], careful: bool) -> float:
    return float(np.mean([reply.ids[0] == RIGHT for reply in sample_replies(rows, careful)]))


def test_wins_where_the_right_branch_is_confident() -> None:
    assert measure_right_share(make_fork(sure=RIGHT), careful=True) == 1.0
    assert 0.3 < measure_right_share(make_fork(sure=RIGHT), careful=False) < 0.7


def test_loses_where_the_wrong_branch_is_confident() -> None:
    assert measure_right_share(make_fork(sure=WRONG), careful=True) == 0.0


def test_confident_policy_is_sampled_as_usual() -> None:
    rows = {9: [0.0, 0.0, 1.0] + [0.0] * 7, RIGHT: [0.0, 1.0] + [0.0] * 8, DOT: [1.0] + [0.0] * 9}
    write, counts = make_markov_writer(rows)
    reply = asyncio.run(make_cautious_writer(write, RULE, frozenset({DOT}))(VIEW, make_request(1)))
    assert (reply.ids, reply.finish, reply.version, counts["tokens"]) == ((RIGHT, DOT, STOP), "stop", 4, 3)


NUMBERS = [(0.0, 1), (0.01, 1), (0.03, 1), (0.05, 2), (0.755, 20), (1.5, 40), (9.0, 40)]


@pytest.mark.parametrize(("entropy", "number"), NUMBERS)
def test_the_number_of_trials_is_the_published_one(entropy: float, number: int) -> None:
    assert count_trials(entropy, RULE) == number


def test_replies_are_as_long_as_they_may_be_and_end_as_they_do() -> None:
    for reply in sample_replies(make_fork(RIGHT), careful=True, count=10):
        assert reply.finish == "stop" and reply.ids[-1] == STOP and reply.ids.count(DOT) == 1
        assert len(reply.ids) == len(reply.logprobs) == len(reply.entropy or ())
    write, _ = make_markov_writer(make_fork(RIGHT))
    for most in (1, 2, 3):
        cut = asyncio.run(make_cautious_writer(write, RULE, frozenset({DOT}))(VIEW, make_request(1, most)))
        assert (len(cut.ids), cut.finish) == (most, "length")


def test_the_same_seed_writes_the_same_and_another_seed_may_not() -> None:
    first, two = (sample_replies(make_fork(WRONG), careful=True) for _ in range(2))
    assert first == two and len({reply.ids for reply in sample_replies(make_fork(RIGHT), careful=False)}) > 1


def test_log_probabilities_are_the_policys_for_the_chosen_tokens() -> None:
    model = load_model(resolve("nano"))
    engine = InProcessEngine()
    wait(engine.publish("p", 1, ModuleWeights(model)))
    writer = make_cautious_writer(make_model_writer(engine), Cautious(most=3), FRAME.find_tokens_with(MARKS))
    ids = tuple([*FRAME.open("you"), *FRAME.ask("offer")])
    request = Request(
        policy="p",
        ids=ids,
        key="k",
        max_tokens=6,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        stop_ids=FRAME.stop_ids,
        seed=(1, 2),
    )
    reply = wait(writer(VIEW, request))
    stream = Stream()
    stream.observe(ids)
    stream.append_sampled(reply.ids, reply.logprobs, 0, reply.entropy)
    (scores,) = score_streams(StreamScorer(model, False), [stream], [1.0])
    assert np.abs(scores - np.array(reply.logprobs)).max() < 1e-4 and 0 < len(reply.ids) <= 6


def test_refuses_engine_without_entropy() -> None:
    async def silent(view: Any, request: Request, summary: bool = False) -> Completion:
        return Completion((STOP,), (0.0,), "stop", 1)

    with pytest.raises(RoleError, match=r"sampling\.cautious needs entropies.*in_process"):
        asyncio.run(make_cautious_writer(silent, RULE, frozenset())(VIEW, make_request(0)))


def test_marks_are_tokens_that_contain_a_mark() -> None:
    marks = FRAME.find_tokens_with(MARKS)
    assert set(FRAME.encode(".")) <= marks and marks.isdisjoint(FRAME.encode("offer 1")) and not marks & FRAME.stop_ids


def test_refuses_cautious_trained_policies(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"role odd: sampling\.cautious keeps one of several"):
        resolve_tables(make_sampling_experiment(tmp_path, "{cautious: {}}"))


@pytest.mark.parametrize("wrong", [{"most": 1}, {"low": 2.0}, {"high": 0.0}, {"mots": 3}])
def test_refuses_invalid_rules(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Role.model_validate({"role": "r", "sampling": {"cautious": wrong}})
