"""Matches and turns as flat rows, a column for each seat, reward and figure of the games."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from arena.export.selection import Row, Selection
from arena.store.reader import RunReader

_TEXTS = ("match", "game", "options", "status", "reason", "parent", "stage", "source", "started")
_COUNTS = ("iteration", "deal", "group", "attempt", "turns")
MATCH: tuple[str, ...] = (
    "match",
    "iteration",
    "deal",
    "group",
    "attempt",
    "parent",
    "stage",
    "source",
    "game",
    "options",
    "seed",
)
MATCH += ("status", "reason", "started", "seconds", "turns")
TURN: tuple[str, ...] = (
    "match",
    "iteration",
    "turn",
    "game",
    "seat",
    "role",
    "policy",
    "version",
    "saw",
    "raw",
    "public",
    "private",
)
TURN += ("action", "valid", "finish", "tokens", "seconds", "situation", "source", "reward", "return", "advantage")
_KINDS = {
    "seed": pa.uint64(),
    "valid": pa.bool_(),
    **dict.fromkeys((*_COUNTS, "turn", "version", "tokens"), pa.int64()),
}
_KINDS |= dict.fromkeys(("seconds", "reward", "return", "advantage"), pa.float64())


def matches(reader: RunReader, selection: Selection) -> tuple[Any, Iterator[list[Row]]]:
    """Schema and rows: failed matches too, `payoff.SEAT`, `role.SEAT`, `policy.SEAT`, `version.SEAT`, `report.NAME`."""
    seats, reports = dict[str, None](), dict[str, set[str]]()
    for iteration in selection.of(reader):
        for row in iteration.matches:
            seats |= dict.fromkeys(row["seats"])
            for name, value in row["report"].items():
                reports.setdefault(name, set()).add(type(value).__name__)
    fields = [(name, _KINDS.get(name, pa.string())) for name in MATCH]
    fields += [(f"payoff.{seat}", pa.float64()) for seat in seats]
    fields += [(f"{what}.{seat}", pa.string()) for seat in seats for what in ("role", "policy")]
    fields += [(f"version.{seat}", pa.int64()) for seat in seats]
    fields += [(f"report.{name}", _kind(types)) for name, types in reports.items()]
    schema = pa.schema(fields)
    texts = {name for name, types in reports.items() if pa.types.is_string(_kind(types))}

    def rows() -> Iterator[list[Row]]:
        for iteration in selection.of(reader):
            yield [_match(row, texts) for row in iteration.matches]

    return schema, rows()


def turns(reader: RunReader, selection: Selection) -> tuple[Any, Iterator[list[Row]]]:
    """Schema and rows of the chosen seats' turns, `reward.NAME` for each named reward."""
    named = dict[str, None]()
    for iteration in selection.of(reader):
        for row in iteration.matches:
            named |= dict.fromkeys(name for turn in row["turns"] for name in turn["rewards"])
    fields = [(name, _KINDS.get(name, pa.string())) for name in TURN]
    schema = pa.schema([*fields, *((f"reward.{name}", pa.float64()) for name in named)])

    def rows() -> Iterator[list[Row]]:
        for iteration in selection.of(reader):
            found = []
            for row in iteration.matches:
                returns = iteration.returns(row)
                for turn in filter(selection.has, row["turns"]):
                    credit = iteration.credit.get((row["id"], turn["index"]))
                    known = {"reward": iteration.earned(row, turn), "return": returns[turn["index"]]}
                    found.append(_turn(row, turn) | known | {"advantage": credit.advantage if credit else None})
            yield found

    return schema, rows()


def _match(row: Row, texts: Iterable[str]) -> Row:
    flat = {name: row.get(name) for name in MATCH} | {"match": row["id"], "turns": len(row["turns"])}
    flat["options"] = json.dumps(row["options"])
    flat |= {f"payoff.{seat}": value for seat, value in row["payoffs"].items()}
    for seat, held in row["seats"].items():
        flat |= {f"{what}.{seat}": held[what] for what in ("role", "policy", "version")}
    return flat | {f"report.{n}": str(v) if n in texts else v for n, v in row["report"].items()}


def _turn(row: Row, turn: Row) -> Row:
    saw = "\n".join(f"{message['sender']}: {message['text']}" for message in turn["messages"])
    flat = {"source": "policy", **{name: turn[name] for name in TURN if name in turn}}
    flat |= {"match": row["id"], "iteration": row["iteration"], "game": row["game"], "turn": turn["index"], "saw": saw}
    return flat | {f"reward.{name}": value for name, value in turn["rewards"].items()}


def _kind(types: set[str]) -> Any:
    """The type of a column that holds values of these: text where they have none in common."""
    if types == {"bool"}:
        return pa.bool_()
    return pa.float64() if types <= {"int", "float"} else pa.string()
