"""SQL on tables in memory: one SELECT in DuckDB, without access to files, network or this process."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from arena.errors import ConfigError
from arena.plain import printable

SETTINGS = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "memory_limit": "50%",
}
"""DuckDB settings: no files, network, extensions or variables of this process, and at most half of the memory."""
SECONDS = 600.0
"""Time limit of a query."""


def run_sealed(database: Any, query: str, seconds: float) -> Any:
    """Run a query and return its result as an Arrow table. Raises ConfigError after `seconds`."""
    # in a thread, because Python handles no signals while DuckDB works
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(lambda: database.sql(query).to_arrow_table())
        try:
            return future.result(seconds)
        except TimeoutError:
            raise ConfigError(
                f"the query was stopped after {seconds:g} s: ask for less (is its recursion infinite?)"
            ) from None
        finally:
            while not future.done():  # DuckDB ignores an interrupt that comes before it has started
                database.interrupt()
                wait([future], 0.05)


def parse_select(database: Any, query: str) -> Any:
    """Return the query's syntax tree, DuckDB's JSON. Raises ConfigError for anything but one SELECT."""
    import duckdb

    try:
        tree = json.loads(database.execute("select json_serialize_sql(?)", [query]).fetchall()[0][0])
    except RecursionError:
        raise ConfigError("this query is nested too deeply: write it with fewer parentheses or brackets") from None
    except duckdb.Error as error:  # text that is not UTF-8
        raise ConfigError(printable(str(error))) from None
    if tree["error"]:
        reason = f"{printable(tree['error_message'])}: " if "syntax" in tree["error_message"] else ""
        raise ConfigError(f"{reason}write one SELECT, such as: select role, avg(advantage) from turns group by role")
    if len(tree["statements"]) != 1:
        raise ConfigError(f"{len(tree['statements'])} queries: write one SELECT")
    return tree["statements"][0]
