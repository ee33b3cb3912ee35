"""The match log's columns: every field, its type and what it means. A change here is a new SCHEMA_VERSION."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from arena.store.lines import LogError

SCHEMA_VERSION = 3
ADDED: Mapping[str, tuple[int, Any]] = {"rules": (2, 0), "turns.situation": (3, "")}
"""Fields of a match, and of its turns, that came after version 1: with which, and what older logs are read as."""
_VERSION_KEY = b"arena.schema_version"


class CreditRow(NamedTuple):
    """What credit gave one turn of one match: its weighted reward and its advantage."""

    match: str
    turn: int
    seat: str
    reward: float
    advantage: float


def _field(name: str, kind: Any, doc: str) -> Any:
    return pa.field(name, kind, nullable=False, metadata={"doc": doc})


def _list(kind: Any) -> Any:
    return pa.list_(pa.field("item", kind, nullable=False))


def _schema(fields: Iterable[Any]) -> Any:
    return pa.schema(list(fields), metadata={_VERSION_KEY: str(SCHEMA_VERSION)})


_NAMED = pa.struct(
    [
        _field("name", pa.string(), "name of the reward part"),
        _field("value", pa.float64(), "its sum over the turn, unweighted"),
    ]
)
_MESSAGE = pa.struct(
    [
        _field("sender", pa.string(), "a seat, or referee"),
        _field("text", pa.string(), "what was said publicly"),
    ]
)
_SEAT = pa.struct(
    [
        _field("seat", pa.string(), "place in the game"),
        _field("role", pa.string(), "role file's name"),
        _field("policy", pa.string(), "named weights or brain"),
        _field("version", pa.int32(), "version of the policy that played"),
        _field("trained", pa.bool_(), "whether the policy learns from this seat"),
        _field("kind", pa.string(), "model, brain, endpoint or human"),
    ]
)
_PAYOFF = pa.struct(
    [
        _field("seat", pa.string(), "place in the game"),
        _field("value", pa.float64(), "its payoff by the game's own count"),
    ]
)
_TURN = pa.struct(
    [
        _field("index", pa.int16(), "number of the turn in the match, from 0"),
        _field("seat", pa.string(), "who moved"),
        _field("role", pa.string(), "the mover's role"),
        _field("policy", pa.string(), "the mover's policy"),
        _field("version", pa.int32(), "version of the policy that wrote this turn"),
        _field("messages", _list(_MESSAGE), "what was new to the mover since it last acted"),
        _field("raw", pa.string(), "everything it wrote"),
        _field("public", pa.string(), "what the others heard"),
        _field("private", pa.string(), "what nobody heard"),
        _field("action", pa.string(), "what the game read"),
        _field("valid", pa.bool_(), "whether the game could read and allow the act"),
        _field("rewards", _list(_NAMED), "named rewards until its next turn, unweighted"),
        _field("finish", pa.string(), "why it stopped writing: stop, length or script"),
        _field("tokens", pa.int32(), "tokens it wrote"),
        _field("seconds", pa.float64(), "wall time of the turn"),
        _field(
            "situation", pa.string(), "the situation it was taken in, as the game names it; empty where it does not"
        ),
    ]
)
_STREAM = pa.struct(
    [
        _field("seat", pa.string(), "whose tokens"),
        _field("segment", pa.int16(), "number of the stream within the seat, from 0"),
        _field("ids", _list(pa.int32()), "token ids as seen and sampled"),
        _field("mask", _list(pa.bool_()), "true where the policy sampled the token"),
        _field("logprobs", _list(pa.float32()), "natural log under the distribution sampled from; else 0"),
        _field("turns", _list(pa.int16()), "index of the turn that sampled the token; -1 if none"),
    ]
)
MATCHES = _schema(
    [
        _field(
            "id",
            pa.string(),
            "iteration-number, with -bT for its branch at turn T, -rN when played again after a failure",
        ),
        _field("iteration", pa.int32(), "iteration that played it"),
        _field("game", pa.string(), "name of the game"),
        _field("options", pa.string(), "the game's options, JSON"),
        _field("rules", pa.int16(), "version of the game's rules; 0 if not known (schema version 1)"),
        _field("seed", pa.uint64(), "seed of the game's generator"),
        _field("status", pa.string(), "finished or failed"),
        _field("reason", pa.string(), "why it failed"),
        _field("attempt", pa.int16(), "0, or how often it was played again"),
        _field("started", pa.string(), "ISO 8601, UTC"),
        _field("seconds", pa.float64(), "wall time of the match"),
        _field("report", pa.string(), "the game's own figures, JSON"),
        _field("payoffs", _list(_PAYOFF), "empty when it failed"),
        _field("seats", _list(_SEAT), "who played"),
        _field("turns", _list(_TURN), "in the order of play"),
        _field("streams", _list(_STREAM), "token record of every model-backed seat"),
    ]
)
_MATCH = pa.struct([field for field in MATCHES if field.name != "turns"])
_ACT = pa.struct([field for field in _TURN if field.name != "rewards"])
CREDIT = _schema(
    [
        _field("match", pa.string(), "id of the match"),
        _field("turn", pa.int16(), "index of the turn"),
        _field("seat", pa.string(), "who took it"),
        _field("reward", pa.float64(), "weighted sum of its named rewards"),
        _field("advantage", pa.float64(), "what the estimator made of it, normalised"),
    ]
)


def match_table(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Rows of `MatchRecord.to_json` as an Arrow table; LogError when one does not fit the schema."""
    rows = list(rows)
    with _fitting():
        columns = {**_columns([_flat(row) for row in rows], _MATCH), "turns": _turns([row["turns"] for row in rows])}
        return pa.Table.from_arrays([columns[name] for name in MATCHES.names], schema=MATCHES)


