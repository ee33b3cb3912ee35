"""Search self-play: what the checker lets through, what it pays, and what stands in for a rejected question."""

from typing import Any

import pytest

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


def test_names_of_one_letter_keep_all_that_can_be_looked_for() -> None:
    letters: dict[str, Any] = {
        "pages": 20, "terse": True, "solvers": 1, "hops": [1, 2], "backwards": False, "split": "train",
    }  # fmt: skip
    findings = find_failed_checks(lambda: SearchSelfplay(**letters), seeds=3, acts=80)
    assert [(finding.name, finding.ok) for finding in findings] == [("leaks", None)]


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_it_keeps_them_over_many_seeds(options, capsys) -> None:
    assert passes_over_many_seeds(lambda: SearchSelfplay(**options), options, capsys)


def game_of(**options: Any) -> Any:
    """A game in words whose proposer has read all that its example rests on."""
    game = SearchSelfplay(**{"pages": 150, "solvers": 2, "illegal": "end", **options})
    game.reset(seed=5)
    return read_up(game)


def read_up(game: SearchSelfplay) -> Any:
    for page in sorted(game.example.evidence):
        if game.terse:
            game.step(f"?{page}")
        else:
            game.step(f'search(query="{page}")')
            game.step(f'open(title="{page}")')
    return game


def rejection(game: SearchSelfplay, act: str) -> str:
    trial = game.clone()
    trial.step(act)
    return str(trial.rejection)


def test_a_question_that_holds_goes_to_the_solvers() -> None:
    game = game_of()
    act = write_question(game.example.program, terse=False)
    assert act in game.legal("proposer") and rejection(game, act) == ""
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
    ("pay", "right", "paid"), [("hard", 1, 0.5), ("hard", 2, 0.0), ("frontier", 2, 0.0), ("hard", 0, 1.0)]
)
def test_a_proposer_is_paid_by_the_share_that_is_right(pay, right, paid) -> None:
    game = game_of(pay=pay)
    game.step(write_question(game.example.program, terse=False))
    for n in range(2):
        game.step(f"ANSWER {game.example.answer if n < right else 'wrong'}")
    assert game.payoffs()["proposer"] == paid


def test_every_check_rejects_what_it_is_for() -> None:
    game = game_of()
    program, answer = game.example.program, game.example.answer
    text = game.example.text
    start = program.chains[0].start
    other = next(each for each in game.library.world.of_kind["region"] if each != answer)
    near = parse(f"{other} > capital")
    assert "its program has" in rejection(game, write_question(near, terse=False))
    assert "there is no relation" in rejection(game, f"QUESTION {text} PROGRAM {start} > nonsense")
    assert "does not name" in rejection(game, f"QUESTION Who is that, do you think? PROGRAM {program}")
    assert "its answer stands in it" in rejection(game, f"QUESTION Is {start} of {answer}? PROGRAM {program}")
    asks_else = f"QUESTION What is the mentor of {start}? PROGRAM {program}"
    assert "asks for something else" in rejection(game, asks_else) or "mentor" in text
    unread = SearchSelfplay(pages=150, solvers=2, illegal="end")
    unread.reset(seed=5)
    assert "were not read" in rejection(unread, write_question(program, terse=False))
    free = f"QUESTION To what does {start} lead, two steps on? PROGRAM {program}"
    assert "a reader does not find" in rejection(game, free)
    lax = game_of(checks=[check for check in CHECKS if check != "gate"])
    assert rejection(lax, free) == ""
    lax.step(free)
    assert not is_sound(lax.question, lax.library)


def test_hops_are_the_least_that_a_program_takes() -> None:
    game = game_of(hops=3)
    program = game.example.program
    assert program.hops == 3
    one = next(
        parse(f"{name} > {relation}")
        for name in game.library.world.names
        for relation, value in game.library.world.facts(name).items()
        if value == game.example.answer
    )
    assert rejection(game, write_question(one, terse=False)) == "it takes 1 hops, not 3"


def test_a_checker_that_fails_rejects(monkeypatch) -> None:
    game = game_of()
    act = write_question(game.example.program, terse=False)
    for name in ("check", "require_readable"):
        with monkeypatch.context() as patched:
            patched.setattr(checker, name, lambda *_: 1 / 0)
            patched.setattr("simulators.search.selfplay.require_readable", lambda *_: 1 / 0)
            trial = game.clone()
            trial.step(act)
            assert trial.rejection == "the checker cannot check it (ZeroDivisionError)"
            assert trial.ended and trial.report()["checker_faults"] == 1 and trial.payoffs()["proposer"] == 0


def test_a_rejected_question_may_be_mended_once() -> None:
    game = game_of(illegal="retry", rejected=0.5)
    bad = "QUESTION What is it? PROGRAM Nobody > mentor"
    game.step(bad)
    assert "Not a legal act: its program has no answer" in game.messages("proposer")[0].text
    trial = game.clone()
    trial.step(write_question(game.example.program, terse=False))
    assert trial.agent_selection == "solver_1"
    game.step(bad)
    assert game.ended == "played" and game.payoffs()["proposer"] == -0.5 and game.report()["accepted"] == 0


def test_an_earlier_question_stands_in_for_a_rejected_one() -> None:
    for reuse in (True, False):
        game = game_of(rounds=2, reuse=reuse, solvers=1)
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


def test_the_readers_seat_decides_on_what_was_read_among_other_pages() -> None:
    for right in (True, False):
        game = game_of(reader="seat", noise=3)
        game.step(write_question(game.example.program, terse=False))
        assert game.agent_selection == "reader" and game.public()["question"] == ""
        seen = game.private("reader")
        assert seen["question"] == game.example.text and len(seen["pages"]) > len(game.example.evidence)
        game.step(f"ANSWER {game.example.answer if right else 'nothing'}")
        assert (game.agent_selection == "solver_1") == right and bool(game.ended) != right


def test_questions_of_another_split_are_not_written() -> None:
    game = game_of(split="train")
    for seed in range(10):
        game.reset(seed=seed)
        assert game.is_in_split(game.example)
    other: Any = SearchSelfplay(pages=150, split="test", illegal="end")
    other.reset(seed=0)
    game.reset(seed=0, options={"example": as_record(other.example)})
    assert (
        rejection(read_up(game), write_question(other.example.program, terse=False)) == "it is kept for another split"
    )


def test_scripted_players_write_and_answer() -> None:
    game = SearchSelfplay(pages=60, terse=True, solvers=2)
    reports = [play(game, seed, "oracle", "reader") for seed in range(15)]
    assert all(report["accepted"] == report["sound"] == 1 for report in reports)
    assert sum(float(report["score"]) for report in reports) > 14
    read = [play(game, seed, "reader", "closed_book") for seed in range(15)]
    assert sum(float(report["accepted"]) for report in read) > 0 and all(
        report["checker_faults"] == 0 for report in read
    )


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"checks": ["spelling"]}, "checks must be a list of some of program, hops"),
        ({"sorts": ["count"]}, "sorts must be chain"),
        ({"pages": "x.jsonl"}, "pages must be a number"),
        ({"solvers": 0}, "solvers must be a whole number from 1 to 64"),
    ],
)
def test_an_option_that_cannot_be_is_one_line(options, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        SearchSelfplay(**options)
