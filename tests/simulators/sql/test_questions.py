"""Generated databases and questions: keys, splits, correct queries, and near misses."""

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


def draw_world_and_question(terse: bool, index: int, level: int, seed: int) -> tuple[World, Question]:
    world = load_world(terse, index)
    return world, draw_question(world, level, np.random.default_rng(seed))


def list_read_names(world: World, query: str) -> set[str]:
    """Return the tables and columns that SQLite reads for a query, including USING keys, which it does not report."""
    joins = re.findall(r"FROM (\w+) JOIN (\w+) USING ?\( ?(\w+)\)", query, re.IGNORECASE)
    names = {
        name
        for left_table, right_table, key in joins
        for table in (left_table, right_table)
        for name in (table, f"{table}.{key}")
    }

    def allow(action: int, table: str | None, column: str | None, *rest: Any) -> int:
        if action == sqlite3.SQLITE_READ:
            names.update([str(table), *([f"{table}.{column}"] if column else [])])
        return sqlite3.SQLITE_OK

    copy = sqlite3.connect(":memory:")
    world.database.connection.backup(copy)
    copy.set_authorizer(allow)
    copy.execute(query).fetchall()
    return names


@pytest.mark.parametrize("terse", [False, True])
def test_databases_have_three_to_six_tables_whose_references_hold(terse: bool) -> None:
    sizes, texts = set(), set()
    for index in range(60):
        world = load_world(terse, index)
        sizes.add(len(world.schema.tables))
        texts.add(world.schema.text())
        connection = world.database.connection
        assert not connection.execute("PRAGMA foreign_key_check").fetchall()
        for table in world.schema.tables:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table.name})")]
            assert columns == world.schema.all_columns(table)
            parents = {row[2] for row in connection.execute(f"PRAGMA foreign_key_list({table.name})")}
            assert parents == set(table.parents) and len(set(world.values(table.name, table.key))) >= 8
    assert sizes == ({3} if terse else {3, 4, 5, 6}) and len(texts) == 60


def test_database_depends_only_on_its_number() -> None:
    with ThreadPoolExecutor(1) as other_thread:
        first, second = load_world(False, 7), other_thread.submit(load_world, False, 7).result()
    assert first.schema == second.schema and first.database is not second.database  # each thread has its own connection
    assert [*first.database.connection.iterdump()] == [*second.database.connection.iterdump()]


def test_threads_are_independent() -> None:
    """On a shared connection, a failed query made queries of other threads raise SystemError."""
    with ThreadPoolExecutor(4) as threads:
        texts = list(
            threads.map(lambda seed: draw_world_and_question(True, 0, LEVELS[seed % 4], seed % 40)[1].text, range(400))
        )
    assert texts == texts[:40] * 10


def test_no_database_is_in_both_splits() -> None:
    indices: dict[str, set[int]] = {}
    for split in ("train", "test"):
        game = Sql(split=split, terse=True)
        indices[split] = set()
        for seed in range(200):
            game.reset(seed=seed)
            indices[split].add(game.index)
    assert not indices["train"] & indices["test"] and len(indices["train"]) > 25 and len(indices["test"]) > 5


@given(**DRAWS)
def test_only_the_reference_query_is_right(terse: bool, index: int, level: int, seed: int) -> None:
    world, question = draw_world_and_question(terse, index, level, seed)
    assert question.rows == world.rows(question.sql) and question.rows and len(question.wrong) >= 2
    assert all(world.rows(near_miss) != question.rows for near_miss in question.wrong)
    for failing in question.failing:
        with pytest.raises(sqlite3.OperationalError):
            world.rows(failing)


@given(**DRAWS)
def test_names_are_what_sqlite_reads(terse: bool, index: int, level: int, seed: int) -> None:
    world, question = draw_world_and_question(terse, index, level, seed)
    assert list_read_names(world, question.sql) == {*question.names} <= {*world.schema.names()}


def test_equal_questions_have_equal_queries() -> None:
    for terse in (False, True):
        for index in range(6):
            sql_by_text: dict[str, str] = {}
            for seed in range(150):
                _, question = draw_world_and_question(terse, index, LEVELS[seed % 4], seed)
                assert sql_by_text.setdefault(question.text, question.sql) == question.sql


def test_levels_use_their_sql_features() -> None:
    for seed in range(60):
        level_1, level_2, level_3, level_4 = (
            draw_world_and_question(False, seed % 20, level, seed)[1].sql for level in LEVELS
        )
        assert not re.search(r"JOIN|COUNT|MAX|MIN|SUM|AVG|LIMIT", level_1) and "WHERE" in level_1
        assert "JOIN" not in level_2 and re.search(r"(COUNT|MAX|MIN|SUM|AVG)\(|LIMIT 1", level_2)
        assert "JOIN" in level_3 and not re.search(r"GROUP|(COUNT|MAX|MIN|SUM|AVG)\(", level_3)
        assert re.search(r"JOIN.*HAVING|(MAX|MIN|SUM|AVG)\(.*JOIN|SELECT AVG", level_4)


def test_results_are_sets_of_rows() -> None:
    assert to_result_set([(1, "a"), (2, "b"), (1, "a")]) == to_result_set([(2.0, "b"), (1, "a")])
    assert to_result_set([(1, 2)]) != to_result_set([(2, 1)])
    assert to_result_set([(0.1 + 0.2,)]) == to_result_set([(0.3,)]) != to_result_set([("0.3",)])


def test_terse_acts_have_few_tokens() -> None:
    from agents.nano import build_nano_tokenizer

    tokenizer = build_nano_tokenizer()
    for level, max_tokens in zip(LEVELS, (36, 48, 54, 64), strict=True):
        for seed in range(20):
            world, question = draw_world_and_question(True, seed, level, seed)
            assert len(tokenizer.encode(f"={question.sql}")) <= max_tokens
            assert len(tokenizer.encode(f"{world.schema.text()} {question.text} =")) <= 64


@pytest.mark.parametrize("terse", [False, True])
def test_no_constant_answer_is_often_right(terse: bool) -> None:
    game, results = Sql(terse=terse), Counter[Any]()
    for seed in range(300):
        game.reset(seed=seed)
        results[game.question.rows] += 1
    assert results.most_common(1)[0][1] < 30
