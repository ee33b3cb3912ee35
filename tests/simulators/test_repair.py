"""A repository of failing functions: conformance, rewards, and hidden tests."""

import time
from typing import Any

import pytest

from simulators import conformance
from simulators.confine.code import find_obstacle
from simulators.repair import Repair
from simulators.repair.repair import BANK, COMPILED

pytestmark = pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle())


def start_game(**options: Any) -> Repair:
    game = Repair(**options)
    game.reset(seed=3)
    return game


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("options", [{"functions": 1}, {"functions": 2}, {"functions": 2, "max_turns": 3}], ids=str)
def test_passes_the_conformance_kit(options: dict[str, int]) -> None:
    findings = conformance.check(lambda: Repair(**options), seeds=3, acts=30)
    assert [finding for finding in findings if finding.ok is not True] == []


def test_hidden_tests_accept_equivalent_code() -> None:
    game = start_game(functions=1)
    (name,) = game.names
    game.step(f"EDIT {name}: 0 + ({BANK[name].right})")
    game.step("SUBMIT")
    report = game.report()
    assert report["success"] and report["submitted"] and game.payoffs() == {"engineer": 1.0}


def test_memorising_the_visible_tests_fails() -> None:
    game = start_game(functions=1)
    (name,) = game.names
    table = {case: COMPILED[BANK[name].right](*case) for case in game.tests[name]}
    game.step(f"EDIT {name}: {table}.get((a, b))")
    game.step("RUN")
    lines = game.observe("engineer")["messages"][-1]["text"].splitlines()
    assert [line.split(" is ")[1].split(" and should be ")[0] for line in lines] == [
        line.split(" and should be ")[1] for line in lines
    ]
    game.step("SUBMIT")
    assert game.report()["score"] == 0.0


def test_precomputed_outputs_match_the_cell() -> None:
    game = start_game(functions=1)
    (name,) = game.names
    game.tests[name] = [(a, b) for a in (0, 3, 9) for b in (0, 3, 9)]
    for body in COMPILED:
        game.bodies = {name: body}
        output = game._run_tests()
        game.bodies = {name: f"({body})"}  # not in the bank
        assert game._run_tests() == output


def test_steps_are_marked_but_not_paid() -> None:
    game = start_game(functions=2)
    first, _ = game.names
    marks = []
    for act in (f"EDIT {first}: {game.bodies[first]}", f"EDIT {first}: {BANK[first].right}", "RUN", "SUBMIT"):
        game.step(act)
        parts = game.infos["engineer"]["rewards"]
        marks.append([parts.get(part, 0.0) for part in ("step", "submitted", "passed")])
    assert marks == [[0, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0.5]]
    assert game.payoffs() == {"engineer": 0.5} and not game.report()["success"]


@pytest.mark.parametrize("body", ["asdf", "1 +", "a b", "max(a, c)", "7", "'a'", "return a", "(" * 150, "a := b", "\\"])
def test_nonsense_edits_earn_nothing(body: str) -> None:
    """Regression: four nonsense edits and SUBMIT earned 1.2 in gra-nano, almost as much as a right solution (1.3)."""
    game = start_game(functions=1, max_turns=6)
    for act in (f"EDIT {game.names[0]}: {body}", f"EDIT {game.names[0]}: {body} +", "SUBMIT"):
        game.step(act)
        assert not any(game.infos["engineer"]["rewards"].values())
    assert game.report()["edits"] == 2


@pytest.mark.parametrize(
    "body", ["a * b - a", "max(a, b)", "sum(x for x in (a, b))", "(lambda x: x)(a)", "[*{a, b}][0]"]
)
def test_wrong_but_valid_expression_is_a_step(body: str) -> None:
    game = start_game(functions=1)
    game.step(f"EDIT {game.names[0]}: {body}")
    assert game.infos["engineer"]["rewards"]["step"] == 1.0


def test_sleeping_code_is_stopped() -> None:
    """Regression: one run took 11 s."""
    game = start_game(functions=1)
    game.step(f"EDIT {game.names[0]}: __import__('time').sleep(99) or a")
    started_at = time.monotonic()
    game.step("RUN")
    assert time.monotonic() - started_at < 7
    assert "out of time" in game.observe("engineer")["messages"][-1]["text"]


@pytest.mark.parametrize("body", ["1 +", "exit()", "print(1) or 1", "open('/etc/passwd').read()", "f(a, b)"])
def test_code_cannot_pass_by_other_means(body: str) -> None:
    game = start_game(functions=1)
    game.step(f"EDIT {game.names[0]}: {body}")
    game.step("SUBMIT")
    assert game.report()["score"] == 0.0


def test_missing_submission_earns_nothing() -> None:
    game = start_game(functions=1, max_turns=2)
    (name,) = game.names
    game.step(f"EDIT {name}: {BANK[name].right}")
    game.step("RUN")
    assert game.report()["ended"] == "turns" and game.payoffs() == {"engineer": 0.0}
    game = start_game(functions=1, penalty=0.5)
    game.step("EDIT nothing: a")
    assert not game.infos["engineer"]["valid"]


def test_splits_share_no_repository() -> None:
    by_split: dict[str, set[frozenset[tuple[str, str]]]] = {"train": set(), "test": set()}
    for split, repositories in by_split.items():
        game = Repair(split=split)
        for seed in range(150):
            game.reset(seed=seed)
            repositories.add(frozenset(game.bodies.items()))
    assert by_split["train"] and by_split["test"] and not by_split["train"] & by_split["test"]


def test_bar_is_part_of_the_expression() -> None:
    game = start_game(functions=1)
    (name,) = game.names
    game.step(f"  EDIT {name}: a | b\n")
    assert game.infos["engineer"]["valid"] and game.bodies[name] == "a | b"
    assert f"return {game.bodies[name]}" in game.public()["source"]


@pytest.mark.parametrize("body", ["a \r+ b", "a + b  # \u202e", "a\x00 + b", "a +\u200b b"])
def test_refuses_code_with_invisible_characters(body: str) -> None:
    game = start_game(functions=1)
    before = dict(game.bodies)
    game.step(f"EDIT {game.names[0]}: {body}")
    assert not game.infos["engineer"]["valid"] and game.bodies == before


def test_turn_limit_must_allow_a_solution() -> None:
    with pytest.raises(ValueError, match="max_turns must be a whole number of at least 3, not 2"):
        Repair(functions=2, max_turns=2)
    assert conformance.play(Repair(functions=2, max_turns=3), 0, "oracle")["score"] == 1
