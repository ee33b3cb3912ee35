"""A model's SQL: allowed queries, reported limits, and bounded memory. See test_escapes.py."""

import copy
import json
import platform
import resource
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulators.confine import ConfineError, sql
from simulators.confine.sql import MEMORY, Database, Limits
from tests.factories.thorough import count_cases

SHOP = """
CREATE TABLE customers(id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customers, total REAL, notes TEXT);
INSERT INTO customers VALUES (1, 'Ada'), (2, 'Bob');
INSERT INTO orders VALUES (1, 1, 3.5, '{"gift": true}'), (2, 1, 7.0, NULL), (3, 2, 1.25, NULL);
CREATE VIEW spent AS SELECT name, sum(total) AS total FROM orders JOIN customers ON customers.id = customer GROUP BY 1;
"""


@pytest.fixture
def shop():
    return Database(SHOP)


def read_rows(text):
    return json.loads(text)["rows"]


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("SELECT name FROM customers ORDER BY name DESC;", [["Bob"], ["Ada"]]),
        ("SELECT * FROM spent ORDER BY name -- who spent what", [["Ada", 10.5], ["Bob", 1.25]]),
        ("SELECT count(*) FROM orders", [[3]]),
        ("SELECT count(*) FROM (SELECT id FROM orders WHERE total > 2)", [[2]]),
        ("WITH big AS (SELECT * FROM orders WHERE total > 2) SELECT count(*), max(total) FROM big", [[2, 7.0]]),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4) SELECT sum(i) FROM n", [[10]]),
        ("SELECT rank() OVER (ORDER BY total) FROM orders ORDER BY id", [[2], [3], [1]]),
        ("SELECT json_extract(notes, '$.gift'), notes ->> 'gift' FROM orders WHERE id = 1", [[1, 1]]),
        ("SELECT value FROM json_each('[1, 2]')", [[1], [2]]),
        ("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1", [["customers"], ["orders"]]),
        ("SELECT date('2026-01-31', '+1 day'), upper('é'), round(2.5), NULL", [["2026-02-01", "é", 3.0, None]]),
        ("SELECT x'00ff', 9e999, -9e999", [["x'00ff'", "inf", "-inf"]]),
        ("SELECT name FROM customers WHERE name LIKE 'a%' OR name GLOB 'B*'", [["Ada"], ["Bob"]]),
        ("VALUES (1, 2), (3, 4)", [[1, 2], [3, 4]]),
    ],
)  # fmt: skip
def test_allowed_queries_run(shop, query, answer):
    assert read_rows(shop.query(query)) == answer


CLOCK = ["date()", "time('now')", "datetime('NOW')", "julianday('n' || 'ow')", "strftime('%s')",
         "strftime('%Y', 'now')",
         "unixepoch('now', 'subsec')", "unixepoch('subsec')", "unixepoch('subsecond')", "date(x'6e6f77')",
         "date('now' || char(0) || 'x')", "timediff('2026-01-01', 'now')", "timediff('subsec', '2026-01-01')",
         "datetime('2026-01-01', 'localtime')", "datetime('2026-01-01', '+1 day', 'UTC')", "current_timestamp",
         "random()", "hex(randomblob(4))", "current_date", "sqlite_version()", "last_insert_rowid()"]  # fmt: skip


@pytest.mark.parametrize("expression", CLOCK)
def test_refuses_clock_and_random_functions(shop, expression):
    assert "not allowed" in shop.query(f"SELECT {expression} FROM customers")
    assert "not allowed" in shop.query(f"UPDATE customers SET name = {expression}", write=True)
    assert read_rows(shop.query("SELECT name FROM customers")) == [["Ada"], ["Bob"]]


def test_dates_are_computed_as_in_plain_sqlite(shop):
    for call in ("date('2026-01-31', '+1 month')", "julianday('2026-01-31 12:00')", "time('12:34:56.7', 'subsec')",
                 "strftime('%Y-%j', 1e9, 'unixepoch')", "date(NULL)", "date('nowhere')", "date(' now')", "date('now ')",
                 "unixepoch('2026-01-01')", "strftime(NULL, '2026-01-01')"):  # fmt: skip
        expected = sqlite3.connect(":memory:").execute(f"SELECT {call}").fetchone()[0]
        assert read_rows(shop.query(f"SELECT {call}")) == [[expected]], call


