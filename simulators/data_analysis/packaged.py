"""Parts of real tables from installed libraries: scikit-learn (extra `recommender`), statsmodels (extra `clinic`)."""

from __future__ import annotations

import csv
import importlib.util
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from simulators.data_analysis.tables import Data, Table, Value

PARTS = 5
"""Number of disjoint parts of a packaged table. Each part is a table for the split."""


class PackagedTable(NamedTuple):
    """Table in a library: its file, and its columns of groups, numbers and years."""

    library: str
    file: str
    group: str
    numbers: tuple[str, ...]
    date: str = ""


PACKAGED: Mapping[str, PackagedTable] = {
    "iris": PackagedTable(
        "sklearn", "datasets/data/iris.csv", "species", ("sepal_length", "sepal_width", "petal_length", "petal_width")
    ),
    "wine": PackagedTable(
        "sklearn", "datasets/data/wine_data.csv", "cultivar",
        ("alcohol", "malic_acid", "ash", "alcalinity", "magnesium", "phenols"),
    ),
    "grunfeld": PackagedTable(
        "statsmodels", "datasets/grunfeld/grunfeld.csv", "firm", ("invest", "value", "capital"), "year"
    ),
    "macrodata": PackagedTable(
        "statsmodels", "datasets/macrodata/macrodata.csv", "quarter", ("realgdp", "cpi", "unemp"), "year"
    ),
}  # fmt: skip


def list_identities() -> list[str]:
    """Return the identities of all parts of the installed packaged tables, such as `iris 0`."""
    return [f"{name} {part}" for name, _ in _find_installed() for part in range(PARTS)]


def load_part(identity: str) -> Data:
    """Load the part of a packaged table with this identity, such as `iris 0`. A part has every fifth row."""
    name, _, part = identity.partition(" ")
    packaged, path = PACKAGED[name], dict(_find_installed())[name]
    header, *lines = csv.reader(io.StringIO(path.read_text("utf-8")))
    lines = lines[int(part) :: PARTS]
    if packaged.library == "sklearn":  # the header holds counts, then the names of the classes, which come last
        table = Table(name, (packaged.group, *packaged.numbers), tuple(_read_sklearn(header[2:], packaged, lines)))
    else:
        columns = (packaged.group, *packaged.numbers, packaged.date)
        table = Table(name, columns, tuple(_read_statsmodels(header, packaged, lines)))
    return Data(table, (packaged.group,), packaged.numbers, packaged.date)


def _read_sklearn(labels: list[str], packaged: PackagedTable, lines: list[list[str]]) -> Iterator[tuple[Value, ...]]:
    for line in lines:
        yield (labels[int(line[-1])], *map(float, line[: len(packaged.numbers)]))


def _read_statsmodels(
    header: list[str], packaged: PackagedTable, lines: list[list[str]]
) -> Iterator[tuple[Value, ...]]:
    for line in lines:
        record = dict(zip(header, line, strict=True))
        group = record[packaged.group]
        label = f"Q{group}" if packaged.group == "quarter" else group
        yield (label, *(float(record[name]) for name in packaged.numbers), int(float(record[packaged.date])))


def _find_installed() -> Iterator[tuple[str, Path]]:
    """Yield the name and path of each packaged table whose library is installed, without importing the library."""
    for name, packaged in PACKAGED.items():
        found = importlib.util.find_spec(packaged.library)
        if found and found.origin and (path := Path(found.origin).parent / packaged.file).is_file():
            yield name, path
