"""Critique: order of turns, withheld feedback, and reported measures."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.role import load_role
from games.contracts import View
from simulators import conformance
from simulators.reasoning import Critique
from simulators.reasoning.critique import TRIES, WITHHELD, find_numbers
from tests.factories.thorough import count_cases

SUMS = {"chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}}


def start_game(seed: int = 0, **options: Any) -> Critique:
    game = Critique(**{"task": SUMS, **options})
    game.reset(seed=seed)
    return game


def read_messages(critique: Critique) -> list[tuple[str, str]]:
    return [(message.sender, message.text) for message in critique.messages("solver")]


def make_wrong_answer(critique: Critique, offset: int = 100) -> str:
    return str(int(critique.task.answer) + offset)


@pytest.mark.thorough
@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reference": False, "max_turns": 3, "illegal": "end"},
        {"protocol": "code", "task": {"gcd": {}}, "split": "test"},
    ],
)
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    findings = conformance.check(
        lambda: Critique(**{"task": SUMS, **options}), seeds=count_cases(3, 6), acts=count_cases(80, 200)
    )
    assert {finding.name for finding in findings if not finding.ok} <= {"secrets", "leaks"}
    assert all(finding.ok is None for finding in findings if not finding.ok)


def test_critic_speaks_after_each_failed_try() -> None:
    game = start_game(max_turns=2)
    game.step(make_wrong_answer(game))
    assert game.agent_selection == "critic"
    assert game.infos["critic"]["private"] == {"attempt": make_wrong_answer(game), "reference": game.task.answer}
    game.step("Count again.")
    assert read_messages(game) == [("referee", "Incorrect. Please think again."), ("critic", "Count again.")]
    assert "private" not in game.infos["critic"] and game.infos["solver"]["private"] == {}
    game.step(make_wrong_answer(game, 101))
    assert game.ended == "wrong" and all(game.terminations.values())
    assert game.report()["answers"] == 2 and game.report()["comments"] == 1


def test_critic_without_reference_sees_only_the_attempt() -> None:
    game = start_game(reference=False)
    game.step(make_wrong_answer(game))
    assert game.infos["critic"]["private"] == {"attempt": make_wrong_answer(game)}


def test_critic_is_paid_if_its_feedback_helps() -> None:
    game = start_game()
    game.step(make_wrong_answer(game))
    game.step("Count again.")
    game.step(game.task.answer)
    assert game.payoffs() == {"solver": 1.0, "critic": 1.0}
    silent = start_game()
    silent.step(make_wrong_answer(silent))
    silent.step("")
    silent.step(silent.task.answer)
    assert silent.payoffs() == {"solver": 1.0, "critic": 0.0}


@pytest.mark.parametrize("text", ["{}", "It is {}.", "Isn't it {}?", "({})", "Answer: {}!", "{},00", "... {} ..."])
def test_feedback_with_the_answer_is_withheld(text: str) -> None:
    game = next(
        critique for critique in map(start_game, range(99)) if critique.task.answer not in critique.task.question
    )
    game.step(make_wrong_answer(game))
    game.step(text.format(game.task.answer))
    assert read_messages(game)[-1] == ("critic", WITHHELD)
    assert game.infos["critic"]["rewards"] == {"leak": -1.0}
    game.step(game.task.answer)
    assert game.report()["leaks"] == 1


@pytest.mark.parametrize(
    ("answer", "text"), [("7", "It is SEVEN."), ("42", "forty-two"), ("42", "Forty two?"), ("30", "thirty")]
)
def test_answer_in_words_is_withheld(answer: str, text: str) -> None:
    game = start_game()
    game.task = replace(game.task, answer=answer)
    game.step("-1000")
    game.step(text)
    assert read_messages(game)[-1] == ("critic", WITHHELD)


@pytest.mark.parametrize("text", ["-3", "It is \u22123.", "minus 3", "negative three", "Minus  three!"])
def test_sign_is_part_of_the_answer(text: str) -> None:
    """The question has a 3, and the answer is -3."""
    game = start_game()
    game.task = replace(game.task, question="Calculate 0 - 3.", answer="-3")
    game.step("9")
    game.step("Not 3.")
    assert read_messages(game)[-1] == ("critic", "Not 3.")
    game.step("9")
    game.step(text)
    assert read_messages(game)[-1] == ("critic", WITHHELD)


@given(st.text(max_size=60))
def test_numbers_are_found_in_any_text(text: str) -> None:
    assert all(isinstance(number, float) for number in find_numbers(text))
    assert 41.0 in find_numbers(f"{text} forty-one {text}") or re.search(r"[\w.-]$|^[\w.-]", text)


@pytest.mark.parametrize("text", ["17 is too high.", "You forgot 1.5", "Try 77", "x7"])
def test_feedback_without_the_answer_is_delivered(text: str) -> None:
    game = start_game()
    game.task = replace(game.task, answer="7")
    game.step("17")
    game.step(text)
    assert read_messages(game)[-1] == ("critic", text)


def test_feedback_may_repeat_the_solvers_own_answer() -> None:
    game = start_game()
    game.step(f"It is not {game.task.answer} but 999")
    game.step(f"Why not {game.task.answer}?")
    assert read_messages(game)[-1] == ("critic", f"Why not {game.task.answer}?")


def test_report_has_success_within_tries_and_slope() -> None:
    """Right at the third of five tries: 0 0 1 1 1 at k = 1 … 5. The slope is sum (k - 3) y / sum (k - 3)^2 = 3 / 10."""
    game = start_game()
    for offset in (100, 101):
        game.step(make_wrong_answer(game, offset))
        game.step("No.")
    game.step(game.task.answer)
    report = game.report()
    assert [report[f"sr{k}"] for k in range(1, TRIES + 1)] == [False, False, True, True, True]
    assert report["slope"] == pytest.approx(0.3)


def test_halving_with_directions_finds_every_sum_within_five_tries() -> None:
    """31 numbers need five questions; without directions, one number in 31 is right at the first try."""
    reports = [conformance.play(start_game(), seed, "bisector", "compass") for seed in range(count_cases(60, 400))]
    assert all(report["sr5"] for report in reports) and np.mean([report["sr4"] for report in reports]) < 0.9
    silent = [conformance.play(start_game(), seed, "bisector", "unary") for seed in range(60)]
    assert np.mean([bool(report["sr5"]) for report in silent]) < 0.2


@given(st.text(max_size=500))
def test_any_feedback_is_one_line_within_the_limit(text: str) -> None:
    game = start_game(feedback=40)
    game.step(make_wrong_answer(game))
    game.step(text)
    for _, line in read_messages(game):
        assert "\n" not in line and len(line) <= max(40, len(WITHHELD))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"protocol": "single"}, 'protocol must be "retry" or "code"'),
        ({"feedback": 0}, "feedback"),
        ({"reference": 3}, "reference"),
    ],
)
def test_refuses_invalid_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Critique(**options)


def test_roles_render() -> None:
    game = start_game()
    game.step(make_wrong_answer(game))
    view = View.of(game, "critic")
    assert game.task.answer in load_role("critic").render_turn(view, first=True)
    game.step("Too high.")
    assert load_role("nano_pupil").render_turn(View.of(game, "solver"), first=False).endswith("less")
