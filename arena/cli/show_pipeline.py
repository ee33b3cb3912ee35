"""Overview of a pipeline for `arena show`: its stages with their progress and latest metrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from arena.cli.live import format_row
from arena.cli.tables import show_line, show_table
from arena.config.sources import require_mapping, text_layer
from arena.errors import StoreError
from arena.store.contents import METRICS
from arena.store.files import CONFIG, STAGES
from arena.store.locks import is_in_use
from arena.store.reader import FolderReader, read_metrics
from arena.store.stages import DONE, find_begun_stages, read_done, stage_folder

HIDDEN = ("it", "match/s", "tok/s", "s")
"""Columns of a run's table that are left out, because they do not describe a stage as a whole."""


def list_stages(run: Path) -> list[dict[str, Any]]:
    """Return a row for each stage of a pipeline: name, kind, folder, state, iterations done and planned, metrics.

    Raises StoreError if the pipeline's config is damaged.
    """
    config = run / CONFIG
    stages = require_mapping(text_layer(str(config), FolderReader(run).config())).data.get(STAGES)
    try:
        return [_describe_stage(run, number, entry) for number, entry in enumerate(stages, start=1)]
    except (TypeError, KeyError, AttributeError, StopIteration):
        raise StoreError(f"{config} is not as it was written: restore it from a copy") from None


def show_pipeline(console: Console, run: Path) -> None:
    """Print a pipeline's stages with their progress and latest metrics."""
    rows = list_stages(run)
    cells = [format_row(row["metrics"], [row["metrics"]]) for row in rows]
    figures = [{name: text for name, text in row.items() if name not in HIDDEN} for row in cells]
    names = list(dict.fromkeys(name for row in figures for name, value in row.items() if value != "–"))
    table = [
        [row["stage"], row["kind"], _format_state(row), *(texts.get(name, "") for name in names)]
        for row, texts in zip(rows, figures, strict=True)
    ]
    show_table(console, ("stage", "kind", "state", *names), table)
    if runs := find_begun_stages(run):
        console.print()
        show_line(console, f"the newest run: arena show {runs[-1]}")


def _describe_stage(run: Path, number: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    name, kind = str(entry["name"]), next(key for key in entry if key not in ("name", "with"))
    folder = stage_folder(run, number, name)
    metrics, is_run = read_metrics(folder / METRICS), (folder / CONFIG).is_file()
    layer = require_mapping(text_layer(str(folder), FolderReader(folder).config())) if is_run else None
    return {
        "stage": name, "kind": kind, "folder": str(folder), "state": _find_state(folder),
        "iterations": metrics[-1]["iteration"] if metrics else 0, "planned": layer and layer.data.get("iterations"),
        "metrics": metrics[-1] if metrics else {},
    }  # fmt: skip


def _find_state(folder: Path) -> str:
    """Return the state of the stage in `folder`: done, running, stopped, to come (not started) or damaged."""
    try:
        if read_done(folder):
            return "done"
        return "running" if is_in_use(folder) else "stopped" if folder.exists() else "to come"
    except StoreError:
        return f"damaged {DONE}"


def _format_state(row: Mapping[str, Any]) -> str:
    """Return `running, 3 of 20 iterations`; the state alone before the first iteration."""
    total = f" of {row['planned']}" if row["planned"] else ""
    plural = "" if row["iterations"] == 1 and not total else "s"
    return f"{row['state']}, {row['iterations']}{total} iteration{plural}" if row["iterations"] else str(row["state"])
