"""Questions about tables: a statistic (measure) of the rows that meet up to two conditions.

Each exists in words, SQL, Python and pandas. Kinds of conditions: filter (a value or a bound), since (a date), join (an
attribute in the side table) and nested (a bound that is itself a mean). Kinds of measures: aggregate (count, sum, mean,
min, max), group (the group with the largest sum), trend (the month or year with the largest sum) and correlation. The
depth is 1 + the number of conditions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd

from simulators.data_analysis.tables import Data, Value, to_literal

Element = TypeVar("Element")
NUMBER = re.compile(r"[+-]?(?=\.?\d)(\d{1,3}(,\d{3})+|\d*)(\.\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
"""Pattern of an answer that is a number, with or without commas between thousands."""
TOLERANCE = 0.01
"""Maximum error of a right number, so that two decimals are enough."""
MIN_ROWS = {False: 5, True: 2}
"""Minimum number of rows that meet the conditions, by `terse`."""
MARGIN = 0.05
"""Minimum lead of the largest sum over the second largest, so that rounding does not decide the answer."""


@dataclass(frozen=True)
class Condition:
    """Condition on rows: its kind, words, and code."""

    kind: str
    words: str
    short: str
    """Short form for tiny models."""
    sql: str
    """SQL expression."""
    python: str
    """Python expression; `r` is the row."""
    mask: Callable[[pd.DataFrame], pd.Series]
    """Function that returns the mask of a joined frame's rows that meet the condition."""


@dataclass(frozen=True)
class Measure:
    """Measure of rows: its kind, words, and code."""

    kind: str
    words: str
    """Question without the conditions and the question mark."""
    short: str
    """Short form for tiny models."""
    sql: tuple[str, str]
    """SQL select list, and clauses after the conditions; ("", "") if SQLite has no function for the measure."""
    python: str
    """Python expression over `rows`."""
    value: Callable[[pd.DataFrame], Value | None]
    """Function that returns the right answer for a frame; None if it is undefined or nearly tied."""


class Code(NamedTuple):
    """SQL and Python code that answers a question."""

    sql: str
    """SQL statement; "" if SQLite has no function for the measure."""
    python: str
    """Python code, in which each table is a list of dicts under its name."""


@dataclass(frozen=True)
class Question:
    """Question with its right answer and the code that computes it."""

    words: str
    short: str
    """Short form for tiny models."""
    kinds: tuple[str, ...]
    """Kinds of the conditions and of the measure."""
    answer: Value
    code: Code
    """Code that computes the answer."""
    wrong_code: Code
    """Code without the last condition or, if there is no condition, with another measure."""

    @property
    def depth(self) -> int:
        """Number of composed operations."""
        return len(self.kinds)

    def is_right(self, text: str) -> bool:
        """Return True for the right answer: a number within `TOLERANCE`, or the same text, ignoring case."""
        text = text.strip().rstrip(".").strip("\"'`").rstrip(".").strip()
        if isinstance(self.answer, str):
            return text.casefold() == self.answer.casefold()
        if not NUMBER.fullmatch(text):
            return False
        return abs(float(text.replace(",", "")) - self.answer) <= TOLERANCE + 1e-9


def draw_question(
    data: Data, frame: pd.DataFrame, rng: np.random.Generator, depth: int, terse: bool
) -> Question | None:
    """Draw a question of this depth about the tables, whose joined frame is `frame`.

    Returns None if its answer is undefined, or if one of its conditions does not change the answer.
    """
    measures = list(_draw_measures(data, rng, terse))
    measure = _pick(rng, measures)
    others = [other for other in measures if other.short != measure.short]
    conditions: list[Condition] = []
    for _ in range(depth - 1):
        kinds = {condition.kind for condition in conditions}
        conditions.append(_pick(rng, [new for new in _draw_conditions(data, frame, rng) if new.kind not in kinds]))
    masks = [condition.mask(frame) for condition in conditions]
    rows = _select_rows(frame, masks)
    answer = measure.value(rows) if len(rows) >= MIN_ROWS[terse] else None
    if answer is None:
        return None
    for index in range(len(masks)):  # each condition must change the answer
        if _is_close(answer, measure.value(_select_rows(frame, masks[:index] + masks[index + 1 :]))):
            return None
    where = " and ".join(condition.words for condition in conditions)
    return Question(
        words=f"{measure.words}{', counting only rows ' * bool(where)}{where}?",
        short=" ".join([measure.short, *(condition.short for condition in conditions)]),
        kinds=(*(condition.kind for condition in conditions), measure.kind),
        answer=answer,
        code=_write_code(data, measure, conditions),
        wrong_code=_write_code(data, measure if conditions else _pick(rng, others), conditions[:-1]),
    )


