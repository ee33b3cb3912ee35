"""Conversion of the nested match log to flat tables: pure functions of one iteration's log, in Arrow.

`NEEDS` maps each column of a table to the log fields that it is computed from, so that only these are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arena.store.lines import LogError

_MATCH_FIELDS = (
    "deal", "group", "parent", "parent_turn", "stage", "source",
    "rules", "status", "reason", "attempt", "seed", "started", "seconds",
)  # fmt: skip
_TURN_FIELDS = ("seat", "role", "policy", "version", "action", "public", "private", "raw", "valid", "finish", "tokens")
NEEDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "matches": {"turns": ("turns.index",), "report": ("report",)},
    "seats": {
        **{name: (f"seats.{name}",) for name in ("seat", "role", "policy", "version", "trained", "kind")},
        "payoff": ("payoffs",),
    },
    "turns": {
        **{name: (f"turns.{name}",) for name in (*_TURN_FIELDS, "seconds", "situation", "source")},
        "turn": ("turns.index",),
        "reward": ("turns.index", "turns.rewards"),
        "advantage": ("turns.index",),
        "rewards": ("turns.rewards",),
    },
    "messages": {"seat": ("turns.seat",), "policy": ("turns.policy",), "images": ("turns.messages.images",)},
    "tokens": {
        "segment": ("streams.segment",),
        "policy": ("seats.seat", "seats.policy"),
        "entropy": ("streams.entropy",),
    },
}
_ROW_FIELDS: Mapping[str, tuple[str, ...]] = {
    "matches": (),
    "seats": ("seats.seat",),
    "turns": ("turns.index",),
    "messages": ("turns.index", "turns.seat", "turns.messages.sender", "turns.messages.text"),
    "tokens": tuple(f"streams.{name}" for name in ("seat", "ids", "mask", "logprobs", "turns")),
}
"""Fields that define a table's rows. They are always read."""
TOKEN_CREDIT: Mapping[str, str] = {"advantage": "advantages", "ratio": "ratios", "gap": "gaps"}
"""Columns of `tokens` that come from the credit file, each with the file's list column."""


def list_leaves(table: str, columns: Collection[str]) -> set[str]:
    """Return the dotted names of the log fields that these columns of a table are computed from.

    >>> sorted(list_leaves("turns", ["role", "advantage"]))
    ['game', 'id', 'iteration', 'turns.index', 'turns.role']
    """
    required_leaves = {leaf for name in columns for leaf in NEEDS[table].get(name, ())}
    match_fields = {*_MATCH_FIELDS} & {*columns} if table == "matches" else set()
    return {"id", "iteration", "game", *_ROW_FIELDS[table], *required_leaves, *match_fields}


def matches(log: Any) -> Any:
    """Convert an iteration's log to the table `matches`: a row per match. The column `report` is still JSON."""
    table = pa.table({"match" if name == "id" else name: log[name] for name in log.column_names})
    if "turns" in table.column_names:
        table = _set_column(table, "turns", pc.list_value_length(table["turns"]))
    if "started" in table.column_names:
        table = _set_column(table, "started", _parse_times(table["started"]))
    return table


def seats(log: Any) -> Any:
    """Convert an iteration's log to the table `seats`: a row per seat of each match. Failed matches have no payoff."""
    table = _explode(log, "seats")
    if "payoffs" in log.column_names:
        payoffs = _explode(log, "payoffs")
        rows = pc.index_in(_seat_keys(table), value_set=_seat_keys(payoffs))
        table = table.append_column("payoff", payoffs["value"].take(rows))
    return table


def turns(log: Any, credit: Any) -> Any:
    """Convert an iteration's log to the table `turns`: a row per turn, with reward and advantage from `credit`.

    `credit` is a table of rewards and advantages by match and turn. Turns that it lacks get the sum of their rewards as
    reward, and null as advantage. The column `rewards` is still a list of named values.
    """
    table = _explode(log, "turns")
    table = table.rename_columns(["turn" if name == "index" else name for name in table.column_names])
    credit_keys = _turn_keys(credit["match"], credit["turn"], log["id"])
    credit_rows = pc.index_in(_turn_keys(table["match"], table["turn"], log["id"]), value_set=credit_keys)
    table = table.append_column("advantage", credit["advantage"].take(credit_rows))
    if "rewards" in table.column_names:
        table = table.append_column(
            "reward", pc.coalesce(credit["reward"].take(credit_rows), _sum_values(table["rewards"]))
        )
    return table


