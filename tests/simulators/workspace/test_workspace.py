"""A workspace of three apps: effects of tools, scoring of state differences, and tasks."""

import copy
import json
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators import conformance
from simulators.conformance import play, walk
from simulators.workspace import Workspace
from simulators.workspace.apps import READS, SHORT, Apps, format_briefly
from simulators.workspace.state import Meeting, State, Ticket, compare
from simulators.workspace.tasks import TEMPLATES, Draft, solve
from simulators.workspace.world import draw_state

START = State(
    people=("Ada", "Bo"),
    files={"inbox/Ada": "budget 7", "inbox/Bo": "travel 8"},
    tickets={3: Ticket("Ada", "login", 9), 5: Ticket("Ada", "phone", 2), 6: Ticket("Bo", "screen", 4)},
    meetings={1: Meeting("Ada", "Mon", 9), 2: Meeting("Bo", "Fri", 10)},
)


def start_game(seed: int = 3, **options: Any) -> Workspace:
    game = Workspace(**options)
    game.reset(seed=seed)
    return game


def make_apps() -> Apps:
    return Apps(copy.deepcopy(START))


def read_messages(game: Workspace) -> list[str]:
    return [message["text"] for message in game.observe("agent")["messages"]]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("options", [{}, {"steps": 3, "split": "test"}, {"terse": True, "steps": 1}], ids=str)
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    findings = conformance.check(lambda: Workspace(**options), seeds=10, acts=150)
    assert [finding for finding in findings if finding.ok is False] == []
    assert [finding.name for finding in findings if finding.ok is None] == ["secrets"]  # the game has no hidden facts


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"steps": 1}, {"terse": True, "steps": 2}], ids=str)
def test_passes_the_conformance_kit_over_many_seeds(options: dict[str, Any]) -> None:
    findings = conformance.check_outcomes(lambda: Workspace(**options), 1000)
    assert [finding for finding in findings if not finding.ok] == []


def test_difference_score_by_hand() -> None:
    """Ticket 3 must be closed and Bo's file moved (one record removed, one added): three records change."""
    wanted = make_apps()
    wanted.close_ticket(3)
    wanted.move_file("inbox/Bo", "archive/Bo")
    end = make_apps()
    assert compare(START, wanted.state, end.state).share == 0.0
    end.close_ticket(3)
    assert compare(START, wanted.state, end.state).share == pytest.approx(1 / 3)
    end.cancel_meeting(2)  # collateral
    assert compare(START, wanted.state, end.state).share == 0.0
    end.move_file("inbox/Bo", "archive/Bo")
    difference = compare(START, wanted.state, end.state)
    assert (difference.needed, difference.right, difference.collateral) == (3, 3, 1)
    assert difference.share == pytest.approx(2 / 3) and not difference.is_equal
    end.book_meeting("Ada", "Fri", 10)  # also collateral: one meeting is removed and another added
    assert compare(START, wanted.state, end.state).share == pytest.approx(2 / 3)
    end.delete_file("inbox/Ada")
    end.comment_ticket(6, "x")
    end.assign_ticket(5, "Bo")
    assert compare(START, wanted.state, end.state).share == 0.0


def test_new_records_are_compared_by_content_not_number() -> None:
    wanted, end = make_apps(), make_apps()
    wanted.create_ticket("Ada", "login")
    wanted.create_ticket("Bo", "phone")
    end.create_ticket("Bo", "phone")
    end.create_ticket("Ada", "logn")
    difference = compare(START, wanted.state, end.state)
    assert (difference.needed, difference.right, difference.collateral) == (2, 1, 1)
    end.create_ticket("Ada", "login")
    assert compare(START, wanted.state, end.state).share == 0.5  # the misspelt ticket remains
    other = make_apps()
    other.book_meeting("Ada", "Tue", 9)
    other.cancel_meeting(3)
    for owner, title in (("Bo", "phone"), ("Ada", "login")):
        other.create_ticket(owner, title)
    assert compare(START, wanted.state, other.state).is_equal
    other.create_ticket("Ada", "login")
    assert compare(START, wanted.state, other.state).collateral == 1  # a duplicate is collateral


def test_undoing_collateral_is_forgiven() -> None:
    wanted, end = make_apps(), make_apps()
    wanted.close_ticket(3)
    end.close_ticket(3)
    end.move_meeting(2, "Tue", 9)
    assert not compare(START, wanted.state, end.state).is_equal
    end.move_meeting(2, "Fri", 10)
    assert compare(START, wanted.state, end.state).is_equal


