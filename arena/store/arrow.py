"""Conversion between rows of the match log (`MatchRecord.to_json`) and Arrow tables with its schema."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain, groupby
from typing import Any

import pyarrow as pa

from arena.store.lines import LogError
from arena.store.schema import CREDIT, DEFAULTS, MATCHES, drop_fields, field_paths, item_fields, select_fields

_DEFAULTS = {name: value for name, value in DEFAULTS.items() if "." not in name}
"""Default values of the optional columns."""
_ENCODE = json.JSONEncoder(allow_nan=False).encode

# -- from rows to Arrow -----------------------------------------------------------------------------------------------


def matches_to_table(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Convert rows of `MatchRecord.to_json` to an Arrow table with the schema `MATCHES`.

    Dicts keyed by seat or name become lists of structs; `options` and `report` become JSON texts. Optional columns that
    no row uses are left out. Raises LogError if a row does not fit the schema.
    """
    rows = list(rows)
    with _convert_errors():
        schema = drop_fields(MATCHES, {*DEFAULTS} - _find_used_fields(rows))
        return pa.Table.from_pylist([_flatten(row) for row in rows], schema=schema)


def credit_to_table(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Convert rows of rewards and advantages per turn to an Arrow table with the schema `CREDIT`, in the given order.

    Optional columns that no row uses are left out. Raises LogError if a row does not fit the schema.
    """
    with _convert_errors():
        absent = {name for name in CREDIT.names if name in DEFAULTS and not any(row.get(name) for row in rows)}
        return pa.Table.from_pylist([{**_DEFAULTS, **row} for row in rows], schema=drop_fields(CREDIT, absent))


def _find_used_fields(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the dotted names of the optional fields that at least one row has, such as `turns.source`."""
    turns = [*chain.from_iterable(row["turns"] for row in rows)]
    used_fields = {name for name in DEFAULTS if "." not in name and any(name in row for row in rows)}
    if any("instruction" in seating for row in rows for seating in row["seats"].values()):
        used_fields.add("seats.instruction")
    if any("source" in turn for turn in turns):
        used_fields.add("turns.source")
    if any("images" in message for turn in turns for message in turn["messages"]):
        used_fields.add("turns.messages.images")
    if any("entropy" in stream for row in rows for streams in row["streams"].values() for stream in streams):
        used_fields.add("streams.entropy")
    if any("media" in stream for row in rows for streams in row["streams"].values() for stream in streams):
        used_fields.add("streams.media")
    return used_fields


def _flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the row with its dicts as lists, `options` and `report` as JSON texts, and missing defaults."""
    return {
        **_DEFAULTS,
        **row,
        "options": _ENCODE(row["options"]),
        "report": _ENCODE(row["report"]),
        "payoffs": list(row["payoffs"].items()),
        "seats": [{"seat": seat, "instruction": "", **seating} for seat, seating in row["seats"].items()],
        "turns": [
            {
                "source": DEFAULTS["turns.source"],
                **turn,
                "messages": [{"images": [], **message} for message in turn["messages"]],
                "rewards": list(turn["rewards"].items()),
            }
            for turn in row["turns"]
        ],
        "streams": [
            {"seat": seat, "segment": i, "entropy": [], "media": [], **stream}
            for seat, streams in row["streams"].items()
            for i, stream in enumerate(streams)
        ],
    }


# -- from Arrow to rows -----------------------------------------------------------------------------------------------


def table_to_matches(table: Any) -> list[dict[str, Any]]:
    """Convert an Arrow table of the match log back to rows, the inverse of `matches_to_table`.

    The table may lack `streams` or fields of it. Raises LogError if `options` or `report` is not the JSON of an object.
    """
    known = (
        [item.name for item in item_fields(table.schema.field("streams"))] if "streams" in table.column_names else []
    )
    fields = [name for name in ("ids", "mask", "logprobs", "turns", "entropy", "media") if name in known]
    return [_nest(row, fields) for row in table.to_pylist()]


def _nest(row: dict[str, Any], stream_fields: Sequence[str]) -> dict[str, Any]:
    """Undo `_flatten` and return the row, which is changed in place. Streams get the fields `stream_fields`."""
    for name in ("options", "report"):
        row[name] = _parse_object(row[name], name)
    row["payoffs"] = {payoff["seat"]: payoff["value"] for payoff in row["payoffs"]}
    row["seats"] = {seating.pop("seat"): seating for seating in row["seats"]}
    for turn in row["turns"]:
        turn["rewards"] = {part["name"]: part["value"] for part in turn["rewards"]}
    if "streams" in row:
        by_seat: dict[str, list[dict[str, Any]]] = {seat: [] for seat in row["seats"]}
        for seat, streams in groupby(row["streams"], key=lambda stream: stream["seat"]):
            by_seat[seat] = [{name: s[name] for name in stream_fields} for s in streams]
        row["streams"] = by_seat
    return row


def _parse_object(text: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise LogError(f"a match's {name} must be a JSON object: restore the log from a copy")
    return value


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert Arrow's errors in the block, for rows that do not fit the schema, to a one-line LogError."""
    try:
        yield
    except (pa.ArrowException, OverflowError, TypeError, KeyError, AttributeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise LogError(f"a row does not fit the schema of the match log: {reason}") from error


# -- optional columns -------------------------------------------------------------------------------------------------


def parquet_columns(file_schema: Any, columns: Iterable[str]) -> list[str]:
    """Return Parquet's column paths of the wanted columns that the file has: `turns.seat` is `turns.list.element.seat`.

    If the file has no wanted field of a list, the list's first field is read, because it tells the number of items.
    """
    known = {field.name: field for field in file_schema}
    steps = [name.split(".") for name in columns]
    return [_parquet_path(known[step[0]], step[1:]) for step in steps if step[0] in known]


def _parquet_path(field: Any, inner: Sequence[str]) -> str:
    if not inner:
        return str(field.name)
    known = {item.name: item for item in item_fields(field)}
    first = inner[0] if inner[0] in known else next(iter(known))
    return f"{field.name}.list.element.{_parquet_path(known[first], inner[1:] if first == inner[0] else [])}"


def complete_table(table: Any, schema: Any, columns: Collection[str]) -> Any:
    """Return columns of the table, by dotted names such as `turns.seat`, with the schema's types and order.

    Optional fields that the table lacks are filled with their default.
    """
    target = pa.schema(list(select_fields(schema, columns)))
    arrays = [
        _complete_column(table[field.name], field, field.name)
        if field.name in table.column_names
        else _default_column(field, field.name, len(table))
        for field in target
    ]
    return pa.Table.from_arrays(arrays, schema=target) if arrays else table.select([])


def _complete_column(array: Any, field: Any, path: str) -> Any:
    """Cast a column to the field's type, with defaults for fields that its structs lack. `path` is its dotted name."""
    if {*field_paths([field])} == {*field_paths([pa.field(field.name, array.type)])}:
        return array.cast(field.type)
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    inner, flat = item_fields(field), array.flatten()
    known = {item.name: column for item, column in zip(flat.type, flat.flatten(), strict=True)}
    columns = [
        _complete_column(known[item.name], item, f"{path}.{item.name}")
        if item.name in known
        else _default_column(item, f"{path}.{item.name}", len(flat))
        for item in inner
    ]
    ends = pa.array([0, *accumulate(array.value_lengths().to_pylist())], pa.int32())
    structs = pa.StructArray.from_arrays(columns, fields=inner)
    return pa.ListArray.from_arrays(ends, structs, type=field.type)


def _default_column(field: Any, path: str, count: int) -> Any:
    value = pa.scalar(DEFAULTS[path], field.type)
    return pa.repeat(value, count) if count else pa.array([], field.type)
