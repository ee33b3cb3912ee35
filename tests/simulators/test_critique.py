"""A critic at the table: whose turn it is, what is withheld, and what the figures say."""

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


def game(seed: int = 0, **options: Any) -> Critique:
    made = Critique(**{"task": SUMS, **options})
    made.reset(seed=seed)
    return made


def heard(critique: Critique) -> list[tuple[str, str]]:
    return [(message.sender, message.text) for message in critique.messages("solver")]


def wrong(critique: Critique, by: int = 100) -> str:
    return str(int(critique.task.answer) + by)


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
def test_it_keeps_what_simulators_promise(options: dict[str, Any]) -> None:
    findings = conformance.check(
        lambda: Critique(**{"task": SUMS, **options}), seeds=count_cases(3, 6), acts=count_cases(80, 200)
    )
    assert {finding.name for finding in findings if not finding.ok} <= {"secrets", "leaks"}
    assert all(finding.ok is None for finding in findings if not finding.ok)


def test_the_critic_speaks_after_each_try_that_does_not_end_the_match() -> None:
    played = game(max_turns=2)
    played.step(wrong(played))
    assert played.agent_selection == "critic"
    assert played.infos["critic"]["private"] == {"attempt": wrong(played), "reference": played.task.answer}
    played.step("Count again.")
    assert heard(played) == [("referee", "Incorrect. Please think again."), ("critic", "Count again.")]
    assert "private" not in played.infos["critic"] and played.infos["solver"]["private"] == {}
    played.step(wrong(played, 101))
    assert played.ended == "wrong" and all(played.terminations.values())
    assert played.report()["answers"] == 2 and played.report()["comments"] == 1


def test_without_the_reference_the_critic_sees_the_attempt_alone() -> None:
    played = game(reference=False)
    played.step(wrong(played))
    assert played.infos["critic"]["private"] == {"attempt": wrong(played)}


def test_helped_pays_a_critic_whose_solver_is_right_afterwards() -> None:
    played = game()
    played.step(wrong(played))
    played.step("Count again.")
    played.step(played.task.answer)
    assert played.payoffs() == {"solver": 1.0, "critic": 1.0}
    silent = game()
    silent.step(wrong(silent))
    silent.step("")
    silent.step(silent.task.answer)
    assert silent.payoffs() == {"solver": 1.0, "critic": 0.0}


@pytest.mark.parametrize("says", ["{}", "It is {}.", "Isn't it {}?", "({})", "Answer: {}!", "{},00", "... {} ..."])
def test_feedback_with_the_answer_is_withheld(says: str) -> None:
    played = next(one for one in map(game, range(99)) if one.task.answer not in one.task.question)
    played.step(wrong(played))
    played.step(says.format(played.task.answer))
    assert heard(played)[-1] == ("critic", WITHHELD)
    assert played.infos["critic"]["rewards"] == {"leak": -1.0}
    played.step(played.task.answer)
    assert played.report()["leaks"] == 1


@pytest.mark.parametrize(
    ("answer", "says"), [("7", "It is SEVEN."), ("42", "forty-two"), ("42", "Forty two?"), ("30", "thirty")]
)
def test_an_answer_in_words_is_withheld_too(answer: str, says: str) -> None:
    played = game()
    played.task = replace(played.task, answer=answer)
    played.step("-1000")
    played.step(says)
    assert heard(played)[-1] == ("critic", WITHHELD)


@pytest.mark.parametrize("says", ["-3", "It is \u22123.", "minus 3", "negative three", "Minus  three!"])
def test_the_sign_of_an_answer_is_a_part_of_it(says: str) -> None:
    """The question has a 3, and the answer is -3."""
    played = game()
    played.task = replace(played.task, question="Calculate 0 - 3.", answer="-3")
    played.step("9")
    played.step("Not 3.")
    assert heard(played)[-1] == ("critic", "Not 3.")
    played.step("9")
    played.step(says)
    assert heard(played)[-1] == ("critic", WITHHELD)


@given(st.text(max_size=60))
def test_numbers_are_found_in_any_text(text: str) -> None:
    assert all(isinstance(number, float) for number in find_numbers(text))
    assert 41.0 in find_numbers(f"{text} forty-one {text}") or re.search(r"[\w.-]$|^[\w.-]", text)


@pytest.mark.parametrize("says", ["17 is too high.", "You forgot 1.5", "Try 77", "x7"])
def test_feedback_without_it_is_heard(says: str) -> None:
    played = game()
    played.task = replace(played.task, answer="7")
    played.step("17")
    played.step(says)
    assert heard(played)[-1] == ("critic", says)


def test_what_the_solver_said_itself_may_be_said() -> None:
    played = game()
    played.step(f"It is not {played.task.answer} but 999")
    played.step(f"Why not {played.task.answer}?")
    assert heard(played)[-1] == ("critic", f"Why not {played.task.answer}?")


def test_figures_are_success_within_tries_and_their_slope() -> None:
    """Right at the third of five tries: 0 0 1 1 1 over 1 … 5. The slope is sum (k - 3) y / sum (k - 3)^2 = 3 / 10."""
    played = game()
    for by in (100, 101):
        played.step(wrong(played, by))
        played.step("No.")
    played.step(played.task.answer)
    report = played.report()
    assert [report[f"sr{k}"] for k in range(1, TRIES + 1)] == [False, False, True, True, True]
    assert report["slope"] == pytest.approx(0.3)


def test_halving_with_directions_finds_every_sum_within_five_tries() -> None:
    """31 numbers need five questions; without directions one number in 31 is right at the first."""
    reports = [conformance.play(game(), seed, "bisector", "compass") for seed in range(count_cases(60, 400))]
    assert all(report["sr5"] for report in reports) and np.mean([report["sr4"] for report in reports]) < 0.9
    silent = [conformance.play(game(), seed, "bisector", "unary") for seed in range(60)]
    assert np.mean([bool(report["sr5"]) for report in silent]) < 0.2


@given(st.text(max_size=500))
def test_any_feedback_is_one_line_within_the_limit(text: str) -> None:
    played = game(feedback=40)
    played.step(wrong(played))
    played.step(text)
    for _, said in heard(played):
        assert "\n" not in said and len(said) <= max(40, len(WITHHELD))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"protocol": "single"}, 'protocol must be "retry" or "code"'),
        ({"feedback": 0}, "feedback"),
        ({"reference": 3}, "reference"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Critique(**options)


def test_its_roles_render() -> None:
    played = game()
    played.step(wrong(played))
    seen = View.of(played, "critic")
    assert played.task.answer in load_role("critic").render_turn(seen, first=True)
    played.step("Too high.")
    assert load_role("nano_pupil").render_turn(View.of(played, "solver"), first=False).endswith("less")