def test_column_names_count_towards_the_length_limit(shop):
    name = "n" * 9_000
    for query in (f"SELECT 1 AS {name}", f"SELECT {', '.join(['a.*'] * 190)} FROM (SELECT 1 AS {name}) AS a"):
        answer = shop.query(query)
        assert len(answer) < 300 and "names of its columns" in answer
    writes = f"UPDATE customers SET name = 'x' RETURNING id AS {name}"
    assert "names of its columns" in shop.query(writes, write=True)
    assert read_rows(shop.query("SELECT name FROM customers")) == [["Ada"], ["Bob"]], "the refused query changed rows"


def test_answer_format(shop):
    assert shop.query("SELECT id, name FROM customers") == '{"columns":["id","name"],"rows":[[1,"Ada"],[2,"Bob"]]}'
    assert shop.query("UPDATE orders SET total = 0 WHERE customer = 1", write=True) == '{"changed":2}'
    assert shop.query("SELECT * FROM nowhere") == "Error: no such table: nowhere"
    assert shop.query("SELECT 1 FROM customers WHERE") == "Error: incomplete input"


def test_rows_and_characters_are_limited():
    few = Database(SHOP, Limits(rows=2, characters=200))
    assert few.query("SELECT id FROM orders").endswith('"rows":[[1],[2]]} (only the first 2 rows are shown)')
    assert few.query("SELECT id FROM orders LIMIT 2").endswith('"rows":[[1],[2]]}')
    assert few.query("SELECT printf('%300d', 1)").endswith('"rows":[]} (only the first 0 rows are shown)')


def test_writing_needs_permission_and_changes_only_rows(shop):
    assert shop.query("DELETE FROM orders") == "Error: DELETE: orders is read-only"
    assert read_rows(shop.query("INSERT INTO orders(customer, total) VALUES (2, 9) RETURNING id", write=True)) == [[4]]
    assert shop.query("DELETE FROM orders WHERE id < 3", write=True) == '{"changed":2}'
    assert shop.connection.execute("SELECT id FROM orders").fetchall() == [(3,), (4,)]


def test_failed_statements_change_nothing(shop):
    before = list(shop.connection.iterdump())
    assert "UNIQUE" in shop.query("INSERT INTO orders(id) VALUES (9), (1)", write=True)
    endless = "WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n) INSERT INTO orders(id) SELECT i FROM n"
    assert "too m" in Database(SHOP, Limits(steps=100_000)).query(endless, write=True)
    assert "too m" in shop.query(endless, write=True)
    assert list(shop.connection.iterdump()) == before


def test_simulator_and_model_share_the_database(shop):
    shop.connection.execute("INSERT INTO customers VALUES (3, 'Cy')")
    assert read_rows(shop.query("SELECT max(id) FROM customers")) == [[3]]
    shop.query("UPDATE customers SET name = 'Di' WHERE id = 3", write=True)
    assert shop.connection.execute("SELECT name FROM customers WHERE id = 3").fetchone() == ("Di",)


def test_a_copy_is_independent(shop):
    twin = copy.deepcopy(shop)
    twin.query("DELETE FROM orders", write=True)
    assert read_rows(shop.query("SELECT count(*) FROM orders")) == [[3]]
    assert read_rows(twin.query("SELECT count(*) FROM orders")) == [[0]]


def test_step_budget_is_deterministic():
    """A statement just within its budget always passes; one just beyond it never does."""
    counting = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {}) SELECT count(*) FROM n"
    small = Database(limits=Limits(steps=20_000))
    assert all(read_rows(small.query(counting.format(1_000))) == [[1_000]] for _ in range(5))
    assert {small.query(counting.format(2_500)) for _ in range(5)} == {"Error: the query takes too many steps"}


WORDS = r"""
SELECT FROM WHERE WITH RECURSIVE AS ( ) , ; * + - || = < 1 0x7f 'x' "id" [id] `id` orders customers spent sqlite_master
json_each('[1]') pragma_table_list INSERT INTO VALUES UPDATE SET DELETE CREATE TABLE TRIGGER VIEW DROP ALTER ATTACH
PRAGMA writable_schema ON VACUUM EXPLAIN QUERY PLAN UNION ALL ORDER BY LIMIT NULL printf( random() count(*) OVER JOIN
-- /* */ \u0000 \ud800 é 9e999 x'00' ? ?1 :a RETURNING REPLACE SAVEPOINT BEGIN COMMIT ANALYZE REINDEX id total name i n
"""
PIECES = [word.encode().decode("unicode_escape") if word.startswith("\\u") else word for word in WORDS.split()]
LONG_LIVED = Database(SHOP)