def test_each_template_changes_its_records() -> None:
    """Solve each template on a small state."""
    changed = {}
    for name, template in TEMPLATES.items():
        own_apps = make_apps()
        step = template(Draft(np.random.default_rng(1), copy.deepcopy(START), terse=False), "Ada")
        calls = solve([step], own_apps)
        before, after = START.records(START), own_apps.state.records(START)
        changed_keys = {key for key in before | after if before.get(key) != after.get(key)}
        changed[name] = {(kind, "new" if str(key).startswith("new") else key) for kind, key in changed_keys}
        assert "Ada" in step.words and "Ada" in step.short
        assert all(call.is_write for call in calls[-1:]) and sum(call.is_write for call in calls) == 1
    assert changed == {
        "close": {("ticket", 3)}, "assign": {("ticket", 3)}, "comment": {("ticket", 3)},
        "create": {("ticket", "new")}, "intake": {("ticket", "new")}, "count": {("file", "notes/Ada")},
        "archive": {("file", "inbox/Ada"), ("file", "archive/Ada")}, "delete": {("file", "inbox/Ada")},
        "move": {("meeting", 1)}, "cancel": {("meeting", 1)}, "book": {("meeting", "new")},
    }  # fmt: skip


def test_move_template_uses_the_hour_or_the_later_one() -> None:
    outcomes = set()
    for seed in range(20):
        own_apps = make_apps()
        step = TEMPLATES["move"](Draft(np.random.default_rng(seed), copy.deepcopy(START), terse=True), "Ada")
        _, _, day, hour, _, later = step.short.split()
        solve([step], own_apps)
        is_free = START.is_free(own_apps.state.meetings[1].day, int(hour))
        assert own_apps.state.meetings[1] == Meeting(
            "Ada", own_apps.state.meetings[1].day, int(hour if is_free else later)
        )
        assert own_apps.state.meetings[1].day == day
        outcomes.add(is_free)
    assert outcomes == {True, False}


def test_steps_are_solved_in_order() -> None:
    """The count includes the effect of the first step."""
    draft = Draft(np.random.default_rng(0), copy.deepcopy(START), terse=False)
    own_apps = make_apps()
    solve([TEMPLATES["close"](draft, "Ada"), TEMPLATES["count"](draft, "Ada")], own_apps)
    assert own_apps.state.files["notes/Ada"] == "1"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("close_ticket(ticket=4)", "Error: there is no ticket 4"),
        ("close_ticket(ticket='3')", 'Error: argument "ticket"'),
        ("find_tickets(owner='Eve')", "Error: there is no person called Eve"),
        ("move_meeting(meeting=1, day='Fri', hour=10)", "Error: Fri 10 is not free"),
        ("move_meeting(meeting=1, day='Sun', hour=10)", 'Error: argument "day"'),
        ("book_meeting(person='Ada', day='Mon', hour=17)", "Error: meetings begin at 9 to 16"),
        ("write_file(path='../x', text='')", "Error: a path is like"),
        ("move_file(path='inbox/Ada', to='inbox/Bo')", "Error: there is a file inbox/Bo already"),
        ("create_ticket(owner='Ada', title=' ')", "Error: a ticket needs a title"),
        ("close()", 'Error: there is no tool "close"'),
    ],
)
def test_invalid_call_is_explained_and_penalised(call: str, message: str) -> None:
    game = start_game()
    game.apps = make_apps()
    game.step(call)
    assert read_messages(game)[0].startswith(message)
    assert game.infos["agent"]["rewards"] == {"invalid": -0.05} and game.apps.state == START
    assert game.infos["agent"]["valid"] is True


def test_penalty_for_invalid_calls_is_bounded() -> None:
    game = start_game(max_turns=3)
    for _ in range(3):
        game.step("\n".join(["close_ticket(0)"] * 4))
    report = game.report()
    assert report["ended"] == "turns" and report["invalid_calls"] == report["tool_calls"] == 12
    assert game.payoffs() == {"agent": pytest.approx(-0.25)} and report["score"] == 0.0


def test_rewards_by_hand() -> None:
    """One of the two required functions is called: 0.2 / 2. The state is unchanged."""
    game = next(game for seed in range(99) if (game := start_game(seed, steps=1)).templates == ["close"])
    assert game.required == {"find_tickets", "close_ticket"}
    game.step("find_tickets()")
    game.step("done()")
    assert game.payoffs() == {"agent": pytest.approx(0.1)} and not game.report()["success"]
    solved_game = next(game for seed in range(99) if (game := start_game(seed, steps=1)).templates == ["close"])
    for call in solved_game.solution:
        solved_game.step(f"<tool_call>{json.dumps({'name': call.tool, 'arguments': call.arguments})}</tool_call>")
    solved_game.step('<tool_call>{"name": "done", "arguments": {}}</tool_call>')
    assert (
        solved_game.payoffs() == {"agent": pytest.approx(1.0)}
        and solved_game.report()["success"]
        and solved_game.ended == "done"
    )


