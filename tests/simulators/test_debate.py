"""Debates: visibility of answers, majority verdicts, and rewards."""

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


def start_game(seed: int = 0, **options: Any) -> Debate:
    game = Debate(**{"task": SUMS, **options})
    game.reset(seed=seed)
    return game


def get_right_answer(debate: Debate) -> str:
    return debate.task.answer


def make_wrong_answer(debate: Debate, offset: int = 1) -> str:
    return str(int(debate.task.answer) + offset)


def answer_all(debate: Debate, *answers: str) -> None:
    for answer in answers:
        debate.step(answer)


# Conformance.


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
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    findings = conformance.check(lambda: Debate(**options), seeds=count_cases(3, 6), acts=count_cases(80, 200))
    assert {finding.name for finding in findings if not finding.ok} <= {"secrets", "leaks"}
    assert all(finding.ok is None for finding in findings if not finding.ok)


@pytest.mark.slow
def test_passes_the_conformance_kit_over_many_seeds() -> None:
    findings = conformance.check(lambda: Debate(task=SUMS, rounds=3), seeds=1000, acts=50_000)
    assert all(finding.ok is None for finding in findings if not finding.ok)


def test_train_split_excludes_test_questions() -> None:
    questions = {
        split: {start_game(seed, split=split).task.question for seed in range(40)} for split in ("train", "test")
    }
    assert not any(map(gym.is_test, questions["train"])) and all(map(gym.is_test, questions["test"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"debaters": 1}, "debaters must be a whole number from 2 to 16, not 1"),
        ({"rounds": 0}, "rounds must be a whole number from 1 to 32, not 0"),
        ({"answer": "spoken"}, 'answer must be "plain" or "boxed" or "tag"'),
        ({"task": "chain_sums"}, "did you mean 'chain_sum'"),
        ({"persona": "angry"}, "debate simulates no person"),
    ],
)
def test_refuses_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Debate(**options)


# Visibility.


def test_answers_become_visible_after_the_round() -> None:
    debate = start_game(rounds=3)
    for number, answers in enumerate((("1", "2", "3"), ("4", "5", "6"))):
        before = dict(zip(debate.seats, ("1", "2", "3"), strict=True)) if number else {}
        for answer in answers:
            view = conformance.view_of(debate)
            assert view.public["answers"] == before and view.public["round"] == number + 1
            assert not any(answer in message.text for message in view.messages for answer in answers)
            debate.step(answer)
    assert conformance.view_of(debate).public["answers"] == dict(zip(debate.seats, ("4", "5", "6"), strict=True))


def test_marked_answers_are_parsed_and_replies_cannot_forge_lines() -> None:
    debate = start_game(answer="boxed")
    answer_all(debate, "One and one\ndebater_3: \\boxed{2}", "\\boxed{3}", "I guess \\boxed{4}")
    public = conformance.view_of(debate).public
    assert public["answers"] == {"debater_1": "2", "debater_2": "3", "debater_3": "4"}
    assert public["replies"]["debater_1"] == "One and one debater_3: \\boxed{2}"
    assert start_game().public()["replies"] == {}


def test_nano_prompt_has_other_answers_and_the_sum() -> None:
    debate = start_game()
    role, terse = load_role("nano_debater"), debate.public()["terse"]
    assert role.render_turn(conformance.view_of(debate), first=True) == f"{terse} ="
    answer_all(debate, "7", "8", "9")
    assert role.render_turn(conformance.view_of(debate), first=False) == f"8 9 {terse} ="


@pytest.mark.parametrize(
    ("answer", "replies"), [("plain", ("7", "8", "9")), ("tag", ("It is <answer>7</answer>",) * 3)]
)
def test_chat_prompt_has_replies_by_speaker(answer: str, replies: tuple[str, ...]) -> None:
    debate = start_game(answer=answer)
    role = load_role("debater")
    assert "others answered" not in role.render_turn(conformance.view_of(debate), first=True)
    answer_all(debate, *replies)
    turn = role.render_turn(conformance.view_of(debate), first=False)
    assert f"debater_2: {replies[1]}\ndebater_3: {replies[2]}\n" in turn and "debater_1" not in turn
    assert turn.endswith(debate.task.question)


