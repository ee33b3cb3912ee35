"""Worker that runs model-written SQL, one statement at a time, on a copy of its database. A script for `sql.py`.

It reads requests from stdin and answers on stdout. Before the first request it irrevocably gives up opening files,
sockets and processes (seccomp), and limits its memory. Each statement runs under an authorizer that allows reading
(and, if permitted, writing) rows and calling pure functions, under SQLite's own limits, and with a budget of steps.
"""

from __future__ import annotations

import ctypes
import json
import marshal
import math
import os
import resource
import sqlite3
import struct
import sys
import time
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMES = """
    -> ->> abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling char coalesce concat concat_ws cos cosh count
    cume_dist date datetime degrees dense_rank exp first_value floor format glob group_concat hex ifnull iif instr json
    json_array json_array_length json_error_position json_extract json_group_array json_group_object json_insert
    json_object json_patch json_pretty json_quote json_remove json_replace json_set json_type json_valid julianday lag
    last_value lead length like likelihood likely ln log log10 log2 lower ltrim max min mod nth_value ntile nullif
    octet_length percent_rank pi pow power printf quote radians rank replace round row_number rtrim sign sin sinh
    sqrt strftime string_agg substr substring sum tan tanh time timediff total trim trunc typeof unhex unicode
    unixepoch unlikely upper
"""
FUNCTIONS = frozenset(NAMES.split())
"""Allowed functions: none that uses files, randomness or secrets of this build (random, load_extension, …)."""
DATES = {"date": 0, "datetime": 0, "julianday": 0, "strftime": 1, "time": 0, "timediff": 0, "unixepoch": 0}
"""Date functions, with the index of their first date argument."""
PRESENT, ZONE = frozenset({"now", "subsec", "subsecond"}), frozenset({"localtime", "utc"})
"""Arguments that refer to this machine's clock or time zone."""
TABLE_FUNCTIONS = frozenset({"json_each", "json_tree"})
SCHEMA = frozenset({"sqlite_master", "sqlite_schema"})
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 200,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 50_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 32,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 10,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
EXPLAIN_COLUMNS = ("addr", "opcode", "p1", "p2", "p3", "p4", "p5", "comment")
"""Columns of EXPLAIN, which shows addresses in memory; EXPLAIN QUERY PLAN does not."""
STEPS_PER_CHECK = 100
"""Steps between two checks of the budget."""

ACTIONS = {
    getattr(sqlite3, f"SQLITE_{name.replace(' ', '_')}"): name
    for name in (
        "CREATE INDEX", "CREATE TABLE", "CREATE TEMP INDEX", "CREATE TEMP TABLE", "CREATE TEMP TRIGGER",
        "CREATE TEMP VIEW", "CREATE TRIGGER", "CREATE VIEW", "DELETE", "DROP INDEX", "DROP TABLE", "DROP TEMP INDEX",
        "DROP TEMP TABLE", "DROP TEMP TRIGGER", "DROP TEMP VIEW", "DROP TRIGGER", "DROP VIEW", "INSERT", "PRAGMA",
        "TRANSACTION", "UPDATE", "ATTACH", "DETACH", "ALTER TABLE", "REINDEX", "ANALYZE", "CREATE VTABLE",
        "DROP VTABLE", "SAVEPOINT",
    )
}  # fmt: skip
CHANGES = (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE)


class Guard:
    """Authorizer and budget of one statement: SQLite calls `allow` before and `count_steps` while it runs.

    `refusal` is the first reason why something was denied, or ""; `was_called` is True once SQLite has asked.
    """

    def __init__(self, connection: sqlite3.Connection, write: bool, steps: int, seconds: float) -> None:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        self.tables = {str(name).lower() for (name,) in names}
        self.modules = {str(name).lower() for (name,) in connection.execute("PRAGMA module_list")}
        self.write, self.steps, self.deadline = write, steps, time.process_time() + seconds
        self.was_called, self.refusal = False, ""

    def allow(self, action: int, first: str | None, second: str | None, *_: Any) -> int:
        """Authorize one part of a statement for SQLite: return SQLITE_OK if it is allowed, else SQLITE_DENY."""
        self.was_called, table = True, (first or "").lower()
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            return self._deny_if((second or "").lower() not in FUNCTIONS, f"the function {second} is not allowed")
        if action == sqlite3.SQLITE_READ:
            # For a subquery of which no column is read, SQLite asks about the subquery's alias.
            alias = not second and table not in self.modules and not table.startswith("pragma_")
            is_known = table in self.tables or table in SCHEMA or table in TABLE_FUNCTIONS
            return self._deny_if(not is_known and not alias, f"the table {first} is not allowed")
        if action in CHANGES and table.startswith("sqlite_"):
            # Every change of the schema, and every use of a table module of SQLite, begins like this.
            return self._deny_if(True, "only this database's own tables can be used, and its schema cannot be changed")
        if action in CHANGES:
            return self._deny_if(not self.write or table not in self.tables, f"{ACTIONS[action]}: {first} is read-only")
        return self._deny_if(True, f"{ACTIONS.get(action, 'this')} is not allowed")

    def _deny_if(self, is_denied: bool, refusal: str) -> int:
        if not is_denied:
            return sqlite3.SQLITE_OK
        self.refusal = self.refusal or refusal
        return sqlite3.SQLITE_DENY

    def compute_date(self, name: str, dates: sqlite3.Connection, *values: Any) -> Any:
        """Return the result of a date function, computed on another connection, `dates`.

        Raises ValueError if it depends on the clock or time zone. Arguments may come in any case, as blobs, and with
        text after a NUL, where SQLite stops reading.
        """
        read = [v.decode(errors="replace") if isinstance(v, bytes) else str(v) for v in values[DATES[name] :]]
        words = [text.partition("\0")[0].lower() for text in read]
        if not words or PRESENT & set(words[: 2 if name == "timediff" else 1]) or ZONE & set(words):
            self.refusal = f"{name} of this moment or time zone is not allowed: a query gives the same at any time"
            raise ValueError(self.refusal)
        try:
            return dates.execute(f"SELECT {name}({','.join('?' * len(values))})", values).fetchone()[0]
        except sqlite3.Error as error:
            self.refusal = str(error)
            raise

    def count_steps(self) -> int:
        """Count 100 steps. Returns True if steps or CPU time are used up; SQLite then undoes the statement."""
        self.steps -= STEPS_PER_CHECK
        if self.steps < 0:
            self.refusal = "the query takes too many steps"
        elif time.process_time() > self.deadline:
            self.refusal = "the query takes too long"
        return bool(self.refusal)


