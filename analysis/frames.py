"""A run folder, finished or live, as three pandas frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

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
    rows = list(reader.matches(streams=False))
    credit = {
        (row.match, row.turn): (row.reward, row.advantage)
        for iteration in reader.iterations()
        for row in reader.credit(iteration)
    }
    metrics = [dict(_flat(row)) for row in reader.metrics()]
    turns = [_turn(row, turn, credit) for row in rows for turn in row["turns"]]
    return Run(
        path=reader.path,
        iterations=_frame(metrics, ("iteration",)),
        matches=_dated(_frame([_match(row) for row in rows], MATCH_COLUMNS)),
        turns=_filled(_frame(turns, TURN_COLUMNS)),
    )


def _match(row: Mapping[str, Any]) -> dict[str, Any]:
    cells = {name: row[name] for name in MATCH_COLUMNS if name != "turns"}
    cells["turns"] = len(row["turns"])
    cells |= {f"payoff.{seat}": value for seat, value in row["payoffs"].items()}
    return cells | {f"report.{name}": value for name, value in row["report"].items()}


def _turn(
    row: Mapping[str, Any], turn: Mapping[str, Any], credit: Mapping[tuple[str, int], tuple[float, float]]
) -> dict[str, Any]:
    earned = {f"reward.{name}": value for name, value in turn["rewards"].items()}
    plain = (float(sum(turn["rewards"].values())), float("nan"))
    reward, advantage = credit.get((row["id"], turn["index"]), plain)
    known = {"match": row["id"], "iteration": row["iteration"], "reward": reward, "advantage": advantage}
    return {name: known[name] if name in known else turn[name] for name in TURN_COLUMNS} | earned


def _frame(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    """The rows with the named columns first; truth values with gaps become pandas' nullable booleans."""
    names = dict.fromkeys([*columns, *(name for row in rows for name in row)])
    frame = pd.DataFrame(rows, columns=list(names))
    for name in frame.select_dtypes(include="object").columns:
        known = frame[name].dropna()
        if len(known) and known.map(lambda value: isinstance(value, bool)).all():
            frame[name] = frame[name].astype("boolean")
    return frame


def _dated(matches: pd.DataFrame) -> pd.DataFrame:
    return matches.assign(started=pd.to_datetime(matches["started"], format="ISO8601", utc=True))


def _filled(turns: pd.DataFrame) -> pd.DataFrame:
    parts = [name for name in turns.columns if name.startswith("reward.")]
    return turns.assign(**{name: turns[name].astype("float64").fillna(0.0) for name in parts})


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
