"""A run folder, finished or live, as three pandas frames."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from arena.store.reader import RunReader

MATCH_COLUMNS = (
    "id",
    "iteration",
    "game",
    "status",
    "reason",
    "attempt",
    "seed",
    "turns",
    "started",
    "seconds",
)
TURN_COLUMNS = (
    "match",
    "iteration",
    "index",
    "seat",
    "role",
    "policy",
    "version",
    "action",
    "public",
    "private",
    "raw",
    "valid",
    "reward",
    "advantage",
    "finish",
    "tokens",
    "seconds",
)
_OF_TURN = [name for name in TURN_COLUMNS if name not in ("match", "iteration", "reward", "advantage")]
_OF_MATCH = [name for name in MATCH_COLUMNS if name != "turns"]
_LOGGED = [*_OF_MATCH, "payoffs", "report", "turns.rewards", *(f"turns.{name}" for name in _OF_TURN)]


@dataclass(frozen=True)
class Run:
    """What a run did.

    `iterations`: a row per iteration, the metrics with nested names joined by dots. `matches`: a row per
    match, failed ones included, with `payoff.<seat>` and `report.<name>` (missing where it failed).
    `turns`: a row per turn with `reward.<name>` (0 where none arrived), `reward` (credit's weighted sum; the
    plain sum before credit) and `advantage` (NaN before credit, and in failed matches).
    """

    path: Path
    iterations: pd.DataFrame
    matches: pd.DataFrame
    turns: pd.DataFrame


def load(path: str | Path) -> Run:
    """The run at `path` as frames; StoreError, one line, when there is no run or its log is damaged."""
    reader = RunReader(path)
    log = reader.table(_LOGGED)
    return Run(
        path=reader.path,
        iterations=_from_rows([dict(_flat(row)) for row in reader.metrics()], "iteration"),
        matches=_matches(log),
        turns=_turns(log, reader.credit_table()),
    )


def _matches(log: Any) -> pd.DataFrame:
    frame = _frame({name: log[name] for name in _OF_MATCH} | {"turns": pc.list_value_length(log["turns"])})
    frame["started"] = pd.to_datetime(frame["started"], format="ISO8601", utc=True)
    if (frame["seed"] < 2**63).all():  # unsigned only where a seed needs it
        frame["seed"] = frame["seed"].astype("int64")
    payoffs = _named(log["payoffs"], "seat", float("nan")).add_prefix("payoff.")
    report = _from_rows(json.loads(f"[{','.join(log['report'].to_pylist())}]")).add_prefix("report.")
    ends = pd.concat([payoffs, report], axis="columns")
    in_order = sorted(ends, key=lambda name: int(ends[name].notna().to_numpy().argmax()))  # of the first that has it
    return pd.concat([frame[[*MATCH_COLUMNS]], ends[in_order]], axis="columns")


def _turns(log: Any, credit: Any) -> pd.DataFrame:
    turns, match = pc.list_flatten(log["turns"]), pc.list_parent_indices(log["turns"])
    of_match = {"match": log["id"].take(match), "iteration": log["iteration"].take(match)}
    frame = _frame(of_match | {name: pc.struct_field(turns, name) for name in _OF_TURN})
    rewards = pc.struct_field(turns, "rewards")
    place = ["match", "index"]
    credited = frame[place].merge(credit.to_pandas().rename(columns={"turn": "index"}), "left", place)
    frame["reward"] = credited["reward"].fillna(_sums(rewards))
    frame["advantage"] = credited["advantage"]
    return pd.concat([frame[[*TURN_COLUMNS]], _named(rewards, "name", 0.0).add_prefix("reward.")], axis="columns")


def _named(lists: Any, key: str, missing: float) -> pd.DataFrame:
    """A row for each list of named values, a column for each name in the order in which they first appear."""
    pairs, rows = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
    codes, names = pd.factorize(pc.struct_field(pairs, key).to_pandas())
    values = pc.struct_field(pairs, "value").to_numpy()
    columns = {name: np.full(len(lists), missing) for name in names}
    for code, column in enumerate(columns.values()):
        column[rows[codes == code]] = values[codes == code]
    return pd.DataFrame(columns, index=range(len(lists)))


def _sums(lists: Any) -> pd.Series[float]:
    values = pc.struct_field(pc.list_flatten(lists), "value")
    return pd.Series(np.bincount(pc.list_parent_indices(lists).to_numpy(), values.to_numpy(), len(lists)))


def _frame(cells: Mapping[str, Any]) -> pd.DataFrame:
    """Arrow's columns with the types that pandas gives to Python's values."""
    frame: pd.DataFrame = pa.table(cells).to_pandas()
    return frame.astype(dict.fromkeys(frame.select_dtypes(["int16", "int32"]), "int64"))


def _from_rows(rows: list[dict[str, Any]], *first: str) -> pd.DataFrame:
    """Rows with names of their own, `first` among them; truth values with gaps become pandas' nullable booleans."""
    frame = pd.DataFrame(rows, columns=[*dict.fromkeys([*first, *(name for row in rows for name in row)])])
    for name in frame.select_dtypes(include="object").columns:
        known = frame[name].dropna()
        if len(known) and known.map(lambda value: isinstance(value, bool)).all():
            frame[name] = frame[name].astype("boolean")
    return frame


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