def match_rows(table: Any) -> list[dict[str, Any]]:
    """The inverse of `match_table`, for any choice of its columns; LogError where JSON within is damaged."""
    return [_nested(row) for row in table.to_pylist()]


def credit_table(rows: Iterable[CreditRow]) -> Any:
    """Credit as an Arrow table in the given order; LogError when a row does not fit the schema."""
    with _fitting():
        return pa.Table.from_pylist([row._asdict() for row in rows], schema=CREDIT)


def schema_at(schema: Any, version: int) -> Any:
    """The schema as it was in an earlier version."""
    return pa.schema(list(_fields_at(schema, version)))


def _fields_at(fields: Iterable[Any], version: int, parent: str = "") -> Iterator[Any]:
    for field in fields:
        name = f"{parent}{field.name}"
        if ADDED.get(name, (1, None))[0] <= version:
            yield _with_items(field, _fields_at(_items(field), version, f"{name}.")) if _items(field) else field


def _items(field: Any) -> list[Any]:
    """The fields of what a list holds; [] of any other field."""
    return [*field.type.value_type] if pa.types.is_list(field.type) and _is_struct(field.type.value_type) else []


def _is_struct(kind: Any) -> bool:
    return bool(pa.types.is_struct(kind))


def _with_items(field: Any, items: Iterable[Any]) -> Any:
    """A list's field, of structs with these fields."""
    return field.with_type(pa.list_(field.type.value_field.with_type(pa.struct(list(items)))))


def leaves_at(schema: Any, columns: Iterable[str], version: int) -> list[str]:
    """Parquet's names for what a file of an earlier version has of these columns, `turns.seat` being one.

    Where it has nothing of a list's, the first of its fields, which tells how many items there are.
    """
    written, leaves = schema_at(schema, version), []
    for name in columns:
        column, _, inner = name.partition(".")
        if column in written.names:
            known = [field.name for field in _items(written.field(column))]
            inner = inner if inner in known or not inner else known[0]
            leaves.append(f"{column}.list.element.{inner}" if inner else column)
    return leaves


def brought_up(table: Any, schema: Any, columns: Collection[str]) -> Any:
    """A table of an earlier version with what was added since, of the wanted columns."""
    for name, (_, older) in ADDED.items():
        column, _, inner = name.partition(".")
        if not {name, column} & {*columns} or column not in schema.names:
            continue
        field = schema.field(column)
        if not inner and column not in table.column_names:
            table = table.append_column(field, pa.array([older] * len(table), field.type))
        elif inner and inner not in [item.name for item in _items(table.schema.field(column))]:
            place = table.column_names.index(column)
            added = next(item for item in _items(field) if item.name == inner)
            lists = _with_item(table.column(column).combine_chunks(), added, older)
            table = table.set_column(place, table.schema.field(column).with_type(lists.type), lists)
    return table


