"""Matches and turns as flat tables, with separate columns for each seat, named reward and reported figure."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from arena.export.selection import Row, Selection
from arena.store.reader import RunReader

_MATCH_COLUMNS = (
    "match", "iteration", "deal", "group", "attempt", "parent", "stage", "source", "game", "options", "seed", "status",
    "reason", "started", "seconds", "turns",
)  # fmt: skip
_TURN_COLUMNS = (
    "match", "iteration", "turn", "game", "seat", "role", "policy", "version", "saw", "raw", "public", "private",
    "action", "valid", "finish", "tokens", "seconds", "situation", "source", "reward", "return", "advantage",
)  # fmt: skip
_TYPES = {
    "seed": pa.uint64(),
    "valid": pa.bool_(),
    **dict.fromkeys(["iteration", "deal", "group", "attempt", "turns", "turn", "version", "tokens"], pa.int64()),
    **dict.fromkeys(["seconds", "reward", "return", "advantage"], pa.float64()),
}
"""Arrow types of all columns that are not text."""
Table = tuple[Any, Iterator[list[Row]]]
"""(Arrow schema, one batch of rows per iteration)."""


def read_matches(reader: RunReader, selection: Selection) -> Table:
    """Return the table of matches, with a row per selected match, including failed ones.

    Besides `_MATCH_COLUMNS` it has the payoff, role, policy and version of each seat, such as `payoff.SEAT`, and a
    column `report.NAME` for each figure in a game's report. Reads the log twice: now for the columns, later for the
    rows.
    """
    seats, reports = dict[str, None](), dict[str, set[str]]()
    for iteration in selection.iterations_of(reader):
        for row in iteration.matches:
            seats |= dict.fromkeys(row["seats"])
            for name, value in row["report"].items():
                reports.setdefault(name, set()).add(type(value).__name__)
    kinds = {name: _find_common_type(types) for name, types in reports.items()}
    fields = [(name, _TYPES.get(name, pa.string())) for name in _MATCH_COLUMNS]
    fields += [(f"payoff.{seat}", pa.float64()) for seat in seats]
    fields += [(f"{column}.{seat}", pa.string()) for seat in seats for column in ("role", "policy")]
    fields += [(f"version.{seat}", pa.int64()) for seat in seats]
    fields += [(f"report.{name}", kind) for name, kind in kinds.items()]
    texts = {name for name, kind in kinds.items() if pa.types.is_string(kind)}
    rows = ([_flatten_match(row, texts) for row in iteration.matches] for iteration in selection.iterations_of(reader))
    return pa.schema(fields), rows


def read_turns(reader: RunReader, selection: Selection) -> Table:
    """Return the table of turns, with a row per turn of the selected policies and roles.

    Besides `_TURN_COLUMNS` it has a column `reward.NAME` for each named reward. Reads the log twice: now for the
    columns, later for the rows.
    """
    rewards = dict[str, None]()
    for iteration in selection.iterations_of(reader):
        for row in iteration.matches:
            rewards |= dict.fromkeys(name for turn in row["turns"] for name in turn["rewards"])
    fields = [(name, _TYPES.get(name, pa.string())) for name in _TURN_COLUMNS]
    schema = pa.schema([*fields, *((f"reward.{name}", pa.float64()) for name in rewards)])

    def rows() -> Iterator[list[Row]]:
        for iteration in selection.iterations_of(reader):
            batch = []
            for row in iteration.matches:
                returns = iteration.returns(row)
                for turn in filter(selection.has, row["turns"]):
                    credit = iteration.credit.get((row["id"], turn["index"]))
                    figures = {"reward": iteration.reward(row, turn), "return": returns[turn["index"]]}
                    batch.append(
                        _flatten_turn(row, turn) | figures | {"advantage": credit.advantage if credit else None}
                    )
            yield batch

    return schema, rows()


def _flatten_match(row: Row, texts: Iterable[str]) -> Row:
    flat = {name: row.get(name) for name in _MATCH_COLUMNS} | {"match": row["id"], "turns": len(row["turns"])}
    flat["options"] = json.dumps(row["options"])
    flat |= {f"payoff.{seat}": value for seat, value in row["payoffs"].items()}
    for seat, player in row["seats"].items():
        flat |= {f"{column}.{seat}": player[column] for column in ("role", "policy", "version")}
    return flat | {f"report.{n}": str(v) if n in texts else v for n, v in row["report"].items()}


def _flatten_turn(row: Row, turn: Row) -> Row:
    observation = "\n".join(f"{message['sender']}: {message['text']}" for message in turn["messages"])
    flat = {"source": "policy", **{name: turn[name] for name in _TURN_COLUMNS if name in turn}}
    flat |= {
        "match": row["id"],
        "iteration": row["iteration"],
        "game": row["game"],
        "turn": turn["index"],
        "saw": observation,
    }
    return flat | {f"reward.{name}": value for name, value in turn["rewards"].items()}


def _find_common_type(types: set[str]) -> Any:
    """Return the Arrow type for values of these Python types, given by name. Mixed types are text, except numbers."""
    if types == {"bool"}:
        return pa.bool_()
    return pa.float64() if types <= {"int", "float"} else pa.string()
