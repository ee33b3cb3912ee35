"""Tables and questions: agreement of pandas, SQL and Python, answers by hand, tolerance, and splits."""

import contextlib
import csv
import functools
import io
import json
import sqlite3
from typing import Any

import numpy as np
import pandas as pd
import pytest

from simulators.data_analysis import packaged
from simulators.data_analysis.questions import TOLERANCE, Question, draw_question, join_tables
from simulators.data_analysis.tables import Data, Table, draw_tables

SALES = Data(
    main=Table(
        "sales",
        ("city", "price", "units", "day"),
        (
            ("Oslo", 10.0, 1, "2024-01-03"), ("Oslo", 20.0, 2, "2024-01-20"), ("Lyon", 30.0, 3, "2024-02-01"),
            ("Lyon", 40.0, 4, "2024-02-11"), ("Bonn", 50.0, 5, "2024-02-27"), ("Bonn", 90.0, 3, "2024-03-05"),
            ("Bonn", 12.0, 8, "2024-03-09"), ("Oslo", 14.0, 6, "2024-03-30"),
        ),
    ),
    groups=("city",),
    numbers=("price", "units"),
    date="day",
    side=Table("places", ("city", "zone"), (("Oslo", "n"), ("Lyon", "s"), ("Bonn", "s"))),
)  # fmt: skip


@functools.cache
def draw_questions(depth: int) -> dict[str, Question]:
    """Return questions about `SALES` by their text."""
    rng = np.random.default_rng(5)
    drawn_questions = (draw_question(SALES, join_tables(SALES), rng, depth, terse=False) for _ in range(500))
    return {question.words: question for question in drawn_questions if question}


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("How many rows are in sales?", 8),
        ("What is the total price in sales?", 266),
        ("What is the mean units in sales?", 4),
        ("What is the largest price in sales?", 90),
        ("Which city has the largest total price in sales?", "Bonn"),  # 152, 70, 44
        ("Which month (as 2024-01) has the largest total units in sales?", "2024-03"),  # 3, 12, 17
    ],
)
def test_answers_by_hand(words: str, answer: object) -> None:
    assert draw_questions(1)[words].answer == answer


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("What is the total units in sales, counting only rows whose city has the zone s in places?", 23),
        # Conditions on the mean price (33.25) or the mean units (4) would leave only three rows, too few.
        ("How many rows are in sales, counting only rows with day 2024-02-01 or later?", 6),
    ],
)
def test_conditions_by_hand(words: str, answer: object) -> None:
    assert draw_questions(2)[words].answer == answer


def test_a_correlation_by_hand() -> None:
    question = next(candidate for words, candidate in draw_questions(1).items() if "Pearson" in words)
    price, units = np.array(SALES.main.values("price"), float), np.array(SALES.main.values("units"), float)
    deviations = (price - price.mean()) * (units - units.mean())
    expected = deviations.mean() / (price.std() * units.std())
    assert question.answer == pytest.approx(expected) and question.code.sql == ""


def execute_reference(question: Question, data: Data) -> list[object]:
    """Return the results of the question's SQL and Python code, run unconfined because the code is ours."""
    results: list[object] = []
    if question.code.sql:
        with contextlib.closing(sqlite3.connect(":memory:")) as database:
            database.executescript(data.to_sql())
            ((value,),) = database.execute(question.code.sql).fetchall()
            results.append(value)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(question.code.python, {table.name: table.to_dicts() for table in data.tables})
    return [*results, out.getvalue().strip()]


@pytest.mark.parametrize("terse", [False, True])
def test_sql_and_python_agree_with_pandas(terse: bool) -> None:
    rng, question_count, kinds = np.random.default_rng(2), 0, set()
    for identity in range(70):
        data = draw_tables(identity, terse)
        for depth in (1, 2, 3):
            question = draw_question(data, join_tables(data), rng, depth, terse)
            if question is None:
                continue
            question_count += 1
            assert question.depth == depth == len(question.kinds)
            kinds |= set(question.kinds)
            assert all(question.is_right(str(value)) for value in execute_reference(question, data)), question
    assert question_count > 60 and {"filter", "nested", "join", "aggregate", "group"} <= kinds
    assert terse or {"since", "trend", "correlation"} <= kinds


