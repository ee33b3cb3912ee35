"""Generated databases and questions: keys, splits, true queries, and queries that are nearly right."""

import re
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators.sql import Sql
from simulators.sql.questions import LEVELS, Question, draw_question
from simulators.sql.schemas import World, load_world, to_result_set

DRAWS = {
    "terse": st.booleans(),
    "index": st.integers(0, 200),
    "level": st.sampled_from(LEVELS),
    "seed": st.integers(0, 999),
}


def drawn(terse: bool, index: int, level: int, seed: int) -> tuple[World, Question]:
    found = load_world(terse, index)
    return found, draw_question(found, level, np.random.default_rng(seed))


def read(found: World, query: str) -> set[str]:
    """Tables and columns that SQLite reads for a query. Of those after USING it does not tell."""
    joins = re.findall(r"FROM (\w+) JOIN (\w+) USING ?\( ?(\w+)\)", query, re.IGNORECASE)
    names = {name for one, other, key in joins for table in (one, other) for name in (table, f"{table}.{key}")}

    def allow(action: int, table: str | None, column: str | None, *rest: Any) -> int:
        if action == sqlite3.SQLITE_READ:
            names.update([str(table), *([f"{table}.{column}"] if column else [])])
        return sqlite3.SQLITE_OK

    twin = sqlite3.connect(":memory:")
    found.database.connection.backup(twin)
    twin.set_authorizer(allow)
    twin.execute(query).fetchall()
    return names


@pytest.mark.parametrize("terse", [False, True])
def test_databases_have_three_to_six_tables_whose_references_hold(terse: bool) -> None:
    sizes, texts = set(), set()
    for index in range(60):
        found = load_world(terse, index)
        sizes.add(len(found.schema.tables))
        texts.add(found.schema.text())
        connection = found.database.connection
        assert not connection.execute("PRAGMA foreign_key_check").fetchall()
        for table in found.schema.tables:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table.name})")]
            assert columns == found.schema.all_columns(table)
            parents = {row[2] for row in connection.execute(f"PRAGMA foreign_key_list({table.name})")}
            assert parents == set(table.parents) and len(set(found.values(table.name, table.key))) >= 8
    assert sizes == ({3} if terse else {3, 4, 5, 6}) and len(texts) == 60


def test_a_database_is_a_function_of_its_number() -> None:
    with ThreadPoolExecutor(1) as other:
        one, two = load_world(False, 7), other.submit(load_world, False, 7).result()
    assert one.schema == two.schema and one.database is not two.database  # a connection belongs to one thread
    assert [*one.database.connection.iterdump()] == [*two.database.connection.iterdump()]


def test_threads_do_not_disturb_each_other() -> None:
    """On a shared connection a failed query made another thread's raise SystemError."""
    with ThreadPoolExecutor(4) as threads:
        texts = list(threads.map(lambda seed: drawn(True, 0, LEVELS[seed % 4], seed % 40)[1].text, range(400)))
    assert texts == texts[:40] * 10


def test_no_database_is_in_both_splits() -> None:
    met: dict[str, set[int]] = {}
    for split in ("train", "test"):
        game = Sql(split=split, terse=True)
        met[split] = set()
        for seed in range(200):
            game.reset(seed=seed)
            met[split].add(game.index)
    assert not met["train"] & met["test"] and len(met["train"]) > 25 and len(met["test"]) > 5


@given(**DRAWS)
def test_true_queries_alone_are_right(terse: bool, index: int, level: int, seed: int) -> None:
    found, question = drawn(terse, index, level, seed)
    assert question.rows == found.rows(question.sql) and question.rows and len(question.wrong) >= 2
    assert all(found.rows(wrong) != question.rows for wrong in question.wrong)
    for failing in question.failing:
        with pytest.raises(sqlite3.OperationalError):
            found.rows(failing)


@given(**DRAWS)
def test_names_are_what_sqlite_reads(terse: bool, index: int, level: int, seed: int) -> None:
    found, question = drawn(terse, index, level, seed)
    assert read(found, question.sql) == {*question.names} <= {*found.schema.names()}


def test_equal_words_ask_for_the_same() -> None:
    for terse in (False, True):
        for index in range(6):
            asked: dict[str, str] = {}
            for seed in range(150):
                _, question = drawn(terse, index, LEVELS[seed % 4], seed)
                assert asked.setdefault(question.text, question.sql) == question.sql


def test_levels_are_what_they_say() -> None:
    for seed in range(60):
        one, two, three, four = (drawn(False, seed % 20, level, seed)[1].sql for level in LEVELS)
        assert not re.search(r"JOIN|COUNT|MAX|MIN|SUM|AVG|LIMIT", one) and "WHERE" in one
        assert "JOIN" not in two and re.search(r"(COUNT|MAX|MIN|SUM|AVG)\(|LIMIT 1", two)
        assert "JOIN" in three and not re.search(r"GROUP|(COUNT|MAX|MIN|SUM|AVG)\(", three)
        assert re.search(r"JOIN.*HAVING|(MAX|MIN|SUM|AVG)\(.*JOIN|SELECT AVG", four)


def test_results_are_sets_of_rows() -> None:
    assert to_result_set([(1, "a"), (2, "b"), (1, "a")]) == to_result_set([(2.0, "b"), (1, "a")])
    assert to_result_set([(1, 2)]) != to_result_set([(2, 1)])
    assert to_result_set([(0.1 + 0.2,)]) == to_result_set([(0.3,)]) != to_result_set([("0.3",)])


def test_tokens_of_terse_acts_are_few() -> None:
    from agents.nano import build_nano_tokenizer

    tokenizer = build_nano_tokenizer()
    for level, most in zip(LEVELS, (36, 48, 54, 64), strict=True):
        for seed in range(20):
            found, question = drawn(True, seed, level, seed)
            assert len(tokenizer.encode(f"={question.sql}")) <= most
            assert len(tokenizer.encode(f"{found.schema.text()} {question.text} =")) <= 64


@pytest.mark.parametrize("terse", [False, True])
def test_no_constant_is_right_often(terse: bool) -> None:
    game, results = Sql(terse=terse), Counter[Any]()
    for seed in range(300):
        game.reset(seed=seed)
        results[game.question.rows] += 1
    assert results.most_common(1)[0][1] < 30
