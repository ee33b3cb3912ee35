"""A repository of failing functions: what it promises, what it pays, what decides."""

import time
from typing import Any

import pytest

from simulators import conformance
from simulators.confine.code import find_obstacle
from simulators.repair import Repair
from simulators.repair.repair import BANK, WORKED

pytestmark = pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle())


def started(**options: Any) -> Repair:
    game = Repair(**options)
    game.reset(seed=3)
    return game


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("options", [{"functions": 1}, {"functions": 2}, {"functions": 2, "max_turns": 3}], ids=str)
def test_passes_the_conformance_kit(options: dict[str, int]) -> None:
    findings = conformance.check(lambda: Repair(**options), seeds=3, acts=30)
    assert [finding for finding in findings if finding.ok is not True] == []


def test_hidden_tests_decide_and_another_way_to_write_it_is_right_too() -> None:
    game = started(functions=1)
    (name,) = game.names
    game.step(f"EDIT {name}: 0 + ({BANK[name].right})")
    game.step("SUBMIT")
    report = game.report()
    assert report["success"] and report["submitted"] and game.payoffs() == {"engineer": 1.0}


def test_who_knows_only_the_tests_that_are_shown_fails() -> None:
    game = started(functions=1)
    (name,) = game.names
    table = {case: WORKED[BANK[name].right](*case) for case in game.tests[name]}
    game.step(f"EDIT {name}: {table}.get((a, b))")
    game.step("RUN")
    told = game.observe("engineer")["messages"][-1]["text"].splitlines()
    assert [line.split(" is ")[1].split(" and should be ")[0] for line in told] == [
        line.split(" and should be ")[1] for line in told
    ]
    game.step("SUBMIT")
    assert game.report()["score"] == 0.0


def test_what_our_expressions_print_is_what_a_cell_prints() -> None:
    game = started(functions=1)
    (name,) = game.names
    game.tests[name] = [(a, b) for a in (0, 3, 9) for b in (0, 3, 9)]
    for body in WORKED:
        game.bodies = {name: body}
        known = game._run_tests()
        game.bodies = {name: f"({body})"}  # not in the bank
        assert game._run_tests() == known


def test_steps_are_marked_and_are_no_payoff() -> None:
    game = started(functions=2)
    first, _ = game.names
    paid = []
    for act in (f"EDIT {first}: {game.bodies[first]}", f"EDIT {first}: {BANK[first].right}", "RUN", "SUBMIT"):
        game.step(act)
        parts = game.infos["engineer"]["rewards"]
        paid.append([parts.get(part, 0.0) for part in ("step", "submitted", "passed")])
    assert paid == [[0, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0.5]]
    assert game.payoffs() == {"engineer": 0.5} and not game.report()["success"]


@pytest.mark.parametrize("body", ["asdf", "1 +", "a b", "max(a, c)", "7", "'a'", "return a", "(" * 150, "a := b", "\\"])
def test_nonsense_earns_nothing_on_the_way(body: str) -> None:
    """Four edits to nonsense and SUBMIT earned 1.2 behind the gate of gra-nano; who is right at once earns 1.3."""
    game = started(functions=1, max_turns=6)
    for act in (f"EDIT {game.names[0]}: {body}", f"EDIT {game.names[0]}: {body} +", "SUBMIT"):
        game.step(act)
        assert not any(game.infos["engineer"]["rewards"].values())
    assert game.report()["edits"] == 2


@pytest.mark.parametrize(
    "body", ["a * b - a", "max(a, b)", "sum(x for x in (a, b))", "(lambda x: x)(a)", "[*{a, b}][0]"]
)
def test_a_wrong_expression_is_a_step(body: str) -> None:
    game = started(functions=1)
    game.step(f"EDIT {game.names[0]}: {body}")
    assert game.infos["engineer"]["rewards"]["step"] == 1.0


def test_who_sleeps_is_stopped_soon() -> None:
    """One run of it took 11 s."""
    game = started(functions=1)
    game.step(f"EDIT {game.names[0]}: __import__('time').sleep(99) or a")
    began = time.monotonic()
    game.step("RUN")
    assert time.monotonic() - began < 7
    assert "out of time" in game.observe("engineer")["messages"][-1]["text"]


@pytest.mark.parametrize("body", ["1 +", "exit()", "print(1) or 1", "open('/etc/passwd').read()", "f(a, b)"])
def test_no_code_is_right_by_other_means(body: str) -> None:
    game = started(functions=1)
    game.step(f"EDIT {game.names[0]}: {body}")
    game.step("SUBMIT")
    assert game.report()["score"] == 0.0


def test_who_never_submits_gets_nothing() -> None:
    game = started(functions=1, max_turns=2)
    (name,) = game.names
    game.step(f"EDIT {name}: {BANK[name].right}")
    game.step("RUN")
    assert game.report()["ended"] == "turns" and game.payoffs() == {"engineer": 0.0}
    game = started(functions=1, penalty=0.5)
    game.step("EDIT nothing: a")
    assert not game.infos["engineer"]["valid"]


def test_train_and_test_share_no_repository_in_whatever_order_it_stands() -> None:
    met: dict[str, set[frozenset[tuple[str, str]]]] = {"train": set(), "test": set()}
    for split, repositories in met.items():
        game = Repair(split=split)
        for seed in range(150):
            game.reset(seed=seed)
            repositories.add(frozenset(game.bodies.items()))
    assert met["train"] and met["test"] and not met["train"] & met["test"]


def test_a_bar_belongs_to_the_expression() -> None:
    game = started(functions=1)
    (name,) = game.names
    game.step(f"  EDIT {name}: a | b\n")
    assert game.infos["engineer"]["valid"] and game.bodies[name] == "a | b"
    assert f"return {game.bodies[name]}" in game.public()["source"]


@pytest.mark.parametrize("body", ["a \r+ b", "a + b  # \u202e", "a\x00 + b", "a +\u200b b"])
def test_what_cannot_be_seen_is_no_code(body: str) -> None:
    game = started(functions=1)
    before = dict(game.bodies)
    game.step(f"EDIT {game.names[0]}: {body}")
    assert not game.infos["engineer"]["valid"] and game.bodies == before


def test_turns_are_enough_to_be_right() -> None:
    with pytest.raises(ValueError, match="max_turns must be a whole number of at least 3, not 2"):
        Repair(functions=2, max_turns=2)
    assert conformance.play(Repair(functions=2, max_turns=3), 0, "oracle")["score"] == 1