def messages(log: Any) -> Any:
    """Convert an iteration's log to the table `messages`: a row per message that a seat read before its turn."""
    table = _explode(log, "turns")
    lists = table["messages"].combine_chunks()
    rows, items = pc.list_parent_indices(lists), pc.list_flatten(lists)
    table = table.drop_columns(["game", "messages"]).take(rows)
    table = table.rename_columns(["turn" if name == "index" else name for name in table.column_names])
    table = table.append_column("place", _positions(lists))
    for field in items.type:
        table = table.append_column(field.name, pc.struct_field(items, field.name))
    return table


def tokens(log: Any) -> Any:
    """Convert an iteration's log to the table `tokens`: a row per token of each seat's streams, context or sampled.

    Raises LogError if the lists of a stream differ in length.
    """
    table = _explode(log, "streams")
    if "seats" in log.column_names:
        table = _add_policy(table, log)
    ids = table["ids"].combine_chunks()
    sizes = pc.list_value_length(ids)
    for name in ("mask", "logprobs", "turns"):
        if not pc.list_value_length(table[name].combine_chunks()).equals(sizes):
            raise LogError("the lists of a token stream differ in length: restore the log from a copy")
    flat = {name: pc.list_flatten(table[name].combine_chunks()) for name in ("mask", "logprobs", "turns")}
    rows = pc.list_parent_indices(ids)
    entropy = table["entropy"].combine_chunks() if "entropy" in table.column_names else None
    nested = ["game", "ids", "mask", "logprobs", "turns", *(["entropy"] if entropy is not None else [])]
    token_rows = table.drop_columns(nested).take(rows)
    sampled, null = flat["mask"], pa.scalar(None)
    columns = {
        "place": _positions(ids),
        "turn": pc.if_else(pc.greater_equal(flat["turns"], 0), flat["turns"], null),
        "id": pc.list_flatten(ids),
        "sampled": sampled,
        "logprob": pc.if_else(sampled, flat["logprobs"], null),
    }
    if entropy is not None:
        columns["entropy"] = pc.if_else(sampled, _flatten_to_sizes(entropy, sizes), null)
    for name, column in columns.items():
        token_rows = token_rows.append_column(name, column)
    return token_rows


def add_token_credit(tokens: Any, credit: Any, ids: Any) -> Any:
    """Add the columns of `TOKEN_CREDIT` to the table of tokens: the values of each turn's lists, in token order.

    `credit` has these lists and an advantage by match and turn, and may be empty. `ids` are the ids of the matches.
    Tokens of turns without lists get the turn's advantage, and null in the other columns. Raises LogError if a list
    does not have one value per token of its turn.
    """
    keys = _turn_keys(tokens["match"], tokens["turn"], ids)
    rows = pc.index_in(keys, value_set=_turn_keys(credit["match"], credit["turn"], ids), skip_nulls=True)
    row = pc.fill_null(rows, -1).to_numpy()
    with_credit = np.flatnonzero(row >= 0)
    counts = np.bincount(row[with_credit], minlength=len(credit))
    order = np.argsort(row[with_credit], kind="stable")
    rank = np.empty(len(with_credit), np.int64)
    rank[order] = np.arange(len(with_credit)) - np.repeat(np.cumsum(counts) - counts, counts)
    for name, source in TOKEN_CREDIT.items():
        lists = credit[source].combine_chunks()
        sizes = pc.list_value_length(lists).to_numpy()
        if ((sizes != counts) & (sizes > 0)).any():
            raise LogError(f"credit's {source} do not match the tokens of a turn: restore the log from a copy")
        offsets, has_value = np.zeros(len(row), np.int64), np.zeros(len(row), bool)
        offsets[with_credit], has_value[with_credit] = (
            (np.cumsum(sizes) - sizes)[row[with_credit]] + rank,
            sizes[row[with_credit]] > 0,
        )
        column = pc.list_flatten(lists).take(pa.array(offsets, mask=~has_value))
        if name == "advantage":
            column = pc.coalesce(pc.cast(column, pa.float64()), credit["advantage"].take(rows))
        tokens = tokens.append_column(name, column)
    return tokens


