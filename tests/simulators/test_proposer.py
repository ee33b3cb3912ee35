"""Proposer and solver: valid tasks, visibility, and rewards."""

import ast
import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.role import load_role
from simulators import conformance
from simulators.base import PAYS, SimulatorFault
from simulators.reasoning import ProposerSolver, expression, gym
from simulators.reasoning.typed import FAMILIES, is_same_number, make_families, strip_wording
from tests.factories.thorough import count_cases

PLAIN = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def evaluate(node: ast.expr) -> int:
    """Evaluate an expression independently, by Python's own parser."""
    match node:
        case ast.BinOp(left, op, right):
            return int(PLAIN[type(op)](evaluate(left), evaluate(right)))
        case ast.UnaryOp(ast.USub(), operand):
            return -evaluate(operand)
        case ast.Constant(int() as value):
            return value
    raise ValueError(ast.dump(node))


def start_game(seed: int = 0, **options: Any) -> ProposerSolver:
    game = ProposerSolver(**{"families": {"chain_sum": {"max_terms": 3, "max_digits": 2}}, **options})
    game.reset(seed=seed)
    return game


def get_rejection(game: ProposerSolver, act: str) -> str:
    """Return the reason why a proposal is rejected, or ""."""
    twin = game.clone()
    twin.illegal = "retry"
    twin.step(act)
    messages = twin.observe("proposer")["messages"]
    return messages[-1]["text"] if not twin.infos["proposer"]["valid"] else ""


def draw_new_task(game: ProposerSolver) -> str:
    return game.draw_new_task(np.random.default_rng(9)).text


# Conformance.


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
def test_passes_the_conformance_kit_and_has_no_secret_to_leak(options: dict[str, Any]) -> None:
    findings = conformance.check(lambda: ProposerSolver(**options), seeds=6, acts=200)
    assert [(finding.name, finding.ok) for finding in findings if not finding.ok] == [("leaks", None)]


@pytest.mark.slow
def test_passes_the_conformance_kit_over_many_seeds() -> None:
    findings = conformance.check(lambda: ProposerSolver(families=list(FAMILIES), rounds=2), seeds=1000, acts=50_000)
    assert [(finding.name, finding.ok) for finding in findings if not finding.ok] == [("leaks", None)]


@pytest.mark.parametrize(("player", "share_range"), [("noop", (0, 0)), ("random", (0, 0.15)), ("oracle", (1, 1))])
def test_scripted_solvers_score_as_expected(player: str, share_range: tuple[float, float]) -> None:
    scores = []
    for seed in range(40):
        game = start_game(seed)
        answers = {seat: game.players[player](game, seed + n) for n, seat in enumerate(game.solvers)}
        game.step(draw_new_task(game))
        while not game.ended:
            game.step(answers[game.agent_selection](conformance.view_of(game)))
        scores.append(game.report()["score"])
    assert share_range[0] <= float(np.mean(np.array(scores, float))) <= share_range[1]


# Rewards.


@pytest.mark.parametrize(
    ("right_count", "hard", "frontier"), [(0, 1.0, 0.0), (1, 0.75, 0.75), (2, 0.5, 1.0), (4, 0.0, 0.0)]
)
def test_rewards_by_hand(right_count: int, hard: float, frontier: float) -> None:
    assert (PAYS["hard"](right_count / 4), PAYS["frontier"](right_count / 4)) == (hard, frontier)
    for pay, expected in (("hard", hard), ("frontier", frontier)):
        game = start_game(pay=pay)
        game.step("12 + 7 - 30")
        assert not game.ended and game.rewards == dict.fromkeys(game.seats, 0.0)
        for n, seat in enumerate(game.solvers):
            assert game.agent_selection == seat
            game.step("-11" if n < right_count else "11")
            assert game.infos[seat]["rewards"]["right"] == float(n < right_count)
        assert game.ended == "answered"
        assert game.infos["proposer"]["rewards"] == {"challenge": expected}
        assert game.payoffs() == {
            "proposer": expected,
            **{s: float(n < right_count) for n, s in enumerate(game.solvers)},
        }
        report = game.report()
        assert (report["s"], report["score"], report["valid"]) == (right_count / 4, right_count / 4, 1.0)
        assert (report["terms"], report["digits"], report["task"]) == (3.0, 2.0, "12 + 7 - 30")