def run_statement(image: bytes, sql: str, write: bool, bounds: tuple[float, int, int, int]) -> tuple[str, bytes]:
    """Run one statement on a copy of a database within `bounds`: (CPU seconds, steps, rows, characters).

    Returns the result as JSON text or "Error: …", and the changed database as bytes, b"" if nothing changed.
    """
    seconds, steps, rows, characters = bounds
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    if image:
        connection.deserialize(image)
    connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")  # defines both before the authorizer is set
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA trusted_schema = OFF")
    guard = Guard(connection, write, steps, seconds)
    # If a single step takes too long, the kernel ends this process.
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(guard.deadline) + 1, resource.RLIM_INFINITY))
    if not write:
        connection.execute("PRAGMA query_only = ON")
    for limit, value in LIMITS.items():
        connection.setlimit(limit, value)
    connection.set_authorizer(guard.allow)
    connection.set_progress_handler(guard.count_steps, STEPS_PER_CHECK)
    dates = sqlite3.connect(":memory:")
    for name in DATES:
        connection.create_function(name, -1, partial(guard.compute_date, name, dates))
    before = connection.total_changes
    try:
        cursor = connection.execute(sql)
        if tuple(name for name, *_ in cursor.description or ()) == EXPLAIN_COLUMNS:
            return "Error: EXPLAIN is not allowed, EXPLAIN QUERY PLAN is", b""
        text = format_rows(cursor, rows, characters)
        cursor.close()
        changed = connection.total_changes > before
    except MemoryError:
        return "Error: the query takes too much memory", b""
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        return f"Error: {(guard.refusal or str(error))[:300]}", b""
    if not guard.was_called:
        return "Error: the query does nothing", b""
    return text, connection.serialize() if changed else b""


def format_rows(cursor: sqlite3.Cursor, rows: int, characters: int) -> str:
    """Return column names and the first rows as compact JSON, or {"changed": n} for statements without columns.

    The result has at most `rows` rows and `characters` characters; a note follows if rows were cut. Raises ValueError
    if the column names alone are too long.
    """
    if cursor.description is None:
        return to_json({"changed": max(0, cursor.rowcount)})
    columns = to_json([name for name, *_ in cursor.description])
    if len(columns) > characters:
        raise ValueError(f"the names of its columns alone take more than {characters:,} characters: shorten them (AS)")
    lines: list[str] = []
    remaining = characters - len(columns)
    for row in cursor:
        line = to_json([to_json_value(value) for value in row])
        remaining -= len(line)
        if len(lines) == rows or remaining < 0:
            # The rest is not counted: it may never end.
            return f'{{"columns":{columns},"rows":[{",".join(lines)}]}} (only the first {len(lines)} rows are shown)'
        lines.append(line)
    return f'{{"columns":{columns},"rows":[{",".join(lines)}]}}'


def to_json_value(value: Any) -> Any:
    """Return an SQL value as one that JSON supports: a blob as x'…', inf and nan as text."""
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return str(value) if isinstance(value, float) and value - value != 0 else value


def to_json(value: Any) -> str:
    """Return the value as JSON text without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def restrict_process(program: bytes, memory: int) -> None:
    """Restrict this process irrevocably to computing and its open streams (by seccomp), and limit its memory.

    `program` is the filter, `memory` the address space in bytes. Raises OSError if seccomp fails.
    """
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    array = ctypes.create_string_buffer(program)
    header = struct.pack("HP", len(program) // 8, ctypes.addressof(array))
    zero = ctypes.c_ulong(0)
    if libc.prctl(38, ctypes.c_ulong(1), zero, zero, zero) or libc.prctl(22, ctypes.c_ulong(2), header, zero, zero):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "seccomp")


def main() -> None:
    """Serve requests from stdin until it ends. The first message carries the filter and the memory limit."""
    reads, writes = sys.stdin.buffer, sys.stdout.buffer
    program, memory = marshal.loads(receive(reads))
    run_statement(b"", "SELECT json('[1]'), upper('a')", False, (1.0, 1000, 1, 100))  # triggers lazy loading
    try:
        restrict_process(program, memory)
        send(writes, "ready", b"")
    except OSError as error:
        send(writes, f"{error.filename}: {error.strerror}", b"")
        return
    while request := receive(reads):
        send(writes, *run_statement(*marshal.loads(request)))


def receive(stream: Any) -> bytes:
    """Read one length-prefixed message; b"" at the end of the stream."""
    size = stream.read(4)
    return stream.read(int.from_bytes(size, "big")) if len(size) == 4 else b""


def send(stream: Any, text: str, image: bytes) -> None:
    """Write an answer to the stream: total length, text length, text, database. Lengths are 4 bytes, big-endian."""
    data = text.encode()
    stream.write(b"".join(((len(data) + len(image)).to_bytes(4, "big"), len(data).to_bytes(4, "big"), data, image)))
    stream.flush()


if __name__ == "__main__":
    main()