def _with_item(lists: Any, field: Any, value: Any) -> Any:
    """Lists of structs with one field more, everywhere of this value."""
    ends = pa.array([0, *accumulate(lists.value_lengths().to_pylist())], pa.int32())
    items = lists.flatten()
    fields = [*items.type, field]
    structs = pa.StructArray.from_arrays([*items.flatten(), pa.array([value] * len(items), field.type)], fields=fields)
    kind = pa.list_(lists.type.value_field.with_type(pa.struct(fields)))
    return pa.ListArray.from_arrays(ends, structs, type=kind)


def row_brought_up(row: dict[str, Any]) -> dict[str, Any]:
    """An open file's row of an earlier version, with what was added since; LogError when it does not fit the schema."""
    with _fitting():
        for name, (_, older) in ADDED.items():
            column, _, inner = name.partition(".")
            for part in row.get(column, ()) if inner else (row,):
                part.setdefault(inner or column, older)
    return row


def check_version(metadata: Mapping[bytes, bytes] | None, path: Path) -> int:
    """The schema's version; LogError when the Parquet metadata of the file at `path` is not ours or is too new."""
    version = (metadata or {}).get(_VERSION_KEY, b"")
    if not version.isdigit():
        raise LogError(f"{path} is not a match log of Arena: it names no schema version")
    if int(version) > SCHEMA_VERSION:
        raise LogError(
            f"{path} has schema version {int(version)}, this Arena reads up to {SCHEMA_VERSION}: upgrade arena-selfplay"
        )
    return int(version)


@contextmanager
def _fitting() -> Iterator[None]:
    """LogError, in one line, for what Arrow says of rows that do not fit."""
    try:
        yield
    except (pa.ArrowException, OverflowError, TypeError, KeyError, AttributeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise LogError(f"a row does not fit the schema of the match log: {reason}") from error


def _columns(rows: Sequence[Mapping[str, Any]], struct: Any) -> dict[str, Any]:
    """Arrow's columns of rows that have the struct's fields, and perhaps others."""
    return dict(zip(struct.names, pa.array(rows, struct).flatten(), strict=True))


def _turns(matches: Sequence[Sequence[Mapping[str, Any]]]) -> Any:
    """The column of the matches' turns: all turns one after the other, and where each match's end."""
    turns = list(chain.from_iterable(matches))
    ends = pa.array([0, *accumulate(map(len, matches))], pa.int32())
    rewards = pa.array([list(turn["rewards"].items()) for turn in turns], _TURN.field("rewards").type)
    columns = {**_columns(turns, _ACT), "rewards": rewards}
    return pa.ListArray.from_arrays(
        ends, pa.StructArray.from_arrays([columns[name] for name in _TURN.names], fields=list(_TURN)), type=_list(_TURN)
    )


_ENCODE = json.JSONEncoder(allow_nan=False).encode


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as Arrow takes it: a table of names becomes a list of structs, each a dict or a tuple in their order."""
    return {
        **row,
        "options": _ENCODE(row["options"]),
        "report": _ENCODE(row["report"]),
        "payoffs": list(row["payoffs"].items()),
        "seats": [{"seat": seat, **seating} for seat, seating in row["seats"].items()],
        "streams": [
            {"seat": seat, "segment": i, **stream}
            for seat, streams in row["streams"].items()
            for i, stream in enumerate(streams)
        ],
    }


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise LogError(f"a match's {name} are no JSON object: restore the log from a copy")
    return value


def _nested(row: dict[str, Any]) -> dict[str, Any]:
    for name in ("options", "report"):
        row[name] = _object(row[name], name)
    row["payoffs"] = {payoff["seat"]: payoff["value"] for payoff in row["payoffs"]}
    row["seats"] = {seating.pop("seat"): seating for seating in row["seats"]}
    for turn in row["turns"]:
        turn["rewards"] = {part["name"]: part["value"] for part in turn["rewards"]}
    if "streams" in row:
        by_seat: dict[str, list[dict[str, Any]]] = {seat: [] for seat in row["seats"]}
        for seat, streams in groupby(row["streams"], key=lambda stream: stream["seat"]):
            by_seat[seat] = [{k: s[k] for k in ("ids", "mask", "logprobs", "turns")} for s in streams]
        row["streams"] = by_seat
    return row
