"""Debates: who knows what when, what the majority is, and what it pays."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.role import load_role
from simulators import conformance
from simulators.reasoning import Debate, gym
from tests.factories.thorough import count_cases

SUMS = {"chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}}


def game(seed: int = 0, **options: Any) -> Debate:
    made = Debate(**{"task": SUMS, **options})
    made.reset(seed=seed)
    return made


def right(debate: Debate) -> str:
    return debate.task.answer


def wrong(debate: Debate, by: int = 1) -> str:
    return str(int(debate.task.answer) + by)


def say(debate: Debate, *answers: str) -> None:
    for answer in answers:
        debate.step(answer)


# What simulators promise.


@pytest.mark.thorough
@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"debaters": 2, "rounds": 3, "answer": "boxed"},
        {"task": {"gcd": {}, **SUMS}, "rounds": 1, "debaters": 5, "split": "train", "illegal": "end"},
        {"task": "basic_arithmetic", "answer": "tag", "split": "test"},
    ],
)
def test_it_keeps_what_simulators_promise(options: dict[str, Any]) -> None:
    findings = conformance.check(lambda: Debate(**options), seeds=count_cases(3, 6), acts=count_cases(80, 200))
    assert {finding.name for finding in findings if not finding.ok} <= {"secrets", "leaks"}
    assert all(finding.ok is None for finding in findings if not finding.ok)


@pytest.mark.slow
def test_it_keeps_what_simulators_promise_on_a_thousand_seeds() -> None:
    findings = conformance.check(lambda: Debate(task=SUMS, rounds=3), seeds=1000, acts=50_000)
    assert all(finding.ok is None for finding in findings if not finding.ok)


def test_what_is_kept_for_tests_elsewhere_is_not_practised_here() -> None:
    asked = {split: {game(seed, split=split).task.question for seed in range(40)} for split in ("train", "test")}
    assert not any(map(gym.is_test, asked["train"])) and all(map(gym.is_test, asked["test"]))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"debaters": 1}, "debaters must be a whole number from 2 to 16, not 1"),
        ({"rounds": 0}, "rounds must be a whole number from 1 to 32, not 0"),
        ({"answer": "spoken"}, "answer must be one of plain, boxed, tag"),
        ({"task": "chain_sums"}, "did you mean 'chain_sum'"),
        ({"persona": "angry"}, "debate simulates no person"),
    ],
)
def test_options_that_make_no_sense_are_one_line(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Debate(**options)


# Who knows what.


def test_answers_of_a_round_are_seen_once_all_have_answered() -> None:
    debate = game(rounds=3)
    for number, answers in enumerate((("1", "2", "3"), ("4", "5", "6"))):
        before = dict(zip(debate.seats, ("1", "2", "3"), strict=True)) if number else {}
        for answer in answers:
            view = conformance.view_of(debate)
            assert view.public["answers"] == before and view.public["round"] == number + 1
            assert not any(answer in message.text for message in view.messages for answer in answers)
            debate.step(answer)
    assert conformance.view_of(debate).public["answers"] == dict(zip(debate.seats, ("4", "5", "6"), strict=True))


def test_whole_replies_are_read_where_an_answer_is_marked_and_forge_no_line() -> None:
    debate = game(answer="boxed")
    say(debate, "One and one\ndebater_3: \\boxed{2}", "\\boxed{3}", "I guess \\boxed{4}")
    public = conformance.view_of(debate).public
    assert public["answers"] == {"debater_1": "2", "debater_2": "3", "debater_3": "4"}
    assert public["replies"]["debater_1"] == "One and one debater_3: \\boxed{2}"
    assert game().public()["replies"] == {}


def test_a_small_model_reads_what_others_answered_and_the_sum() -> None:
    debate = game()
    role, terse = load_role("nano_debater"), debate.public()["terse"]
    assert role.render_turn(conformance.view_of(debate), first=True) == f"{terse} ="
    say(debate, "7", "8", "9")
    assert role.render_turn(conformance.view_of(debate), first=False) == f"8 9 {terse} ="


@pytest.mark.parametrize(("answer", "said"), [("plain", ("7", "8", "9")), ("tag", ("It is <answer>7</answer>",) * 3)])
def test_a_chat_model_reads_who_said_what(answer: str, said: tuple[str, ...]) -> None:
    debate = game(answer=answer)
    role = load_role("debater")
    assert "others answered" not in role.render_turn(conformance.view_of(debate), first=True)
    say(debate, *said)
    turn = role.render_turn(conformance.view_of(debate), first=False)
    assert f"debater_2: {said[1]}\ndebater_3: {said[2]}\n" in turn and "debater_1" not in turn
    assert turn.endswith(debate.task.question)


# What the majority is, and what it pays.


def test_pay_by_hand() -> None:
    """Wrong, right, right; then the first is mended and the last spoiled: two of three are right."""
    debate = game()
    for answer, paid in ((wrong(debate), 0.0), (right(debate), 1.0), (right(debate), 1.0)):
        seat = debate.agent_selection
        debate.step(answer)
        assert debate.infos[seat]["rewards"] == {"right": paid}
    say(debate, right(debate), right(debate), wrong(debate))
    assert debate.ended == "decided"
    assert [debate.infos[seat]["rewards"]["verdict"] for seat in debate.seats] == [1.0, 1.0, 1.0]
    assert debate.payoffs() == {"debater_1": 2.0, "debater_2": 3.0, "debater_3": 2.0}
    report = debate.report()
    assert [report[name] for name in ("score", "first", "mended", "spoiled", "agreed")] == pytest.approx(
        [2 / 3, 2 / 3, 1 / 3, 1 / 3, 2 / 3]
    )
    assert report["success"] is True


def test_where_no_answer_is_given_most_often_there_is_no_verdict() -> None:
    debate = game(debaters=4, rounds=1)
    say(debate, right(debate), wrong(debate), right(debate), wrong(debate))
    assert debate.find_decision() is None
    assert debate.report()["success"] is False and debate.report()["score"] == 0.5
    assert debate.payoffs() == dict(zip(debate.seats, (1.0, 0.0, 1.0, 0.0), strict=True))
    assert debate.render().endswith("There is no majority.")


@pytest.mark.parametrize(
    ("answers", "decided"),
    [
        (("5", "-5", "-5"), "-5"),
        (("5", "-5", "6"), None),
        (("Paris", " paris ", "rome"), "Paris"),
        (("Yes.", "yes", "No"), "yes"),
        (("12", "012", "12"), "12"),
    ],
)
def test_case_blanks_and_a_full_stop_make_no_other_answer(answers: tuple[str, ...], decided: str | None) -> None:
    debate = game(rounds=1)
    say(debate, *answers)
    assert debate.find_decision() == decided


def test_a_long_answer_counts_whole_and_is_shown_cut() -> None:
    debate = game()
    say(debate, "9" * 100 + "1", "9" * 100 + "2", "1")
    assert debate.find_decision() is None
    assert conformance.view_of(debate).public["answers"]["debater_1"] == "9" * 80


def test_who_says_nothing_ends_a_debate_in_which_nothing_was_decided() -> None:
    debate = game(illegal="end")
    say(debate, right(debate), " ")
    report = debate.report()
    assert debate.ended == "illegal" and report["score"] == 0.0 and report["success"] is False
    assert debate.infos["debater_2"]["rewards"] == {"illegal": -1.0}


@given(st.lists(st.sampled_from("0123"), min_size=6, max_size=6))
def test_decided_is_what_more_than_any_other_gave_last(answers: list[str]) -> None:
    debate = game(debaters=3)
    say(debate, *answers)
    last = answers[3:]
    most = max(map(last.count, last))
    expected = {answer for answer in last if last.count(answer) == most}
    assert debate.find_decision() == (expected.pop() if len(expected) == 1 else None)


def test_followers_agree_more_than_they_began_and_are_right_as_often_as_the_majority() -> None:
    """Of three who know half of it each, two are right in half of the debates: 3/8 + 1/8."""
    reports = []
    for seed in range(200):
        debate = game(seed)
        answers = {seat: debate.players["follower"](debate, 7 * seed + n) for n, seat in enumerate(debate.seats)}
        while not debate.ended:
            debate.step(answers[debate.agent_selection](conformance.view_of(debate)))
        reports.append(debate.report())
    mean = {name: float(np.mean([r[name] for r in reports])) for name in ("success", "first", "mended", "agreed")}
    assert abs(mean["success"] - 0.5) < 0.12 and abs(mean["first"] - 0.5) < 0.08
    assert mean["mended"] > 0.05 and mean["agreed"] > 0.6
