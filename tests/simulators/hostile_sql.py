"""SQL that tries to escape, to make forbidden changes, or to run forever. @DIR@ contains other.db with a secret.

The expected texts hold for every version of SQLite; where versions differ, they are unspecific.
"""

from typing import NamedTuple

SCRIPT = """
CREATE TABLE orders(id INTEGER PRIMARY KEY, customer TEXT, total REAL);
INSERT INTO orders VALUES (1, 'ada', 3.5), (2, 'bob', 7.0), (3, 'cy', 1.25);
CREATE INDEX by_customer ON orders(customer);
CREATE VIEW large AS SELECT id FROM orders WHERE total > 3;
"""


class Query(NamedTuple):
    """Statement with its expected output, whether it may write, whether it works unconfined, and whether it fails."""

    sql: str
    expected: str
    write: bool = False
    works: bool = False
    error: bool = True


COUNT = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
SCHEMA = "its schema cannot be changed"
DOUBLED = ", ".join(f"c{n}(x) AS (SELECT 1 FROM c{n - 1}, c{n - 1})" for n in range(1, 40))

FILES = [
    Query("ATTACH '@DIR@/other.db' AS o", "ATTACH is not allowed"),
    Query("ATTACH '@DIR@/new.db' AS o", "ATTACH is not allowed", write=True),
    Query("ATTACH 'file:@DIR@/other.db?mode=ro' AS o", "ATTACH is not allowed"),
    Query("ATTACH ':memory:' AS o", "ATTACH is not allowed"),
    Query("DETACH main", "DETACH is not allowed"),
    Query("VACUUM INTO '@DIR@/copy.db'", "not allowed", works=True),
    Query("VACUUM", "not allowed", write=True),
    Query("SELECT load_extension('@DIR@/x.so')", "load_extension is not allowed"),
    Query("SELECT LOAD_EXTENSION('@DIR@/x.so', 'f')", "load_extension is not allowed"),
    Query("SELECT readfile('@CANARY@')", "no such function: readfile"),
    Query("SELECT writefile('@MARKER@', 'x')", "no such function: writefile"),
    Query("SELECT edit('x', 'sh')", "no such function: edit"),
    Query("SELECT fts3_tokenizer('simple')", "not allowed"),
    Query("SELECT fts3_tokenizer('simple', x'4141414141414141')", "not allowed"),
    Query("SELECT * FROM fsdir('/')", "no such table"),
    Query("SELECT sqlite_log(1, 'x')", "sqlite_log is not allowed"),
    Query("PRAGMA temp_store_directory = '@DIR@'", "PRAGMA is not allowed"),
    Query("PRAGMA data_store_directory = '@DIR@'", "PRAGMA is not allowed"),
]

PRAGMAS = [
    Query("PRAGMA writable_schema = ON", "PRAGMA is not allowed"),
    Query("PRAGMA database_list", "PRAGMA is not allowed", works=True),
    Query("PRAGMA query_only = OFF", "PRAGMA is not allowed"),
    Query("pragma/**/main.table_info(orders)", "PRAGMA is not allowed", works=True),
    Query("PRAGMA hard_heap_limit = 1", "PRAGMA is not allowed"),
    Query("PRAGMA journal_mode = DELETE", "PRAGMA is not allowed", works=True),
    Query("PRAGMA compile_options", "PRAGMA is not allowed", works=True),
    Query("SELECT * FROM pragma_database_list", "not", works=True),
    Query("SELECT * FROM pragma_table_info('orders')", "Error: ", works=True),
    Query("SELECT count(*) FROM pragma_function_list", "Error: ", works=True),
    Query("SELECT * FROM pragma_query_only", "Error: ", works=True),
    Query("SELECT sqlite_version()", "sqlite_version is not allowed", works=True),
    Query("SELECT sqlite_compileoption_get(1)", "not allowed", works=True),
    Query("SELECT * FROM dbstat", "Error: "),
    Query("SELECT * FROM sqlite_dbpage", "Error: "),
    Query("SELECT * FROM sqlite_stmt", "Error: "),
]

ADDRESSES = [
    Query("EXPLAIN SELECT * FROM json_each('[]')", "EXPLAIN is not allowed", works=True),
    Query("/* x */ explain\nSELECT * FROM json_tree('[]')", "EXPLAIN is not allowed", works=True),
    Query("EXPLAIN QUERY PLAN SELECT * FROM json_each('[]')", "VIRTUAL TABLE", error=False),
]