@settings(max_examples=count_cases(70, 300), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=20).map(" ".join) | st.text(max_size=80))
def test_any_statement_gets_an_answer_and_changes_nothing(query):
    before = list(LONG_LIVED.connection.iterdump())
    answer = LONG_LIVED.query(query)
    assert answer.startswith(("Error: ", '{"columns":')) and len(answer) < 2_000
    assert list(LONG_LIVED.connection.iterdump()) == before


BOMBS = [
    "SELECT count(DISTINCT printf('%9999d', i)) FROM n",
    "SELECT i, printf('%9999d', i) AS wide FROM n ORDER BY wide DESC",
    "SELECT printf('%9999d', i) FROM n UNION SELECT 1 ORDER BY 1",
]


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS)
def test_memory_stays_bounded(shop, bomb):
    shop.query("SELECT 1")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = shop.query("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) " + bomb)
    assert answer == "Error: the query takes too much memory"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kB, in this process
    assert read_rows(shop.query("SELECT 1")) == [[1]]


def test_worker_is_limited_and_has_no_open_files(shop):
    shop.query("SELECT 1")
    worker = sql._workers[0].process.pid
    assert resource.prlimit(worker, resource.RLIMIT_AS) == (MEMORY, MEMORY)
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{worker}/status").read_text().splitlines())
    assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1"
    assert Path(f"/proc/{worker}/environ").read_bytes() == b""
    assert {link.name for link in Path(f"/proc/{worker}/fd").iterdir()} == {"0", "1", "2"}


def test_system_call_filter_holds_without_the_authorizer(tmp_path):
    """Even without the authorizer, the worker cannot open files, because its system calls are filtered."""
    secret = tmp_path / "secret.db"
    secret.touch()
    code = f"""
import sqlite3, sys
sys.path.insert(0, {str(Path(sql.__file__).parents[2])!r})
from simulators.confine import sql_worker
from simulators.confine.syscalls import COMPUTING, build_filter
if len(sys.argv) > 1:
    sql_worker.restrict_process(build_filter(__import__("platform").machine(), COMPUTING), 1 << 36)
for attempt in (
    lambda: sqlite3.connect(":memory:").execute("ATTACH ? AS o", [{str(secret)!r}]),
    lambda: open("/etc/passwd"),
    lambda: __import__("socket").socket(),
):
    try:
        attempt()
        print("through")
    except (OSError, sqlite3.Error) as why:
        print("held")
"""
    lines = [
        subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True).stdout.split()
        for arguments in ([], ["shut"])
    ]
    assert lines[0] == ["through"] * 3
    assert lines[1] == ["held"] * 3


def test_dead_worker_is_replaced(shop):
    shop.query("SELECT 1")
    sql._workers[0].process.kill()
    assert read_rows(shop.query("SELECT 1")) == [[1]]


@pytest.mark.parametrize(
    ("signals", "answer"),
    [
        ([signal.SIGKILL], '{"changed":1}'),
        ([signal.SIGSEGV] * 2, "Error: the query's process was ended twice, by signal 11 (Segmentation fault)"),
        ([signal.SIGXCPU], "Error: the query takes too long"),
    ],
)
def test_query_is_retried_once_if_its_worker_dies(shop, monkeypatch, signals, answer):
    ask, pending = sql._Worker.ask, list(signals)

    def ask_and_kill(self, request):
        if len(request) == 4 and pending:
            self.process.send_signal(pending.pop())
            self.process.wait()
        return ask(self, request)

    monkeypatch.setattr(sql._Worker, "ask", ask_and_kill)
    assert shop.query("DELETE FROM orders WHERE id = 1", write=True) == answer
    assert pending == []
    assert read_rows(shop.query("SELECT count(*) FROM orders")) == [[2 if "changed" in answer else 3]]


def test_failing_worker_start_is_reported(shop, monkeypatch):
    monkeypatch.setattr(sql, "_workers", [])
    monkeypatch.setattr(sql, "find_base", lambda: "/bin/false")
    with pytest.raises(ConfineError, match="exit code 1"):
        shop.query("SELECT 1")
    monkeypatch.setattr(sql, "find_base", lambda: "/nowhere")
    with pytest.raises(ConfineError, match="no child process"):
        shop.query("SELECT 1")
    monkeypatch.undo()
    assert read_rows(shop.query("SELECT 1")) == [[1]]


def test_refuses_unsupported_machines(shop, monkeypatch):
    monkeypatch.setattr(sql, "_workers", [])
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(ConfineError, match="needs Linux on x86_64 or aarch64"):
        shop.query("SELECT 1")