def test_rejected_proposal_pays_and_costs_nothing() -> None:
    game = start_game()
    game.step("what is love?")
    assert game.ended == "illegal" and set(game.payoffs().values()) == {0.0}
    assert game.infos["proposer"]["valid"] is False and game.infos["proposer"]["rewards"] == {"illegal": 0.0}
    assert game.report() | {"score": 0.0, "valid": 0.0, "success": False} == game.report()


def test_proposal_may_be_revised_once_with_retry() -> None:
    game = start_game(illegal="retry")
    game.step("12 +")
    assert not game.ended and game.agent_selection == "proposer"
    game.step("12 + 7")
    assert game.agent_selection == "solver_1"


# Valid tasks.


@pytest.mark.parametrize(
    ("act", "message"),
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
def test_rejects_invalid_tasks(act: str, message: str) -> None:
    assert message in get_rejection(start_game(), act)


@pytest.mark.parametrize("act", ["12+7", " 12  + 7 =", "[12 + 7]", "`12 + 7`", "012 + 7"])
def test_normalises_equivalent_proposals(act: str) -> None:
    game = start_game()
    game.step(act)
    assert game.public()["terse"] == "12 + 7"
    assert game.public()["question"] == "State the final answer to the following arithmetic problem: 12 + 7 ="


def test_rejects_repeated_tasks() -> None:
    game = start_game(rounds=3, solvers=1)
    assert "was seen" in get_rejection(game, game.private("proposer")["example"])
    game.step("12 + 7")
    game.step("19")
    assert "was seen" in get_rejection(game, "12+7")
    assert get_rejection(game, "7 + 12") == ""


def test_task_must_begin_with_the_opening() -> None:
    game = start_game(opening=2)
    game.reset(seed=0, options={"example": "12 + 7 - 30"})
    facts = game.private("proposer")
    assert (facts["opening"], facts["example"]) == ("12 + 7", "")
    for act in ("7 + 12", "12 - 7", "12 + 71"):
        assert "it does not begin with 12 + 7." in get_rejection(game, act)
    assert [get_rejection(game, act) for act in ("12+7", "12 + 7 - 30", "12 + 7 + 1")] == ["", "", ""]
    with pytest.raises(ValueError, match="opening must be a whole number from 0 to 2"):
        start_game(opening=3)


def test_prompts_show_the_opening_or_the_example() -> None:
    for opening, hint in ((0, "12 + 7 - 30"), (2, "12 + 7")):
        game = start_game(opening=opening)
        game.reset(seed=0, options={"example": "12 + 7 - 30"})
        view: Any = conformance.view_of(game)
        assert load_role("nano_proposer").render_turn(view, True) == hint
        words = load_role("proposer").render_turn(view, True).split("max digits 2. ")[1]
        assert words == f"{'It begins with' if opening else 'Not this one:'} {hint}\nYour task?"


@pytest.mark.parametrize("opening", [1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_scripted_proposers_use_the_opening(family: str, opening: int) -> None:
    openings = set()
    for seed in range(20):
        game = start_game(seed, families=family, opening=opening)
        openings.add(game.opening)
        assert get_rejection(game, draw_new_task(game)) == ""
    assert len(openings) > 10


def test_opening_alone_may_be_a_task() -> None:
    for seed in range(40):
        game = start_game(seed, opening=2, split="train", families={"chain_sum": {"max_digits": 1}})
        assert get_rejection(game, game.opening) == ""


def test_splits_share_no_question() -> None:
    train, test = start_game(split="train"), start_game(split="test")
    tasks = [f"{a} + {b}" for a in range(11, 20) for b in range(21, 30)]
    rejected = [task for task in tasks if get_rejection(train, task)]
    assert all("another split" in get_rejection(train, task) for task in rejected)
    assert [task for task in tasks if not get_rejection(test, task)] == rejected
    assert 0.1 < len(rejected) / len(tasks) < 0.3
    for seed in range(20):
        game = start_game(seed, split="train")
        assert not gym.is_test(game.example.question)


def test_failing_checker_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    game = start_game()
    monkeypatch.setattr(type(game.family), "check", lambda self, text: 1 / 0)
    game.step("12 + 7")
    assert game.ended == "illegal" and game.payoffs()["proposer"] == 0.0
    assert game.report()["checker_faults"] == 1


def test_a_family_without_a_task_in_the_split_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym, "is_test", lambda question: True)
    with pytest.raises(SimulatorFault, match="has no task in the split train"):
        start_game(split="train")


@pytest.mark.parametrize("family", FAMILIES)
def test_questions_and_answers_match_reasoning_gym(family: str) -> None:
    limits = {name: maximum for name, (_, _, maximum) in FAMILIES[family].limits.items()}
    checker = make_families({family: limits})[family]
    gym_settings = {"operators": ["+", "-", "*"]} if family == "basic_arithmetic" else {}
    rng = np.random.default_rng(0)
    for _ in range(60):
        task = gym.draw_task(family, gym_settings, rng)
        checked_task = checker.check(strip_wording(family, task.question))
        assert (checked_task.question, str(checked_task.answer)) == (task.question, task.answer)
        new_task = checker.draw(rng)
        assert checker.check(new_task.text) == new_task


@settings(max_examples=count_cases(70, 300), deadline=None)
@given(st.text("0123456789+-*() ", max_size=40))
def test_expressions_evaluate_as_in_python(text: str) -> None:
    try:
        tokens = expression.tokenise(text)
        value = expression.evaluate(tokens)
    except ValueError:
        return
    assert value == evaluate(ast.parse(" ".join(tokens), mode="eval").body)
    assert expression.tokenise(" ".join(tokens)) == tokens


@given(
    act=st.one_of(st.text(max_size=60), st.text("0123456789+-*(), \n[]=", max_size=60)),
    family=st.sampled_from(list(FAMILIES)),
)
def test_any_proposal_is_a_task_or_is_rejected(act: str, family: str) -> None:
    game = start_game(families=family)
    game.step(act)
    assert game.rewards["proposer"] == 0.0
    if game.ended:
        assert game.ended == "illegal"
    else:
        task = game.proposal
        assert task is not None and not task.is_trivial and game.public()["question"] == task.question
        assert str(task.answer) not in task.text.replace("-", " ").replace(",", " ").split()


@pytest.mark.parametrize(
    ("text", "answer", "is_equal"),
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
def test_compares_numbers(text: str, answer: int, is_equal: bool) -> None:
    assert is_same_number(text, answer) is is_equal


# Visibility.


def test_solvers_see_only_the_question() -> None:
    views: list[Any] = []
    for first in ("19", "wrong", "19 | it is 19"):
        game = start_game()
        game.step("12 + 7")
        game.step(first)
        view = conformance.view_of(game)
        assert view.messages == () and view.private == {}
        assert "19" not in repr(view.public)
        assert game.example.text not in repr(view)
        views.append(view)
    assert views[0] == views[1] == views[2]


def test_each_seat_is_told_only_its_own_result() -> None:
    game = start_game(rounds=2, solvers=2)
    for act in ("12 + 7", "19", "20"):
        game.step(act)
    messages_by_seat = {seat: [message["text"] for message in game.observe(seat)["messages"]] for seat in game.seats}
    assert messages_by_seat == {
        "proposer": ["1 of 2 were right."],
        "solver_1": ["That was right."],
        "solver_2": ["That was wrong."],
    }
    assert game.public() == {"family": "chain_sum", "question": "", "terse": "", "round": 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"families": "sums"}, "no family 'sums'"),
        ({"families": {"gcd": {"max_terms": 3}}}, "no setting 'max_terms'"),
        ({"families": {"gcd": {"max_value": 1}}}, "from 2 to 100000"),
        ({"families": {"gcd": 4}}, "must be names and values"),
        ({"families": []}, "a name, a list of names"),
        ({"solvers": 0}, "from 1 to 64"),
        ({"pay": "soft"}, 'pay must be "hard" or "frontier"'),
        ({"rounds": 0}, "at least 1"),
    ],
)
def test_refuses_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        ProposerSolver(**options)
    assert message in str(error.value)
