"""The formats of `arena export --as`: each writes a run's chosen matches into an empty folder."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from arena.errors import StoreError
from arena.export import inspect_log, pairs, tables
from arena.export.chats import CHATS, Chats
from arena.export.pairs import PAIRS
from arena.export.selection import Row, Selection
from arena.export.training import write_templates
from arena.export.writers import Csv, JsonLines, Parquet, Writer
from arena.store.files import write_atomic
from arena.store.reader import RunReader

Format = Literal["csv", "parquet", "chats", "pairs", "datasets", "inspect"]
NAMES: tuple[str, ...] = get_args(Format)
Counts = dict[str, int]
"""Rows that were written, by what they are."""


@dataclass
class Export:
    """A run, a choice of its matches, and notes for the user on what was written."""

    reader: RunReader
    selection: Selection
    trust: bool = False
    notes: list[str] = field(default_factory=list)

    @cached_property
    def chats(self) -> Chats:
        """The run's chats, which need its experiment."""
        return Chats(self.reader, self.selection, self.trust)

    def table(self, name: str) -> tuple[Any, Iterator[list[Row]]]:
        """Schema and rows of matches, turns, chats or pairs."""
        if name in ("matches", "turns"):
            return (tables.matches if name == "matches" else tables.turns)(self.reader, self.selection)
        return (CHATS, self.chats.rows()) if name == "chats" else (PAIRS, pairs.rows(self.chats))


def write(export: Export, name: str, to: Path) -> Counts:
    """Write the format of this name; StoreError where nothing is left of what was chosen."""
    counts = _FORMATS[name](export, to)
    export.selection.check_met()
    left_out = export.chats.left_out if "chats" in vars(export) else {}
    if left_out:
        why, count = max(left_out.items(), key=lambda item: item[1])
        export.notes.append(f"{sum(left_out.values())} matches were left out, {count} of them because {why}")
    if not any(counts.values()):
        raise StoreError(_nothing(export, name))
    if counts.get("chats"):
        export.notes += write_templates(export.chats, to)
    return counts


def _nothing(export: Export, name: str) -> str:
    why = f" ({export.notes[-1]})" if export.notes else ""
    if name == "pairs":
        return (
            f"{export.reader.path} has no two replies to one prompt that came to different returns{why}: pairs come of "
            "play.group or play.branch"
        )
    return f"{export.reader.path} has nothing of what was chosen{why}"


def _files(writer: Writer, *names: str) -> Callable[[Export, Path], Counts]:
    """A format of one file for each of these tables."""

    def made(export: Export, to: Path) -> Counts:
        return {name: writer(to / f"{name}.{writer.suffix}", *export.table(name)) for name in names}

    return made


def _csv(export: Export, to: Path) -> Counts:
    writer = Csv()
    counts = _files(writer, "matches", "turns")(export, to)
    if writer.formulas:
        cells = f"{writer.formulas} cells begin as a formula does (= + - @)"
        export.notes.append(f"{cells}, and a model may have written them: import columns as text, or use --as parquet")
    return counts


def _datasets(export: Export, to: Path) -> Counts:
    """A folder that `datasets.load_dataset(folder, "chats")` opens: Parquet, and a card that says what lies where."""
    counts = {}
    for name in ("chats", "pairs", "matches", "turns"):
        (to / name).mkdir()
        counts[name] = Parquet()(to / name / "train.parquet", *export.table(name))
        if not counts[name]:
            (to / name / "train.parquet").unlink()
            (to / name).rmdir()
    there = [name for name, count in counts.items() if count]
    configs = [
        {"config_name": name, "data_files": f"{name}/train.parquet", "default": name == there[0]} for name in there
    ]
    said = "\n".join(f"- {name}: {count} rows" for name, count in counts.items())
    write_atomic(
        to / "README.md", f"---\nconfigs: {json.dumps(configs)}\n---\nMatches of one run of Arena.\n\n{said}\n"
    )
    return counts


def _inspect(export: Export, to: Path) -> Counts:
    return {"samples": inspect_log.write(export.chats, to)}


_FORMATS: Mapping[str, Callable[[Export, Path], Counts]] = {
    "csv": _csv,
    "parquet": _files(Parquet(), "matches", "turns"),
    "chats": _files(JsonLines(), "chats"),
    "pairs": _files(JsonLines(), "pairs"),
    "datasets": _datasets,
    "inspect": _inspect,
}