def _select_rows(frame: pd.DataFrame, masks: list[pd.Series]) -> pd.DataFrame:
    """Return the rows that meet all masks."""
    for mask in masks:
        frame = frame[mask.loc[frame.index]]
    return frame


def _is_close(answer: Value, other: Value | None) -> bool:
    if isinstance(answer, str) or isinstance(other, str) or other is None:
        return answer == other
    return abs(answer - other) <= 2 * TOLERANCE


def _write_code(data: Data, measure: Measure, conditions: list[Condition]) -> Code:
    """Write SQL and Python code that computes a measure of the rows that meet the conditions."""
    source, look_up = data.main.name, ""
    if data.side is not None and any(condition.kind == "join" for condition in conditions):
        key, column = data.side.columns
        source = f"{source} join {data.side.name} using({key})"
        look_up = f"of = {{s[{key!r}]: s[{column!r}] for s in {data.side.name}}}\n"
    select, rest = measure.sql
    where = " and ".join(condition.sql for condition in conditions)
    parts = [f"select {select} from {source}", f"where {where}" * bool(where), rest]
    tests = " and ".join(condition.python for condition in conditions) or "True"
    return Code(
        sql=" ".join(part for part in parts if part) if select else "",
        python=f"{look_up}rows = [r for r in {data.main.name} if {tests}]\nprint({measure.python})",
    )


def join_tables(data: Data) -> pd.DataFrame:
    """Return the main table joined with the side table's attribute, as a frame."""
    columns: dict[str, list[Value]] = {name: data.main.values(name) for name in data.main.columns}
    if data.side is not None:
        key, name = data.side.columns
        attribute = dict(zip(data.side.values(key), data.side.values(name), strict=True))
        columns[name] = [attribute[value] for value in columns[key]]
    return pd.DataFrame(columns)


def _draw_conditions(data: Data, frame: pd.DataFrame, rng: np.random.Generator) -> Iterator[Condition]:
    """Yield a random condition of each kind that the tables allow."""
    if rng.random() < 0.5:
        yield _draw_equality(_pick(rng, list(data.groups)), frame, rng)
    else:
        yield _draw_bound(_pick(rng, list(data.numbers)), data, rng)
    yield _make_mean_bound(_pick(rng, list(data.numbers)), data.main.name)
    if data.side is not None:
        yield _draw_join(data, frame, rng)
    if data.date:
        yield _make_date_bound(data, data.date)


def _draw_equality(column: str, frame: pd.DataFrame, rng: np.random.Generator) -> Condition:
    value = str(_pick(rng, sorted(set(frame[column]))))
    return Condition(
        "filter", f"with {column} {value}", f"{column}={value}",
        f"{column}={to_literal(value)}", f"r[{column!r}]=={value!r}", lambda frame: frame[column] == value,
    )  # fmt: skip


def _draw_bound(column: str, data: Data, rng: np.random.Generator) -> Condition:
    bound = _pick(rng, sorted(data.main.values(column))[1:-1])
    return Condition(
        "filter", f"with {column} above {bound}", f"{column}>{bound}", f"{column}>{bound}", f"r[{column!r}]>{bound}",
        lambda frame: frame[column] > bound,
    )  # fmt: skip


def _make_mean_bound(column: str, name: str) -> Condition:
    return Condition(
        "nested", f"with {column} above the mean {column} of all rows", f"{column}>mean",
        f"{column}>(select avg({column}) from {name})", f"r[{column!r}]*len({name})>sum(q[{column!r}] for q in {name})",
        lambda frame: frame[column] > frame[column].mean(),
    )  # fmt: skip


