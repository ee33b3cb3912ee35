"""List of a run's matches: filtered, sorted, paginated."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import from_json

from analysis.query import run_query
from analysis.view.index import Index
from analysis.view.json_values import truncate
from arena.errors import ConfigError
from arena.plain import printable

SORTS = ("iteration", "paid", "low", "high", "turns", "seconds")
"""Columns to sort by, with a leading minus for descending order."""
MAX_MATCHES = 200
"""Maximum number of matches per page."""
MAX_CHARACTERS = 300
SECONDS = 20.0
"""Time limit of a condition in SQL."""


def list_matches(index: Index, query: Mapping[str, str], ids: Collection[str] | None = None) -> dict[str, Any]:
    """Return a page of the list of matches: `rows`, `total`, `facets` (values to filter by), `unread` iterations.

    `query` may have `iteration` (a number, or a range such as 3-7), `game`, `status`, `policy`, `parent`, `where`
    (SQL), `sort`, `offset` and `limit`. `ids` restricts the matches. Raises ConfigError for an invalid value.
    """
    unread_count = index.refresh()
    table = index.table()
    facets = {name: values[:MAX_MATCHES] for name, values in index.list_names().items()}
    matches = _filter(table, query, index)
    if ids is not None:
        matches = matches.filter(pc.is_in(matches["match"], value_set=pa.array(sorted(ids), pa.string())))
    matches = _sort(matches, query.get("sort", ""))
    offset, limit = _parse_number(query, "offset", 0), min(_parse_number(query, "limit", 50), MAX_MATCHES)
    rows = matches.slice(offset, limit).to_pylist()
    reports = _read_reports(index, rows)
    return {
        "total": len(matches), "of": len(table), "unread": unread_count, "offset": offset,
        "damaged": [*index.damaged.values()][:MAX_MATCHES],
        "rows": [_make_row(row, reports.get(row["match"], {})) for row in rows], "facets": facets,
    }  # fmt: skip


def find_neighbours(index: Index, query: Mapping[str, str], match: str) -> dict[str, Any]:
    """Return the ids `before` and `after` the match in the list, if any, and the number of `unread` iterations."""
    unread_count = index.refresh(0.1)
    ids = _sort(_filter(index.table(), query, index), query.get("sort", ""))["match"].to_pylist()
    position = ids.index(match) if match in ids else -1
    neighbours = {"before": position - 1, "after": position + 1} if position >= 0 else {}
    return {"unread": unread_count} | {name: ids[k] for name, k in neighbours.items() if 0 <= k < len(ids)}


def _filter(table: Any, query: Mapping[str, str], index: Index) -> Any:
    for name in ("game", "status", "parent"):
        if query.get(name):
            table = table.filter(pc.equal(table[name], query[name]))
    if span := query.get("iteration"):
        first, _, last = span.partition("-")
        if not first.strip().isdecimal() or not (last or first).strip().isdecimal():
            raise ConfigError(f"iterations '{printable(span)[:64]}': write a number, or two as in 3-7")
        low, high = int(first) % 2**31, int(last or first) % 2**31
        numbers = table["iteration"]
        table = table.filter(pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high)))
    if policy := query.get("policy"):
        seats = table["seats"].combine_chunks()
        hit = pc.list_parent_indices(seats).filter(pc.equal(pc.struct_field(pc.list_flatten(seats), "policy"), policy))
        table = table.take(pc.unique(hit))
    if where := query.get("where", "").strip():
        table = table.filter(pc.is_in(table["match"], value_set=_find_ids(index, where)))
    return table


def _find_ids(index: Index, where: str) -> Any:
    """Return the ids of matches that satisfy an SQL condition on columns of `matches` or, if that fails, of `turns`.

    Raises ConfigError for an invalid condition.
    """
    from analysis.frames import load

    log, first_error = load(index.reader.path), None
    for name in ("matches", "turns"):
        try:
            selected = run_query(log, f"select distinct match from {name} where ({where}\n)", SECONDS)
        except ConfigError as error:
            first_error = first_error or error
            continue
        if selected.schema.types != [pa.string()]:
            raise ConfigError(f"'{printable(where)[:64]}' is more than a condition: write one, such as: turns > 3")
        return selected["match"].combine_chunks()
    assert first_error is not None
    raise first_error


def _sort(table: Any, sort: str) -> Any:
    name, order = sort.removeprefix("-"), "descending" if sort.startswith("-") else "ascending"
    if not name:
        return table
    if name not in SORTS:
        raise ConfigError(f"cannot sort by '{printable(name)[:64]}' (one of: {', '.join(SORTS)})")
    column = table[name]
    if column.null_count:  # unknown values come last
        column = pc.fill_null(column, math.inf if order == "ascending" else -math.inf)
    keyed = pa.table({"by": column, "iteration": table["iteration"], "match": table["match"]})
    keys = [("by", order), ("iteration", "descending"), ("match", "ascending")]
    return table.take(pc.sort_indices(keyed, sort_keys=keys))


def _read_reports(index: Index, rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the game's own figures of these rows' matches by id, from the log: the index does not hold them."""
    reports: dict[str, dict[str, Any]] = {}
    for number in {row["iteration"] for row in rows}:
        match_ids = [row["match"] for row in rows if row["iteration"] == number]
        if not index.is_sealed(number):
            open_rows = {id: index.find_open_match(number, id) for id in match_ids}
            reports |= {id: row["report"] for id, row in open_rows.items() if row}
            continue
        table = index.reader.log.table(number, ["id", "report"], match_ids)
        reports |= {row["id"]: from_json(row["report"]) for row in table.to_pylist()}
    return reports


def _make_row(row: dict[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    payoffs = {item["seat"]: item["value"] for item in row.pop("payoffs")}
    seats = [
        {name: truncate(item[name], MAX_CHARACTERS) for name in ("seat", "role", "policy")}
        | {"trained": item["trained"], "payoff": payoffs.get(item["seat"])}
        for item in row.pop("seats")
    ]
    figures = {
        str(name)[:64]: truncate(v, MAX_CHARACTERS) if isinstance(v, str) else v for name, v in [*report.items()][:40]
    }
    return {**row, "reason": truncate(row["reason"], MAX_CHARACTERS), "seats": seats, "report": figures}


def _parse_number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name) or str(default)
    if not text.isdecimal() or len(text) > 9:
        raise ConfigError(f"{name} '{printable(text)[:64]}': write a number")
    return int(text)