@pytest.mark.skipif(not packaged.list_identities(), reason="needs scikit-learn or statsmodels")
def test_packaged_tables_have_parts_without_common_rows() -> None:
    rng = np.random.default_rng(2)
    for identity in packaged.list_identities():
        data = packaged.load_part(identity)
        assert 25 <= len(data.main.rows) <= 50 and data.side is None
        assert data.to_sql() and all(len(row) == len(data.main.columns) for row in data.main.rows)
        for _ in range(3):
            if question := draw_question(data, join_tables(data), rng, 2, terse=False):
                assert all(question.is_right(str(value)) for value in execute_reference(question, data)), question
    rows = [len(packaged.load_part(f"iris {part}").main.rows) for part in range(packaged.PARTS)]
    assert sum(rows) == 150 and set(packaged.load_part("iris 0").main.values("species")) == {
        "setosa",
        "versicolor",
        "virginica",
    }


def test_mistaken_code_is_usually_wrong() -> None:
    rng = np.random.default_rng(3)
    pairs = [
        (data, question)
        for n in range(60)
        if (question := draw_question(data := draw_tables(n, True), join_tables(data), rng, 1 + n % 2, True))
    ]
    wrong_count = 0
    for data, question in pairs:
        mistaken = Question(**{**vars(question), "code": question.wrong_code})
        is_right = all(question.is_right(str(value)) for value in execute_reference(mistaken, data))
        assert question.depth == 1 or not is_right
        wrong_count += not is_right
    assert wrong_count > 0.7 * len(pairs)


def make_question(answer: Any) -> Question:
    question = next(iter(draw_questions(1).values()))
    return Question(**{**vars(question), "answer": answer})


@pytest.mark.parametrize(
    ("answer", "text", "is_right"),
    [
        (12.345678, "12.35", True), (12.345678, "12.34", True), (12.345678, "12.3", False),
        (12.345678, " 12.345678 ", True),
        (7, "7", True), (7, "7.0", True), (7, "8", False), (7, "7.02", False), (1234.5, "1,234.5", True),
        (-0.5, "-0.5", True), (0.5, "nan", False), (0.5, "inf", False), (5, "five", False), (5, "", False),
        (10, "1_0", False), (10, "1,0", False), (1000, "1,000", True), (10, "１０", False), (10, "1e1", True),
        (0.5, ".5", True), (0.5, "+.5", True), (0, ".", False), (0, "-", False), (0, "e1", False), (10, "0x0a", False),
        ("Oslo", "oslo", True), ("Oslo", '"Oslo".', True), ("Oslo", "Oslo, Lyon", False), ("2024-03", "2024-03", True),
    ],
)  # fmt: skip
def test_numbers_are_right_within_the_tolerance_and_texts_in_any_case(
    answer: object, text: str, is_right: bool
) -> None:
    assert TOLERANCE == 0.01 and make_question(answer).is_right(text) is is_right


def test_files_contain_the_tables() -> None:
    data = draw_tables(11, terse=False)
    for text, table in zip(data.to_files("csv").values(), data.tables, strict=True):
        assert pd.read_csv(io.StringIO(text)).equals(pd.DataFrame(table.to_dicts()))
        first, *lines = csv.reader(io.StringIO(text))
        assert tuple(first) == table.columns and len(lines) == len(table.rows)
    for text, table in zip(data.to_files("json").values(), data.tables, strict=True):
        assert json.loads(text) == table.to_dicts()
    assert data.to_files("sqlite") == {} and draw_tables(11, terse=False) == data != draw_tables(12, terse=False)
    assert max(map(len, data.to_files("json").values())) < 20_000
    assert len(draw_tables(11, terse=True).main.rows) <= 8
