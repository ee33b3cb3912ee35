"""A repository of failing functions: what it promises, what it pays, what decides."""

from typing import Any

import pytest

from simulators import conformance
from simulators.confine.code import available
from simulators.repair import Repair
from simulators.repair.repair import BANK, WORKED

pytestmark = pytest.mark.skipif(bool(available()), reason=available())


def started(**options: Any) -> Repair:
    game = Repair(**options)
    game.reset(seed=3)
    return game


@pytest.mark.parametrize("functions", [1, 2])
def test_it_keeps_what_simulators_promise(functions: int) -> None:
    findings = conformance.check(lambda: Repair(functions=functions), seeds=8, acts=60)
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