def _flatten_to_sizes(lists: Any, sizes: Any) -> Any:
    """Flatten lists whose lengths are `sizes`. An empty list becomes nulls. Raises LogError for any other length."""
    lengths, expected = pc.list_value_length(lists).to_numpy(), sizes.to_numpy()
    if ((lengths != expected) & (lengths > 0)).any():
        raise LogError("the lists of a token stream differ in length: restore the log from a copy")
    has_value = np.repeat(lengths > 0, expected)
    return pc.list_flatten(lists).take(pa.array(np.cumsum(has_value) - 1, mask=~has_value))


def _add_policy(table: Any, log: Any) -> Any:
    """Add the column `policy`, looked up in the log by match and seat, to a table with these two columns."""
    seat_rows = _explode(log, "seats")
    rows = pc.index_in(_seat_keys(table), value_set=_seat_keys(seat_rows))
    return table.append_column("policy", seat_rows["policy"].take(rows))


def spread_names(lists: Any, prefix: str) -> dict[str, Any]:
    """Convert lists of (name, value) to one column per name, called `prefix` + name, with 0 in rows without the name.

    Columns are in order of first appearance.
    """
    pairs, rows = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
    names = pc.struct_field(pairs, "name").combine_chunks().dictionary_encode()
    codes, values = names.indices.to_numpy(), pc.struct_field(pairs, "value").to_numpy()
    columns = {}
    for code, name in enumerate(names.dictionary.to_pylist()):
        column = np.zeros(len(lists))
        column[rows[codes == code]] = values[codes == code]
        columns[f"{prefix}{name}"] = pa.array(column)
    return columns


def _explode(log: Any, name: str) -> Any:
    """Return a row per item of the list column `name`: match, iteration and game, followed by the item's fields."""
    lists = log[name].combine_chunks()
    rows, items = pc.list_parent_indices(lists), pc.list_flatten(lists)
    of_match = {"match": log["id"], "iteration": log["iteration"], "game": log["game"]}
    columns = {key: column.take(rows) for key, column in of_match.items()}
    for field in items.type:
        columns[field.name] = pc.struct_field(items, field.name)
    return pa.table(columns)


def _set_column(table: Any, name: str, column: Any) -> Any:
    return table.set_column(table.column_names.index(name), name, column)


def _parse_times(texts: Any) -> Any:
    """Parse ISO 8601 texts as timestamps. Raises LogError for an invalid one."""
    try:
        return pc.cast(texts, pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid as error:
        raise LogError(f"a match's start is not a valid time: {' '.join(str(error).split())[:200]}") from None


def _seat_keys(table: Any) -> Any:
    """Return each row's match and seat as one text key, joined by a control character that no id contains."""
    return pc.binary_join_element_wise(table["match"], table["seat"], "\x00")


def _turn_keys(match: Any, turn: Any, ids: Any) -> Any:
    """Return each row's match and turn as one integer key, null if the match is not in `ids`."""
    match_number = pc.cast(pc.index_in(match, value_set=ids), pa.int64())
    return pc.add(pc.multiply(match_number, 2**16), pc.cast(turn, pa.int64()))


def _sum_values(lists: Any) -> Any:
    values = pc.struct_field(pc.list_flatten(lists), "value").to_numpy()
    return pa.array(np.bincount(pc.list_parent_indices(lists).to_numpy(), values, len(lists)))


def _positions(lists: Any) -> Any:
    """Return the position of each item within its list, from 0, as one flat array."""
    sizes = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    starts = np.cumsum(sizes) - sizes
    return pa.array((np.arange(sizes.sum()) - np.repeat(starts, sizes)).astype(np.int32))
