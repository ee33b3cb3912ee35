"""Proposer and solver: what counts as a task, who is told what, and what it pays."""

import ast
import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.role import load_role
from simulators import conformance
from simulators.base import SimulatorFault
from simulators.reasoning import ProposerSolver, expression, gym
from simulators.reasoning.proposer import PAYS
from simulators.reasoning.typed import FAMILIES, is_same_number, make_families, strip_wording
from tests.factories.thorough import count_cases

PLAIN = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def _worked_out(node: ast.expr) -> int:
    """An independent evaluation, by Python's own parser."""
    match node:
        case ast.BinOp(left, op, right):
            return int(PLAIN[type(op)](_worked_out(left), _worked_out(right)))
        case ast.UnaryOp(ast.USub(), operand):
            return -_worked_out(operand)
        case ast.Constant(int() as value):
            return value
    raise ValueError(ast.dump(node))


def _game(seed: int = 0, **options: Any) -> ProposerSolver:
    game = ProposerSolver(**{"families": {"chain_sum": {"max_terms": 3, "max_digits": 2}}, **options})
    game.reset(seed=seed)
    return game


def _rejected(game: ProposerSolver, act: str) -> str:
    """Why the proposal was refused; "" where it was not."""
    twin = game.clone()
    twin.illegal = "retry"
    twin.step(act)
    messages = twin.observe("proposer")["messages"]
    return messages[-1]["text"] if not twin.infos["proposer"]["valid"] else ""


def _fresh(game: ProposerSolver) -> str:
    return game.draw_new_task(np.random.default_rng(9)).text


# What simulators promise.


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"families": ["products", "gcd"], "rounds": 2, "solvers": 2, "illegal": "retry", "answer": "boxed"},
        {"families": {"basic_arithmetic": {"max_digits": 1}, "lcm": {}}, "split": "train", "pay": "hard"},
        {"families": ["chain_sum", "basic_arithmetic"], "opening": 2, "rounds": 2},
    ],
)
def test_it_keeps_what_simulators_promise_and_has_no_secret_to_leak(options: dict[str, Any]) -> None:
    findings = conformance.check(lambda: ProposerSolver(**options), seeds=6, acts=200)
    assert [(finding.name, finding.ok) for finding in findings if not finding.ok] == [("leaks", None)]


@pytest.mark.slow
def test_it_keeps_what_simulators_promise_on_a_thousand_seeds() -> None:
    findings = conformance.check(lambda: ProposerSolver(families=list(FAMILIES), rounds=2), seeds=1000, acts=50_000)
    assert [(finding.name, finding.ok) for finding in findings if not finding.ok] == [("leaks", None)]


@pytest.mark.parametrize(("player", "share"), [("noop", (0, 0)), ("random", (0, 0.15)), ("oracle", (1, 1))])
def test_solvers_are_as_right_as_what_they_know(player: str, share: tuple[float, float]) -> None:
    scores = []
    for seed in range(40):
        game = _game(seed)
        answers = {seat: game.players[player](game, seed + n) for n, seat in enumerate(game.solvers)}
        game.step(_fresh(game))
        while not game.ended:
            game.step(answers[game.agent_selection](conformance.view_of(game)))
        scores.append(game.report()["score"])
    assert share[0] <= float(np.mean(np.array(scores, float))) <= share[1]


# What it pays.


@pytest.mark.parametrize(("right", "hard", "frontier"), [(0, 1.0, 0.0), (1, 0.75, 0.75), (2, 0.5, 1.0), (4, 0.0, 0.0)])
def test_pay_by_hand(right: int, hard: float, frontier: float) -> None:
    assert (PAYS["hard"](right / 4), PAYS["frontier"](right / 4)) == (hard, frontier)
    for pay, expected in (("hard", hard), ("frontier", frontier)):
        game = _game(pay=pay)
        game.step("12 + 7 - 30")
        assert not game.ended and game.rewards == dict.fromkeys(game.seats, 0.0)
        for n, seat in enumerate(game.solvers):
            assert game.agent_selection == seat
            game.step("-11" if n < right else "11")
            assert game.infos[seat]["rewards"]["right"] == float(n < right)
        assert game.ended == "answered"
        assert game.infos["proposer"]["rewards"] == {"challenge": expected}
        assert game.payoffs() == {"proposer": expected, **{s: float(n < right) for n, s in enumerate(game.solvers)}}
        report = game.report()
        assert (report["s"], report["score"], report["valid"]) == (right / 4, right / 4, 1.0)
        assert (report["terms"], report["digits"], report["task"]) == (3.0, 2.0, "12 + 7 - 30")


