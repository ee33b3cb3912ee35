"""Worlds: parsing inverts rendering for pages, programs and questions; answers are exact."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulators.search.pages import Notes, read_facts, render
from simulators.search.programs import evaluate, find_evidence, parse, parse_terse
from simulators.search.questions import NONE, SORTS, draw_question, find_question, read_question, word_question
from simulators.search.world import World
from tests.factories.thorough import count_cases

worlds = st.builds(World, st.integers(20, 150), st.integers(0, 10**6), st.booleans())


@settings(max_examples=30, deadline=None)
@given(worlds)
def test_facts_are_parsed_back_from_pages(world: World) -> None:
    for name in world.names:
        facts = {(name, "kind", world.kind(name)), *((name, *fact) for fact in world.facts(name).items())}
        assert set(read_facts(render(world, name))) == facts


@settings(max_examples=30, deadline=None)
@given(worlds)
def test_names_are_distinct_and_none_is_part_of_another(world: World) -> None:
    words = [tuple(name.split()) for name in world.names]
    assert len(set(words)) == len(words)
    parts = {name[a:b] for name in words for a, b in itertools.combinations(range(len(name) + 1), 2)} - set(words)
    longer_names = {
        name for name in words for a, b in itertools.combinations(range(len(name) + 1), 2) if name[a:b] != name
    }
    assert not parts & set(words) and len(longer_names) <= len(words)


def test_world_depends_only_on_seed_and_size() -> None:
    world, same, other = World(100, 3), World(100, 3), World(100, 4)
    assert [render(world, name) for name in world.names] == [render(same, name) for name in same.names]
    assert not set(world.names) & set(other.names)
    assert len(world.names) == 100


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from(SORTS), st.integers(1, 4))
def test_evidence_determines_the_only_answer(seed: int, terse: bool, sort: str, hops: int) -> None:
    world, rng = WORLDS[terse], np.random.default_rng(seed)
    question = draw_question(world, rng, [sort], (hops, hops))  # type: ignore[list-item]
    program = question.program
    assert program is not None and program.hops == hops == question.hops
    assert parse(str(program)) == program == (parse_terse if terse else read_question)(question.text)
    evidence_notes = Notes.of(render(world, name) for name in question.evidence)
    all_notes = Notes.of(render(world, name) for name in world.names)
    if sort == "unanswerable":
        assert question.answer == NONE and not evaluate(program, world) | evaluate(program, all_notes)
        return
    assert (
        evaluate(program, world)
        == evaluate(program, all_notes)
        == evaluate(program, evidence_notes)
        == {question.answer}
    )
    if sort == "chain":
        assert not re.search(rf"\b{question.answer}\b", question.text)


WORLDS = {terse: World(300, 1, terse) for terse in (False, True)}


def test_answers_of_a_world_by_hand() -> None:
    notes = Notes.of(
        [
            "Ada Lo is a person. Ada Lo was taught by Bo Mi. Ada Lo was born in the year 1800. Nothing else is known.",
            "Bo Mi is a person. Bo Mi came from Kelm. Bo Mi was born in the year 1750.",
            "The Song of Rix is a book. Ada Lo wrote The Song of Rix.",
            "The Trial of Zum is a book. The Trial of Zum was written by Ada Lo.",
        ]
    )
    expected = {
        "Ada Lo > mentor > birthplace": {"Kelm"},
        "Kelm > ^birthplace > ^mentor": {"Ada Lo"},
        "Ada Lo > ^author": {"The Song of Rix", "The Trial of Zum"},
        "count Ada Lo > ^author": {"2"},
        "count Bo Mi > ^author": {"0"},
        "larger born: Ada Lo | Bo Mi": {"Ada Lo"},
        "smaller born: Ada Lo | The Song of Rix > author > mentor": {"Bo Mi"},
        "larger born: Ada Lo | Ada Lo": set(),
        "Bo Mi > mentor": set(),
        "Nobody > mentor": set(),
        "count Nobody > ^author": set(),
    }
    assert {program: set(evaluate(parse(program), notes)) for program in expected} == expected
    assert find_evidence(parse("Kelm > ^birthplace > ^mentor"), notes) == {"Bo Mi", "Ada Lo"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with the name"),
        ("Ada > mentr", "there is no relation mentr; there are mentor,"),
        ("Ada > mentor > capital", "capital is of a region, not of a person"),
        ("Ada > born > mentor", "mentor is of a person, not of a number"),
        ("Ada > ^born", "backwards from a number"),
        ("count Ada > mentor", "ends in a step backwards"),
        ("larger mentor: A | B", "compared by born, founded"),
        ("Ada" + " > mentor" * 9, "at most 8 steps, not 9"),
        ("A" * 10**6, "at most 1,000 characters, not 1,000,000"),
    ],
)
def test_refuses_invalid_programs_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        parse(text)
    assert "\n" not in str(refused.value)


@settings(max_examples=count_cases(70, 300), deadline=None)
@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["Ada", ">", "^", "mentor", "count ", "larger born:", "|"])).map("".join)
)
def test_any_text_is_a_program_or_a_value_error(text: str) -> None:
    for parser in (parse, parse_terse):
        try:
            parser(text)
        except ValueError as error:
            assert str(error)
    read_question(text)
    read_question(f"What is {text}?")


def test_nested_questions_are_parsed_up_to_a_depth() -> None:
    program = parse("Ada Lo > mentor > ^founder > seat")
    words = "What is the seat of the company with the mentor of Ada Lo as founder?"
    assert word_question(program) == words and read_question(words) == program
    assert read_question(f"What is {'the mentor of ' * 5000}Ada Lo?") is None


@pytest.mark.parametrize(
    ("text", "standard"),
    [
        ("I want to know the employer of Ada Lo.", "What is the employer of Ada Lo?"),
        (
            "Can you tell me what the mentor of the author of The Old Sea is?",
            "What is the mentor of the author of The Old Sea?",
        ),
        ("What is the mentor of Ada Lo?", "What is the mentor of Ada Lo?"),
        ("the mentor", None),
        ("I am not sure.", None),
        ("the " * 5000, None),
    ],
)
def test_finds_questions_in_free_wording(text: str, standard: str | None) -> None:
    assert find_question(text) == (standard and read_question(standard))
