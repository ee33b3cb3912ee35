"""Fields that a file of the log lacks, filled in: those that came after it, and optional ones that it did not need."""

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from arena.store.arrow import fitting
from arena.store.lines import LogError
from arena.store.schema import ADDED, IDENTITY, OPTIONAL, SCHEMA_VERSION, items, narrowed, paths, without

if TYPE_CHECKING:
    from games.contracts import MatchId


def lacking(schema: Any, found: Any, version: int, path: Path) -> set[str]:
    """The fields of the schema that the file at `path`, with columns as found, lacks by right; LogError otherwise.

    No checksum covers a Parquet file's footer, which names the columns.
    """
    known = {*paths(found)}
    absent = {name for name in paths(schema) if name in ADDED and name not in known}
    wrong = any(ADDED[name][0] <= version and name not in OPTIONAL for name in absent)
    if wrong or not found.equals(without(schema, absent)):
        raise LogError(f"{path} cannot be read: its columns are not those of a match log")
    return absent


def spared(schema: Any, absent: Collection[str]) -> Any:
    """The schema less the optional fields that a file lacks, but for those that older files say by their ids."""
    said = IDENTITY if "deal" in absent else ()
    return without(schema, {name for name in absent if name in OPTIONAL and name not in said})


def leaves(written: Any, columns: Iterable[str]) -> list[str]:
    """Parquet's names for what a file with these columns has of the wanted ones, `turns.seat` being one.

    Where it has nothing of a list's, the first of its fields, which tells how many items there are; where it has no
    columns for an identity, the printed id.
    """
    wanted = [*columns]
    if "deal" not in written.names and {*wanted} & {*IDENTITY} and "id" in written.names:
        wanted.append("id")
    known = {field.name: field for field in written}
    return [_leaf(known[name.split(".")[0]], name.split(".")[1:]) for name in wanted if name.split(".")[0] in known]


def _leaf(field: Any, inner: Sequence[str]) -> str:
    """Parquet's name of a field, or of what lies within its items."""
    if not inner:
        return str(field.name)
    known = {item.name: item for item in items(field)}
    first = inner[0] if inner[0] in known else next(iter(known))
    return f"{field.name}.list.element.{_leaf(known[first], inner[1:] if first == inner[0] else [])}"


def completed(table: Any, schema: Any, columns: Collection[str], absent: Collection[str] = ()) -> Any:
    """Columns of a table of an earlier version, or of one without optional fields, typed and ordered as in the schema.

    `absent` is what its file lacks. LogError where an id says nothing of an identity that the file has no columns for.
    """
    wanted = pa.schema(list(narrowed(schema, columns)))
    if "deal" in absent and {*IDENTITY} & {*wanted.names}:
        table = _identified(table)
    arrays = [
        _brought_up(table[field.name], field, field.name)
        if field.name in table.column_names
        else _usual(field, field.name, len(table))
        for field in wanted
    ]
    return pa.Table.from_arrays(arrays, schema=wanted) if arrays else table.select([])


def row_brought_up(row: dict[str, Any], version: int) -> dict[str, Any]:
    """An open file's row of an earlier version, with what was added since and is not optional.

    LogError when it does not fit the schema, or its id is none.
    """
    if version < SCHEMA_VERSION:
        with fitting():
            row.setdefault("rules", ADDED["rules"][1])
            for turn in row["turns"]:
                turn.setdefault("situation", ADDED["turns.situation"][1])
            match = _parsed(row["id"])
        row.setdefault("deal", match.deal)
        if match.parent:
            row |= {"parent": str(match.parent), "parent_turn": match.turn}
    return row


def _identified(table: Any) -> Any:
    """The table with the columns of identity, as its ids have it."""
    matches = [_parsed(id) for id in table["id"].to_pylist()]
    columns = {
        "deal": pa.array([match.deal for match in matches], pa.int32()),
        "parent": pa.array([str(match.parent or "") for match in matches], pa.string()),
        "parent_turn": pa.array([-1 if match.turn is None else match.turn for match in matches], pa.int16()),
    }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def iteration_of(id: str) -> int | None:
    """The iteration of a printed id; None where it is none."""
    try:
        return _parsed(id).iteration
    except LogError:
        return None


def _parsed(id: str) -> "MatchId":
    from games.contracts import MatchId  # who reads present logs does without games

    try:
        return MatchId.parse(id)
    except (ValueError, TypeError) as error:
        raise LogError(f"{error}: restore the log from a copy") from None


def _brought_up(array: Any, field: Any, path: str) -> Any:
    """An array as the field has it; lists of structs with the fields that they lack."""
    if {*paths([field])} == {*paths([pa.field(field.name, array.type)])}:
        return array.cast(field.type)
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    inner, flat = items(field), array.flatten()
    known = {item.name: column for item, column in zip(flat.type, flat.flatten(), strict=True)}
    columns = [
        _brought_up(known[item.name], item, f"{path}.{item.name}")
        if item.name in known
        else _usual(item, f"{path}.{item.name}", len(flat))
        for item in inner
    ]
    ends = pa.array([0, *accumulate(array.value_lengths().to_pylist())], pa.int32())
    structs = pa.StructArray.from_arrays(columns, fields=inner)
    return pa.ListArray.from_arrays(ends, structs, type=field.type)


def _usual(field: Any, path: str, count: int) -> Any:
    """So many times what a file without the field is read as."""
    value = pa.scalar(ADDED[path][1], field.type)
    return pa.repeat(value, count) if count else pa.array([], field.type)
