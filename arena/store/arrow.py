"""Between rows and Arrow: `MatchRecord.to_json`'s plain values as tables of the log's schema, and back."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain, groupby
from typing import Any

import pyarrow as pa

from arena.store.lines import LogError
from arena.store.schema import ADDED, CREDIT, MATCHES, OPTIONAL, items, without

# -- from rows to Arrow -----------------------------------------------------------------------------------------------


def match_table(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Rows of `MatchRecord.to_json` as an Arrow table; LogError when one does not fit the schema.

    Optional fields that none of the rows has are no columns of it.
    """
    rows = list(rows)
    with fitting():
        schema = without(MATCHES, OPTIONAL - _used(rows))
        turns = schema.field("turns")
        matches = pa.struct([field for field in schema if field.name != "turns"])
        columns = _columns([_flat(row) for row in rows], matches)
        columns["turns"] = _turns([row["turns"] for row in rows], turns)
        return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def credit_table(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Rows of credit as an Arrow table in the given order; LogError when one does not fit the schema.

    Figures of tokens that none of the rows has are no columns of it.
    """
    with fitting():
        absent = {name for name in CREDIT.names if name in OPTIONAL and not any(row.get(name) for row in rows)}
        schema = without(CREDIT, absent)
        return pa.Table.from_arrays(
            [pa.array([_value(row, field.name) for row in rows], field.type) for field in schema], schema=schema
        )


def _used(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """The optional fields that some row has."""
    turns = [*chain.from_iterable(row["turns"] for row in rows)]
    used = {name for name in OPTIONAL if "." not in name and any(name in row for row in rows)}
    if any("instruction" in seating for row in rows for seating in row["seats"].values()):
        used.add("seats.instruction")
    if any("source" in turn for turn in turns):
        used.add("turns.source")
    if any("images" in message for turn in turns for message in turn["messages"]):
        used.add("turns.messages.images")
    if any("entropy" in stream for row in rows for streams in row["streams"].values() for stream in streams):
        used.add("streams.entropy")
    return used


def _columns(rows: Sequence[Mapping[str, Any]], struct: Any) -> dict[str, Any]:
    """Arrow's columns of rows that have the struct's fields, or lack optional ones, and perhaps others."""
    optional = {field.name for field in struct if field.name in ADDED and field.name in OPTIONAL}
    given = pa.struct([field for field in struct if field.name not in optional])
    columns = dict(zip(given.names, pa.array(rows, given).flatten(), strict=True))
    return columns | {name: pa.array([_value(row, name) for row in rows], struct.field(name).type) for name in optional}


def _value(row: Mapping[str, Any], name: str) -> Any:
    return row[name] if name in row or name not in OPTIONAL else ADDED[name][1]


def _turns(matches: Sequence[Sequence[Mapping[str, Any]]], field: Any) -> Any:
    """The column of the matches' turns: all turns one after the other, and where each match's end."""
    turns = list(chain.from_iterable(matches))
    ends = pa.array([0, *accumulate(map(len, matches))], pa.int32())
    struct = field.type.value_type
    special = {"rewards": [list(turn["rewards"].items()) for turn in turns]}
    if "source" in struct.names:
        special["source"] = [turn.get("source", ADDED["turns.source"][1]) for turn in turns]
    if "images" in [item.name for item in items(struct.field("messages"))]:
        special["messages"] = [[{"images": [], **message} for message in turn["messages"]] for turn in turns]
    plain = pa.struct([one for one in struct if one.name not in special])
    columns = dict(zip(plain.names, pa.array(turns, plain).flatten(), strict=True))
    columns |= {name: pa.array(values, struct.field(name).type) for name, values in special.items()}
    structs = pa.StructArray.from_arrays([columns[name] for name in struct.names], fields=list(struct))
    return pa.ListArray.from_arrays(ends, structs, type=field.type)


_ENCODE = json.JSONEncoder(allow_nan=False).encode


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as Arrow takes it: a table of names becomes a list of structs, each a dict or a tuple in their order."""
    return {
        **row,
        "options": _ENCODE(row["options"]),
        "report": _ENCODE(row["report"]),
        "payoffs": list(row["payoffs"].items()),
        "seats": [{"seat": seat, "instruction": "", **seating} for seat, seating in row["seats"].items()],
        "streams": [
            {"seat": seat, "segment": i, "entropy": [], **stream}
            for seat, streams in row["streams"].items()
            for i, stream in enumerate(streams)
        ],
    }


# -- and back ---------------------------------------------------------------------------------------------------------


def match_rows(table: Any) -> list[dict[str, Any]]:
    """The inverse of `match_table`, for any choice of its columns; LogError where JSON within is damaged."""
    kept = [name for name in ("ids", "mask", "logprobs", "turns", "entropy") if name in _stream_fields(table)]
    return [_nested(row, kept) for row in table.to_pylist()]


def _stream_fields(table: Any) -> Collection[str]:
    return [item.name for item in items(table.schema.field("streams"))] if "streams" in table.column_names else []


def _nested(row: dict[str, Any], kept: Sequence[str]) -> dict[str, Any]:
    for name in ("options", "report"):
        row[name] = _object(row[name], name)
    row["payoffs"] = {payoff["seat"]: payoff["value"] for payoff in row["payoffs"]}
    row["seats"] = {seating.pop("seat"): seating for seating in row["seats"]}
    for turn in row["turns"]:
        turn["rewards"] = {part["name"]: part["value"] for part in turn["rewards"]}
    if "streams" in row:
        by_seat: dict[str, list[dict[str, Any]]] = {seat: [] for seat in row["seats"]}
        for seat, streams in groupby(row["streams"], key=lambda stream: stream["seat"]):
            by_seat[seat] = [{name: s[name] for name in kept} for s in streams]
        row["streams"] = by_seat
    return row


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise LogError(f"a match's {name} are no JSON object: restore the log from a copy")
    return value


@contextmanager
def fitting() -> Iterator[None]:
    """LogError, in one line, for what Arrow says of rows that do not fit."""
    try:
        yield
    except (pa.ArrowException, OverflowError, TypeError, KeyError, AttributeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise LogError(f"a row does not fit the schema of the match log: {reason}") from error