def _make_date_bound(data: Data, date: str) -> Condition:
    bound = sorted(data.main.values(date))[len(data.main.rows) // 3]
    return Condition(
        "since", f"with {date} {bound} or later", f"{date}>={bound}", f"{date}>={to_literal(bound)}",
        f"r[{date!r}]>={bound!r}", lambda frame: frame[date] >= bound,
    )  # fmt: skip


def _draw_join(data: Data, frame: pd.DataFrame, rng: np.random.Generator) -> Condition:
    assert data.side is not None
    key, column = data.side.columns
    value = str(_pick(rng, sorted(set(frame[column]))))
    return Condition(
        "join", f"whose {key} has the {column} {value} in {data.side.name}", f"{column}={value}",
        f"{column}={to_literal(value)}", f"of[r[{key!r}]]=={value!r}", lambda frame: frame[column] == value,
    )  # fmt: skip


def _draw_measures(data: Data, rng: np.random.Generator, terse: bool) -> Iterator[Measure]:
    """Yield a random measure of each kind that the tables allow, but two of kind aggregate."""
    number, group, name = _pick(rng, list(data.numbers)), _pick(rng, list(data.groups)), data.main.name
    for _ in range(2):
        yield _aggregate(str(_pick(rng, ["count", "sum", "min", "max"] + ["mean"] * (not terse))), number, name)
    yield Measure(
        "group", f"Which {group} has the largest total {number} in {name}", f"top {group} {number}",
        (group, f"group by {group} order by sum({number}) desc limit 1"), _write_largest(f"r[{group!r}]", number),
        lambda frame: _find_top(frame.groupby(group)[number].sum()),
    )  # fmt: skip
    if data.date:
        date = data.date
        period, python, sql = ("month", f"r[{date!r}][:7]", f"substr({date},1,7)")
        if date == "year":
            period, python, sql = "year", f"r[{date!r}]", date
        yield Measure(
            "trend", f"Which {period}{' (as 2024-01)' * (period == 'month')} has the largest total {number} in {name}",
            f"top {period} {number}", (sql, f"group by 1 order by sum({number}) desc limit 1"),
            _write_largest(python, number),
            lambda frame: _find_top(
                frame.groupby(frame[date] if date == "year" else frame[date].str[:7])[number].sum()
            ),
        )  # fmt: skip
    if not terse:
        one, two = (str(column) for column in rng.permutation(list(data.numbers))[:2])
        yield Measure(
            "correlation", f"What is the correlation (Pearson) of {one} and {two} in {name}", f"corr {one} {two}",
            ("", ""), f"__import__('statistics').correlation([r[{one!r}] for r in rows], [r[{two!r}] for r in rows])",
            lambda frame: _to_value(frame[one].corr(frame[two])),
        )  # fmt: skip


def _aggregate(function: str, number: str, name: str) -> Measure:
    column = f"[r[{number!r}] for r in rows]"
    sql, python = {
        "count": ("count(*)", "len(rows)"), "sum": (f"sum({number})", f"sum({column})"),
        "mean": (f"avg({number})", f"sum({column})/len(rows)"), "min": (f"min({number})", f"min({column})"),
        "max": (f"max({number})", f"max({column})"),
    }[function]  # fmt: skip
    words = {"count": f"How many rows are in {name}", "sum": f"What is the total {number} in {name}"}
    extreme = {"min": "smallest", "max": "largest"}.get(function, function)
    return Measure(
        "aggregate", words.get(function, f"What is the {extreme} {number} in {name}"),
        function if function == "count" else f"{function} {number}", (sql, ""), python,
        lambda frame: len(frame) if function == "count" else _to_value(frame[number].agg(function)),
    )  # fmt: skip


def _write_largest(key: str, number: str) -> str:
    """Return a Python expression for the key whose rows have the largest sum of `number`."""
    return f"max({{{key} for r in rows}}, key=lambda k: sum(r[{number!r}] for r in rows if {key} == k))"


def _find_top(sums: pd.Series) -> Value | None:
    """Return the label with the largest sum; None if it is the only label or leads by less than `MARGIN`."""
    ordered = sums.sort_values(ascending=False)
    if len(ordered) < 2 or ordered.iloc[0] - ordered.iloc[1] < MARGIN:
        return None
    label = ordered.index[0]
    return label if isinstance(label, str) else int(label)


def _to_value(value: float) -> Value | None:
    """Convert a number to a Python int or float. Returns None for NaN."""
    value = float(value)
    return None if math.isnan(value) else int(value) if value.is_integer() else value


def _pick(rng: np.random.Generator, elements: list[Element]) -> Element:
    return elements[int(rng.integers(len(elements)))]
