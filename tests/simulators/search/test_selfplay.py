"""Search self-play: the question checker, rewards, and substitutes for rejected questions."""

from typing import Any

import pytest

from games.contracts import View
from simulators.conformance import play
from simulators.search import SearchSelfplay, checker
from simulators.search.acts import write_answer, write_question
from simulators.search.base import as_record
from simulators.search.checker import CHECKS, is_sound
from simulators.search.programs import parse
from tests.simulators.promises import find_failed_checks, passes_over_many_seeds

OPTIONS = {
    "words": {"pages": 100, "solvers": 2},
    "terse": {"pages": 60, "terse": True, "solvers": 1, "rounds": 2, "rejected": 0.1},
    "a reader's seat": {"pages": 60, "terse": True, "solvers": 1, "reader": "seat", "hops": [1, 2], "split": "train"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_passes_the_conformance_kit(options) -> None:
    assert find_failed_checks(lambda: SearchSelfplay(**options), seeds=3, acts=80) == []


def test_leaks_cannot_be_checked_with_one_letter_names() -> None:
    letters: dict[str, Any] = {
        "pages": 20, "terse": True, "solvers": 1, "hops": [1, 2], "backwards": False, "split": "train",
    }  # fmt: skip
    findings = find_failed_checks(lambda: SearchSelfplay(**letters), seeds=3, acts=80)
    assert [(finding.name, finding.ok) for finding in findings] == [("leaks", None)]


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_passes_the_conformance_kit_over_many_seeds(options, capsys) -> None:
    assert passes_over_many_seeds(lambda: SearchSelfplay(**options), options, capsys)


def start_game(**options: Any) -> Any:
    """Start a match whose proposer has read all evidence of its example."""
    game = SearchSelfplay(**{"pages": 150, "solvers": 2, "illegal": "end", **options})
    game.reset(seed=5)
    return read_evidence(game)


def read_evidence(game: SearchSelfplay) -> Any:
    for page in sorted(game.example.evidence):
        if game.terse:
            game.step(f"?{page}")
        else:
            game.step(f'search(query="{page}")')
            game.step(f'open(title="{page}")')
    return game


def get_rejection(game: SearchSelfplay, act: str) -> str:
    trial = game.clone()
    trial.step(act)
    return str(trial.rejection)


def test_sound_question_goes_to_the_solvers() -> None:
    game = start_game()
    act = write_question(game.example.program, terse=False)
    assert act in game.legal("proposer") and get_rejection(game, act) == ""
    game.step(act)
    assert game.agent_selection == "solver_1" and game.public()["question"] == game.example.text
    assert game.private("solver_1") == {"left": {"searches": 8, "opens": 12}, "found": []}
    game.step(write_answer(game.example.answer, terse=False))
    assert game.rewards["solver_1"] == 1 and game.messages("solver_2") == ()
    game.step("ANSWER something else")
    assert game.payoffs() == {"proposer": 1.0, "solver_1": 1.0, "solver_2": 0.0}  # 4 s (1 - s) of s = 1/2
    report = game.report()
    assert (report["accepted"], report["sound"], report["s"], report["score"]) == (1.0, 1.0, 0.5, 0.5)


@pytest.mark.parametrize(
    ("pay", "right_count", "payoff"), [("hard", 1, 0.5), ("hard", 2, 0.0), ("frontier", 2, 0.0), ("hard", 0, 1.0)]
)
def test_proposers_payoff_depends_on_the_share_of_right_answers(pay, right_count, payoff) -> None:
    game = start_game(pay=pay)
    game.step(write_question(game.example.program, terse=False))
    for n in range(2):
        game.step(f"ANSWER {game.example.answer if n < right_count else 'wrong'}")
    assert game.payoffs()["proposer"] == payoff


def test_every_check_rejects_its_fault() -> None:
    game = start_game()
    program, answer = game.example.program, game.example.answer
    text = game.example.text
    start = program.chains[0].start
    other = next(region for region in game.library.world.of_kind["region"] if region != answer)
    wrong_kind = parse(f"{other} > capital")
    assert "its program has" in get_rejection(game, write_question(wrong_kind, terse=False))
    assert "there is no relation" in get_rejection(game, f"QUESTION {text} PROGRAM {start} > nonsense")
    assert "does not name" in get_rejection(game, f"QUESTION Who is that, do you think? PROGRAM {program}")
    assert "its answer stands in it" in get_rejection(game, f"QUESTION Is {start} of {answer}? PROGRAM {program}")
    other_question = f"QUESTION What is the mentor of {start}? PROGRAM {program}"
    assert "asks for something else" in get_rejection(game, other_question) or "mentor" in text
    unread_game = SearchSelfplay(pages=150, solvers=2, illegal="end")
    unread_game.reset(seed=5)
    assert "were not read" in get_rejection(unread_game, write_question(program, terse=False))
    free_wording = f"QUESTION To what does {start} lead, two steps on? PROGRAM {program}"
    assert "a reader does not find" in get_rejection(game, free_wording)
    ungated_game = start_game(checks=[check for check in CHECKS if check != "gate"])
    assert get_rejection(ungated_game, free_wording) == ""
    ungated_game.step(free_wording)
    assert not is_sound(ungated_game.question, ungated_game.library)


def test_rejects_programs_with_a_shortcut() -> None:
    game = start_game(hops=3)
    program = game.example.program
    assert program.hops == 3
    shortcut = next(
        parse(f"{name} > {relation}")
        for name in game.library.world.names
        for relation, value in game.library.world.facts(name).items()
        if value == game.example.answer
    )
    assert get_rejection(game, write_question(shortcut, terse=False)) == "it takes 1 hops, not 3"


def test_failing_checker_rejects(monkeypatch) -> None:
    game = start_game()
    act = write_question(game.example.program, terse=False)
    for name in ("check", "require_readable"):
        with monkeypatch.context() as patched:
            patched.setattr(checker, name, lambda *_: 1 / 0)
            patched.setattr("simulators.search.selfplay.require_readable", lambda *_: 1 / 0)
            trial = game.clone()
            trial.step(act)
            assert trial.rejection == "the checker cannot check it (ZeroDivisionError)"
            assert trial.ended and trial.report()["checker_faults"] == 1 and trial.payoffs()["proposer"] == 0


def test_rejected_question_may_be_revised_once() -> None:
    game = start_game(illegal="retry", rejected=0.5)
    bad_question = "QUESTION What is it? PROGRAM Nobody > mentor"
    game.step(bad_question)
    assert "Not a legal act: its program has no answer" in game.messages("proposer")[0].text
    trial = game.clone()
    trial.step(write_question(game.example.program, terse=False))
    assert trial.agent_selection == "solver_1"
    game.step(bad_question)
    assert game.ended == "played" and game.payoffs()["proposer"] == -0.5 and game.report()["accepted"] == 0


def test_earlier_question_replaces_a_rejected_one() -> None:
    for reuse in (True, False):
        game = start_game(rounds=2, reuse=reuse, solvers=1)
        first = game.example.text
        game.step(write_question(game.example.program, terse=False))
        game.step("ANSWER no idea")
        assert game.agent_selection == "proposer" and not game.ended and game.question is None
        game.step("QUESTION What is it? PROGRAM Nobody > mentor")
        if not reuse:
            assert game.ended and game.report()["reused"] == 0
            continue
        assert game.agent_selection == "solver_1" and game.public()["question"] == first
        game.step(f"ANSWER {game.pool[0].answer}")
        report = game.report()
        assert (report["accepted"], report["reused"], report["score"]) == (0.5, 0.5, 0.5)
        assert game.payoffs() == {"proposer": 0.0, "solver_1": 1.0}


def test_reader_seat_gates_questions_from_noisy_pages() -> None:
    for is_right in (True, False):
        game = start_game(reader="seat", noise=3)
        game.step(write_question(game.example.program, terse=False))
        assert game.agent_selection == "reader" and game.public()["question"] == ""
        view = game.private("reader")
        assert view["question"] == game.example.text and len(view["pages"]) > len(game.example.evidence)
        game.step(f"ANSWER {game.example.answer if is_right else 'nothing'}")
        assert (game.agent_selection == "solver_1") == is_right and bool(game.ended) != is_right


def test_rejects_questions_of_another_split() -> None:
    game = start_game(split="train")
    for seed in range(10):
        game.reset(seed=seed)
        assert game.is_in_split(game.example)
    other: Any = SearchSelfplay(pages=150, split="test", illegal="end")
    other.reset(seed=0)
    game.reset(seed=0, options={"example": as_record(other.example)})
    assert (
        get_rejection(read_evidence(game), write_question(other.example.program, terse=False))
        == "it is kept for another split"
    )


def test_oracle_asks_nothing_about_an_example_without_a_program() -> None:
    game = start_game()
    game.reset(seed=5, options={"example": {**as_record(game.example), "program": ""}})
    ask = SearchSelfplay.players["oracle"](game, 0)
    assert ask(View.of(read_evidence(game), "proposer")) == ""


def test_scripted_players_propose_and_solve() -> None:
    game = SearchSelfplay(pages=60, terse=True, solvers=2)
    reports = [play(game, seed, "oracle", "reader") for seed in range(15)]
    assert all(report["accepted"] == report["sound"] == 1 for report in reports)
    assert sum(float(report["score"]) for report in reports) > 14
    reader_reports = [play(game, seed, "reader", "closed_book") for seed in range(15)]
    assert sum(float(report["accepted"]) for report in reader_reports) > 0 and all(
        report["checker_faults"] == 0 for report in reader_reports
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checks": ["spelling"]}, "checks must be a list of some of program, hops"),
        ({"sorts": ["count"]}, "sorts must be chain"),
        ({"pages": "x.jsonl"}, "pages must be a number"),
        ({"solvers": 0}, "solvers must be a whole number from 1 to 64"),
    ],
)
def test_refuses_invalid_options(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SearchSelfplay(**options)
