"""The formats of `arena export --as`: csv, parquet, chats, texts, pairs and inspect."""

from pathlib import Path

from arena.errors import StoreError
from arena.export import inspect_log, tables
from arena.export.chats import CHATS, TEXTS, WITH_TOOLS, Chats
from arena.export.pairs import PAIRS, list_pairs
from arena.export.selection import Selection
from arena.export.training import write_templates
from arena.export.writers import write_csv, write_json_lines, write_parquet
from arena.store.reader import RunReader

FORMATS = ("csv", "parquet", "chats", "texts", "pairs", "inspect")
ExportResult = tuple[dict[str, int], list[str]]
"""(number of rows by table or format name, notes for the user)."""


def export_matches(reader: RunReader, selection: Selection, name: str, to: Path, trust: bool = False) -> ExportResult:
    """Write the selected matches of a run into the empty folder `to`, in the format `name` (one of `FORMATS`).

    Returns the number of rows by table or format name, and notes for the user, such as how many matches were left out.
    `trust` allows code from the run's folder. Raises ConfigError if a selected policy or role does not occur or the
    experiment cannot be loaded, and StoreError if there is nothing to write.
    """
    if name in ("csv", "parquet"):
        counts, notes = _write_tables(reader, selection, name, to)
        selection.check_occurrence()
    else:
        counts, notes = _write_chats(Chats(reader, selection, trust, native=name == "chats"), name, to)
    if not any(counts.values()):
        reason = f" ({notes[-1]})" if notes else ""
        if name == "pairs":
            raise StoreError(
                f"{reader.path} has no two replies to one prompt with different returns{reason}: play.group or "
                "play.parts: [branches] produce such replies"
            )
        raise StoreError(f"{reader.path} has no matches of this selection{reason}")
    return counts, notes


def _write_tables(reader: RunReader, selection: Selection, name: str, to: Path) -> ExportResult:
    counts, formulas = {}, 0
    for table, make in (("matches", tables.read_matches), ("turns", tables.read_turns)):
        path, (schema, batches) = to / f"{table}.{name}", make(reader, selection)
        if name == "parquet":
            counts[table] = write_parquet(path, schema, batches)
        else:
            counts[table], count = write_csv(path, schema, batches)
            formulas += count
    if not formulas:
        return counts, []
    cells = f"{formulas} cells begin like a formula (= + - @)"
    return counts, [f"{cells}, and a model may have written them: import columns as text, or use --as parquet"]


def _write_chats(chats: Chats, name: str, to: Path) -> ExportResult:
    if name == "inspect":
        counts = {"samples": inspect_log.write(chats, to)}
    else:
        columns = WITH_TOOLS if chats.has_tools else CHATS
        schema, batches = {
            "chats": (columns, chats.rows()), "texts": (TEXTS, chats.texts()), "pairs": (PAIRS, list_pairs(chats))
        }[name]  # fmt: skip
        counts = {name: write_json_lines(to / f"{name}.jsonl", schema, batches)}
    chats.selection.check_occurrence()
    notes = []
    if chats.left_out:
        reason, count = max(chats.left_out.items(), key=lambda item: item[1])
        notes.append(f"{sum(chats.left_out.values())} matches were left out, {count} of them because {reason}")
    if counts.get("chats"):
        notes += write_templates(chats, to)
    return counts, notes