def test_a_rejected_proposal_pays_nothing_and_costs_nothing() -> None:
    game = _game()
    game.step("what is love?")
    assert game.ended == "illegal" and set(game.payoffs().values()) == {0.0}
    assert game.infos["proposer"]["valid"] is False and game.infos["proposer"]["rewards"] == {"illegal": 0.0}
    assert game.report() | {"score": 0.0, "valid": 0.0, "success": False} == game.report()


def test_with_retry_a_proposal_may_be_mended_once() -> None:
    game = _game(illegal="retry")
    game.step("12 +")
    assert not game.ended and game.agent_selection == "proposer"
    game.step("12 + 7")
    assert game.agent_selection == "solver_1"


# What counts as a task.


@pytest.mark.parametrize(
    ("act", "why"),
    [
        ("", "from 2 to 3 numbers, not 0"),
        ("12", "from 2 to 3 numbers, not 1"),
        ("12 + 7 -", "a number is missing at the end"),
        ("12 7", "an operator is missing"),
        ("12 + + 7", "a number is missing before '+'"),
        ("12 * 7", "'*' does not belong"),
        ("12 + -7", "'-7' does not belong"),
        ("(12 + 7)", "'(' does not belong"),
        ("1 + 2 + 3 + 4", "from 2 to 3 numbers, not 4"),
        ("123 + 7", "at most 2 digits"),
        ("0x12 + 7", "'x' is no number"),
        ("__import__('os')", "'_' is no number"),
        ("12 + ٣", "is no number"),
        ("1 + " * 100 + "1", "at most 200 characters"),
        ("12 + 0", "its answer stands in it"),
        ("12 - 12 + 5", "its answer stands in it"),
        ("12 + 7\n13 + 7", "an operator is missing"),
        ("5 + ²", "is no number"),
    ],
)
def test_what_poses_no_task_is_rejected(act: str, why: str) -> None:
    assert why in _rejected(_game(), act)


@pytest.mark.parametrize("act", ["12+7", " 12  + 7 =", "[12 + 7]", "`12 + 7`", "012 + 7"])
def test_the_same_task_in_other_dress(act: str) -> None:
    game = _game()
    game.step(act)
    assert game.public()["terse"] == "12 + 7"
    assert game.public()["question"] == "State the final answer to the following arithmetic problem: 12 + 7 ="


def test_what_was_seen_is_rejected() -> None:
    game = _game(rounds=3, solvers=1)
    assert "was seen" in _rejected(game, game.private("proposer")["example"])
    game.step("12 + 7")
    game.step("19")
    assert "was seen" in _rejected(game, "12+7")
    assert _rejected(game, "7 + 12") == ""


def test_a_task_begins_as_the_proposer_is_told() -> None:
    game = _game(opening=2)
    game.reset(seed=0, options={"example": "12 + 7 - 30"})
    told = game.private("proposer")
    assert (told["opening"], told["example"]) == ("12 + 7", "")
    for act in ("7 + 12", "12 - 7", "12 + 71"):
        assert "it does not begin with 12 + 7." in _rejected(game, act)
    assert [_rejected(game, act) for act in ("12+7", "12 + 7 - 30", "12 + 7 + 1")] == ["", "", ""]
    with pytest.raises(ValueError, match="opening must be a whole number from 0 to 2"):
        _game(opening=3)


def test_the_roles_tell_a_proposer_how_to_begin_or_what_not_to_repeat() -> None:
    for opening, told in ((0, "12 + 7 - 30"), (2, "12 + 7")):
        game = _game(opening=opening)
        game.reset(seed=0, options={"example": "12 + 7 - 30"})
        view: Any = conformance.view_of(game)
        assert load_role("nano_proposer").render_turn(view, True) == told
        words = load_role("proposer").render_turn(view, True).split("max digits 2. ")[1]
        assert words == f"{'It begins with' if opening else 'Not this one:'} {told}\nYour task?"