def test_illegal_end_is_not_scored() -> None:
    game = start_game(illegal="end", steps=1)
    for call in game.solution:
        game.step(f"{call.tool}({', '.join(f'{k}={v!r}' for k, v in call.arguments.items())})")
    game.step("I am finished, I think")
    report = game.report()
    assert report["ended"] == "illegal" and not report["success"] and report["score"] == 0.0
    assert game.payoffs() == {"agent": -0.25}


def test_splits_share_no_template_with_a_person() -> None:
    pairs_by_split: dict[Literal["train", "test"], set[tuple[str, str]]] = {"train": set(), "test": set()}
    for split, pairs in pairs_by_split.items():
        game = Workspace(terse=True, split=split)
        for seed in range(150):
            game.reset(seed=seed)
            pairs |= {(name, step.split()[1]) for name, step in zip(game.templates, game.task.split("; "), strict=True)}
    single_person_pairs = {
        split: {pair for pair in pairs if pair[0] in ("close", "cancel", "create")}
        for split, pairs in pairs_by_split.items()
    }
    assert (
        single_person_pairs["train"]
        and single_person_pairs["test"]
        and not single_person_pairs["train"] & single_person_pairs["test"]
    )


def test_flawed_player_is_right_half_of_the_time() -> None:
    game = Workspace(terse=True)
    reports = [play(game, seed, "flawed") for seed in range(200)]
    successes = [report for report in reports if report["success"]]
    assert 0.4 < len(successes) / 200 < 0.65
    repaired = sum(float(report["invalid_calls"]) > 0 for report in successes) / len(successes)
    assert 0.15 < repaired < 0.45
    assert all(float(report["score"]) == pytest.approx(0.95) for report in successes if report["invalid_calls"])


def test_terse_texts_are_short_and_every_template_occurs() -> None:
    game, names = Workspace(terse=True), set()
    for seed in range(60):
        views = list(walk(game, seed, "oracle"))
        names |= set(game.templates)
        assert len(game.task) <= 40
        assert max(len(message.text) for view in views for message in view.messages) <= 80
    assert names == set(TEMPLATES)
    assert (
        format_briefly([{"id": 3, "owner": "A", "assignee": "", "comments": []}, {"id": 5}]) == "3 A; 5"
        and format_briefly([]) == "-"
    )
    assert len(set(SHORT.values())) == len(SHORT) and set(READS) < set(SHORT)


def test_clone_is_independent() -> None:
    game = start_game()
    twin = game.clone()
    for call in game.solution:
        game.step(f"{call.tool}({', '.join(f'{k}={v!r}' for k, v in call.arguments.items())})")
    assert game.difference.is_equal and twin.apps.state == twin.start
    twin.step("done")
    game.step("done")
    assert game.report()["success"] and not twin.report()["success"]


def test_terse_worlds_have_room_for_three_people() -> None:
    for seed in range(200):
        state = draw_state(np.random.default_rng(seed), ("A", "B", "C"), terse=True)
        assert set(state.tickets) | set(state.meetings) <= set(range(1, 10))
        assert {ticket.owner for ticket in state.tickets.values() if ticket.status == "open"} == {"A", "B", "C"}


ARGUMENT = st.one_of(
    st.integers(), st.text(max_size=30), st.none(), st.booleans(), st.floats(), st.lists(st.integers())
)
PARAMETERS = ("path", "to", "text", "owner", "status", "ticket", "title", "person", "day", "hour", "meeting", "folder")


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(SHORT)), st.dictionaries(st.sampled_from(PARAMETERS), ARGUMENT)), max_size=8
    )
)
def test_any_arguments_are_handled(calls: list[tuple[str, dict[str, Any]]]) -> None:
    game = start_game(max_turns=9)
    for name, arguments in calls:
        if not game.ended:
            game.step(json.dumps({"name": name, "arguments": arguments}))
    assert len(game.apps.state.files) <= 60 and game.clone().apps.state == game.apps.state


@pytest.mark.parametrize(("option", "value"), [("steps", 0), ("steps", 4), ("terse", 1), ("max_turns", 0)])
def test_refuses_invalid_options(option: str, value: object) -> None:
    with pytest.raises(ValueError, match=option):
        Workspace(**{option: value})  # type: ignore[arg-type]