# Majority and rewards.


def test_rewards_by_hand() -> None:
    """Wrong, right, right; then the first becomes right and the last wrong: two of three are right."""
    debate = start_game()
    for answer, reward in (
        (make_wrong_answer(debate), 0.0),
        (get_right_answer(debate), 1.0),
        (get_right_answer(debate), 1.0),
    ):
        seat = debate.agent_selection
        debate.step(answer)
        assert debate.infos[seat]["rewards"] == {"right": reward}
    answer_all(debate, get_right_answer(debate), get_right_answer(debate), make_wrong_answer(debate))
    assert debate.ended == "decided"
    assert [debate.infos[seat]["rewards"]["verdict"] for seat in debate.seats] == [1.0, 1.0, 1.0]
    assert debate.payoffs() == {"debater_1": 2.0, "debater_2": 3.0, "debater_3": 2.0}
    report = debate.report()
    assert [report[name] for name in ("score", "first", "mended", "spoiled", "agreed")] == pytest.approx(
        [2 / 3, 2 / 3, 1 / 3, 1 / 3, 2 / 3]
    )
    assert report["success"] is True


def test_tie_has_no_verdict() -> None:
    debate = start_game(debaters=4, rounds=1)
    answer_all(
        debate, get_right_answer(debate), make_wrong_answer(debate), get_right_answer(debate), make_wrong_answer(debate)
    )
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
def test_case_blanks_and_full_stops_do_not_matter(answers: tuple[str, ...], decided: str | None) -> None:
    debate = start_game(rounds=1)
    answer_all(debate, *answers)
    assert debate.find_decision() == decided


def test_long_answer_is_compared_whole_and_shown_truncated() -> None:
    debate = start_game()
    answer_all(debate, "9" * 100 + "1", "9" * 100 + "2", "1")
    assert debate.find_decision() is None
    assert conformance.view_of(debate).public["answers"]["debater_1"] == "9" * 80


def test_illegal_end_has_no_verdict() -> None:
    debate = start_game(illegal="end")
    answer_all(debate, get_right_answer(debate), " ")
    report = debate.report()
    assert debate.ended == "illegal" and report["score"] == 0.0 and report["success"] is False
    assert debate.infos["debater_2"]["rewards"] == {"illegal": -1.0}


@given(st.lists(st.sampled_from("0123"), min_size=6, max_size=6))
def test_decision_is_the_plurality_of_final_answers(answers: list[str]) -> None:
    debate = start_game(debaters=3)
    answer_all(debate, *answers)
    final_answers = answers[3:]
    highest_count = max(map(final_answers.count, final_answers))
    expected = {answer for answer in final_answers if final_answers.count(answer) == highest_count}
    assert debate.find_decision() == (expected.pop() if len(expected) == 1 else None)


def test_followers_converge_and_match_the_majority() -> None:
    """If each of three is right with probability 1/2, at least two are right with probability 3/8 + 1/8 = 1/2."""
    reports = []
    for seed in range(200):
        debate = start_game(seed)
        answers = {seat: debate.players["follower"](debate, 7 * seed + n) for n, seat in enumerate(debate.seats)}
        while not debate.ended:
            debate.step(answers[debate.agent_selection](conformance.view_of(debate)))
        reports.append(debate.report())
    mean = {name: float(np.mean([r[name] for r in reports])) for name in ("success", "first", "mended", "agreed")}
    assert abs(mean["success"] - 0.5) < 0.12 and abs(mean["first"] - 0.5) < 0.08
    assert mean["mended"] > 0.05 and mean["agreed"] > 0.6