@pytest.mark.parametrize("opening", [1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_scripted_proposers_keep_to_the_opening(family: str, opening: int) -> None:
    openings = set()
    for seed in range(20):
        game = _game(seed, families=family, opening=opening)
        openings.add(game.opening)
        assert _rejected(game, _fresh(game)) == ""
    assert len(openings) > 10


def test_an_opening_that_is_a_task_by_itself_may_be_asked() -> None:
    for seed in range(40):
        game = _game(seed, opening=2, split="train", families={"chain_sum": {"max_digits": 1}})
        assert _rejected(game, game.opening) == ""


def test_a_split_keeps_the_other_splits_questions_out() -> None:
    train, test = _game(split="train"), _game(split="test")
    tasks = [f"{a} + {b}" for a in range(11, 20) for b in range(21, 30)]
    kept = [task for task in tasks if _rejected(train, task)]
    assert all("another split" in _rejected(train, task) for task in kept)
    assert [task for task in tasks if not _rejected(test, task)] == kept
    assert 0.1 < len(kept) / len(tasks) < 0.3
    for seed in range(20):
        game = _game(seed, split="train")
        assert not gym.is_test(game.example.question)


def test_a_checker_that_fails_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    game = _game()
    monkeypatch.setattr(type(game.family), "check", lambda self, text: 1 / 0)
    game.step("12 + 7")
    assert game.ended == "illegal" and game.payoffs()["proposer"] == 0.0
    assert game.report()["checker_faults"] == 1


def test_a_family_without_a_task_in_the_split_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym, "is_test", lambda question: True)
    with pytest.raises(SimulatorFault, match="has no task in the split train"):
        _game(split="train")


@pytest.mark.parametrize("family", FAMILIES)
def test_questions_and_answers_are_those_of_reasoning_gym(family: str) -> None:
    limits = {name: most for name, (_, _, most) in FAMILIES[family].limits.items()}
    checker = make_families({family: limits})[family]
    settings_there = {"operators": ["+", "-", "*"]} if family == "basic_arithmetic" else {}
    rng = np.random.default_rng(0)
    for _ in range(60):
        task = gym.draw_task(family, settings_there, rng)
        ours = checker.check(strip_wording(family, task.question))
        assert (ours.question, str(ours.answer)) == (task.question, task.answer)
        drawn = checker.draw(rng)
        assert checker.check(drawn.text) == drawn


@settings(max_examples=count_cases(70, 300), deadline=None)
@given(st.text("0123456789+-*() ", max_size=40))
def test_expressions_come_to_what_python_says(text: str) -> None:
    try:
        found = expression.tokenise(text)
        value = expression.evaluate(found)
    except ValueError:
        return
    assert value == _worked_out(ast.parse(" ".join(found), mode="eval").body)
    assert expression.tokenise(" ".join(found)) == found


@given(
    act=st.one_of(st.text(max_size=60), st.text("0123456789+-*(), \n[]=", max_size=60)),
    family=st.sampled_from(list(FAMILIES)),
)
def test_any_proposal_is_a_task_or_is_rejected(act: str, family: str) -> None:
    game = _game(families=family)
    game.step(act)
    assert game.rewards["proposer"] == 0.0
    if game.ended:
        assert game.ended == "illegal"
    else:
        task = game.proposed
        assert task is not None and not task.is_trivial and game.public()["question"] == task.question
        assert str(task.answer) not in task.text.replace("-", " ").replace(",", " ").split()


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("19", 19, True),
        (" +1,019.0 ", 1019, True),
        ("-0", 0, True),
        ("019", 19, True),
        ("19 7", 19, False),
        ("nan", 0, False),
        ("", 0, False),
        ("١٩", 19, False),
        ("1e1", 10, False),
        ("--3", 3, False),
        ("9" * 5000, 9, False),
    ],
)
def test_what_is_the_same_number(text: str, answer: int, right: bool) -> None:
    assert is_same_number(text, answer) is right


# Who is told what.


def test_solvers_see_the_question_alone_and_nothing_of_each_other() -> None:
    views: list[Any] = []
    for first in ("19", "wrong", "19 | it is 19"):
        game = _game()
        game.step("12 + 7")
        game.step(first)
        seen = conformance.view_of(game)
        assert seen.messages == () and seen.private == {}
        assert "19" not in repr(seen.public)
        assert game.example.text not in repr(seen)
        views.append(seen)
    assert views[0] == views[1] == views[2]


def test_in_further_rounds_each_hears_only_of_its_own() -> None:
    game = _game(rounds=2, solvers=2)
    for act in ("12 + 7", "19", "20"):
        game.step(act)
    told = {seat: [message["text"] for message in game.observe(seat)["messages"]] for seat in game.seats}
    assert told == {
        "proposer": ["1 of 2 were right."],
        "solver_1": ["That was right."],
        "solver_2": ["That was wrong."],
    }
    assert game.public() == {"family": "chain_sum", "question": "", "terse": "", "round": 2}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"families": "sums"}, "no family 'sums'"),
        ({"families": {"gcd": {"max_terms": 3}}}, "no setting 'max_terms'"),
        ({"families": {"gcd": {"max_value": 1}}}, "from 2 to 100000"),
        ({"families": {"gcd": 4}}, "must be names and values"),
        ({"families": []}, "a name, a list of names"),
        ({"solvers": 0}, "from 1 to 64"),
        ({"pay": "soft"}, "pay must be one of hard, frontier"),
        ({"rounds": 0}, "at least 1"),
    ],
)
def test_options_that_make_no_sense_are_told_in_one_line(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError) as error:
        ProposerSolver(**options)
    assert told in str(error.value)