CHANGES = [
    Query("INSERT INTO orders VALUES (9, 'x', 1)", "INSERT: orders is read-only", works=True),
    Query("UPDATE orders SET total = 0", "UPDATE: orders is read-only", works=True),
    Query("DELETE FROM orders", "DELETE: orders is read-only", works=True),
    Query("REPLACE INTO orders VALUES (1, 'x', 0)", "read-only", works=True),
    Query("WITH x AS (SELECT 1) DELETE FROM orders WHERE id IN x", "read-only", works=True),
    Query("INSERT INTO orders(id) VALUES (1) ON CONFLICT(id) DO UPDATE SET total = 0", "read-only", works=True),
    Query("EXPLAIN DELETE FROM orders", "read-only", works=True),
    Query("DROP TABLE orders", SCHEMA, write=True, works=True),
    Query("ALTER TABLE orders RENAME TO o", "ALTER TABLE is not allowed", write=True, works=True),
    Query("ALTER TABLE orders ADD COLUMN x", "ALTER TABLE is not allowed", write=True, works=True),
    Query("CREATE TABLE t(a)", SCHEMA, write=True, works=True),
    Query("CREATE TABLE t AS SELECT * FROM orders", SCHEMA, write=True, works=True),
    Query("CREATE TEMP TABLE t(a)", SCHEMA, write=True, works=True),
    Query("CREATE INDEX i ON orders(total)", SCHEMA, write=True, works=True),
    Query("CREATE VIEW v AS SELECT 1", SCHEMA, write=True, works=True),
    Query(
        "CREATE TRIGGER r AFTER INSERT ON orders BEGIN DELETE FROM orders; END",
        "TRIGGER is not allowed",
        write=True,
        works=True,
    ),
    Query(
        "CREATE TEMP TRIGGER r AFTER INSERT ON orders BEGIN DELETE FROM orders; END",
        "TRIGGER is not allowed",
        write=True,
        works=True,
    ),
    Query("CREATE VIRTUAL TABLE f USING fts5(x)", SCHEMA, write=True),
    Query("CREATE VIRTUAL TABLE f USING csv(filename='@CANARY@')", SCHEMA, write=True),
    Query("INSERT INTO sqlite_master VALUES ('table', 'x', 'x', 0, 'x')", "Error: ", write=True),
    Query("UPDATE sqlite_master SET sql = 'x'", "Error: ", write=True),
    Query("DELETE FROM sqlite_schema", "Error: ", write=True),
    Query("INSERT INTO large VALUES (1)", "Error: ", write=True),
    Query("ANALYZE", SCHEMA, write=True, works=True),
    Query("REINDEX", "REINDEX is not allowed", write=True),
    Query("BEGIN EXCLUSIVE", "TRANSACTION is not allowed", write=True),
    Query("COMMIT", "TRANSACTION is not allowed", write=True),
    Query("ROLLBACK", "TRANSACTION is not allowed", write=True),
    Query("SAVEPOINT a", "SAVEPOINT is not allowed", write=True),
    Query("RELEASE a", "SAVEPOINT is not allowed", write=True),
]

SEVERAL = [
    Query("SELECT 1; DROP TABLE orders", "one statement"),
    Query("SELECT 1;\n-- nothing\nDROP TABLE orders;", "one statement"),
    Query("SELECT 1; /* ; */ DELETE FROM orders", "one statement", write=True),
    Query("/* SELECT 1; */ DROP TABLE orders", SCHEMA, works=True),
    Query("SELECT 1 /* unclosed ; DROP TABLE orders", '"rows":[[1]]', error=False),
    Query("-- only a remark", "does nothing"),
    Query("", "does nothing"),
    Query("SELECT 1\0; DROP TABLE orders", "null character"),
    Query("\ufeffDROP TABLE orders", "Error: "),
    Query("ＤＲＯＰ TABLE orders", "syntax error"),
    Query("SELECT '\u202e\ud800'", "surrogates"),
    Query("SELECT ?", "Error: "),
    Query("SELECT @TOKEN", "Error: "),
    Query("SELECT CAST(x'ff' AS TEXT)", "Could not decode"),
]

BOMBS = [
    Query(f"{COUNT} SELECT count(*) FROM n", "too many steps"),
    Query(f"{COUNT} SELECT i FROM n WHERE i < 0", "too many steps"),
    Query(f"{COUNT} SELECT i FROM n ORDER BY -i", "too m"),
    Query(f"{COUNT} SELECT group_concat(i) FROM n", "Error: "),
    Query(f"{COUNT} SELECT json_group_array(i) FROM n", "Error: "),
    Query(f"{COUNT} SELECT DISTINCT printf('%9999d', i) FROM n ORDER BY 1", "Error: the query takes too"),
    Query(f"{COUNT} SELECT count(DISTINCT printf('%9999d', i)) FROM n", "Error: the query takes too"),
    Query("SELECT count(*) FROM " + ", ".join(f"orders o{n}" for n in range(30)), "too many steps"),
    Query("SELECT 1 FROM " + ", ".join(f"orders o{n}" for n in range(80)), "at most 64 tables"),
    Query(f"WITH c0(x) AS (SELECT 1), {DOUBLED} SELECT count(*) FROM c39", "Error: "),
    Query("SELECT randomblob(1000000000)", "randomblob is not allowed"),
    Query("SELECT length(randomblob(3000000))", "randomblob is not allowed", works=True),
    Query("SELECT zeroblob(1000000000)", "zeroblob is not allowed"),
    Query("SELECT hex(zeroblob(3000000))", "zeroblob is not allowed", works=True),
    # SQLite up to 3.40 takes seconds for the first, so only fast machines answer. Later it is null, from 3.54 an error.
    Query("SELECT printf('%.900000000c', 'x')", "", error=False),
    Query("SELECT printf('%3000000d', 1)", "", works=True, error=False),
    Query("SELECT replace(printf('%90000d', 1), ' ', printf('%90000d', 1))", "too big"),
    Query("SELECT quote(printf('%90000d', 1)) || printf('%90000d', 1)", "too big"),
    Query("SELECT json_extract('" + "[" * 3000 + "]" * 3000 + "', '$')", "malformed JSON"),
    Query("SELECT json_array(" + ",".join("1" for _ in range(200)) + ")", "too many arguments"),
    Query("SELECT 'a' LIKE '" + "%a" * 3000 + "'", "pattern too complex"),
    Query("SELECT 'a' GLOB '" + "*a" * 3000 + "'", "pattern too complex"),
    Query("SELECT replace(printf('%99999d', 1), ' ', 'a') LIKE '" + "%a" * 99 + "b'", "[[0]]", error=False),
    Query("SELECT replace(printf('%99999d', 1), ' ', 'a') GLOB '" + "*[a-z]" * 28 + "b'", "[[0]]", error=False),
    Query(
        f"{COUNT} SELECT instr(printf('%99999d', 1), printf('%49999d', i) || 'b') FROM n",
        "Error: the query takes too",
    ),
    Query("SELECT " + "NOT " * 2000 + "1", "Error: "),
    Query("SELECT * FROM " + "(SELECT * FROM " * 60 + "orders" + ")" * 60, "Error: "),
    Query("SELECT * FROM generate_series(1, 1000000000)", "no such table"),
    Query(
        "SELECT ntile(9223372036854775807) OVER (), lag(id, -9223372036854775808) OVER () FROM orders",
        "[3,null]",
        error=False,
    ),
    Query("SELECT 'a' REGEXP '(a|aa)+$'", "no such function: REGEXP"),
    Query("SELECT " + "-(" * 500 + "1" + ")" * 500, "Error: "),
    Query("SELECT " + "-" * 1 + "+".join("1" for _ in range(4000)), "Error: "),
    Query(" UNION ALL ".join("SELECT 1" for _ in range(100)), "too many terms"),
    Query("SELECT " + ",".join("1" for _ in range(1000)), "too many columns"),
    Query("SELECT " + " " * 10_000 + "1", "at most 10,000 characters"),
    Query(
        f"INSERT INTO orders(customer) {COUNT} SELECT printf('%9999d', i) FROM n", "Error: the query takes", write=True
    ),
    Query(f"UPDATE orders SET total = (SELECT count(*) FROM ({COUNT} SELECT i FROM n))", "too many steps", write=True),
    Query(f"{COUNT} SELECT i, i, i FROM n", "only the first", error=False),
]

QUERIES = FILES + PRAGMAS + ADDRESSES + CHANGES + SEVERAL + BOMBS
