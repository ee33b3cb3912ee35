"""`arena export`: write a policy's weights, or a run's matches, for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from arena.cli.console import note
from arena.cli.contenders import Json, Trust
from arena.errors import ConfigError

To = Annotated[Path, typer.Option(help="A folder that does not exist yet.", show_default=False)]


def export(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/latest.", show_default=False)],
    to: To,
    as_: Annotated[
        str, typer.Option("--as", help="weights, or matches as csv, parquet, chats, texts, pairs or inspect.")
    ] = "weights",
    policy: Annotated[
        list[str] | None, typer.Option(help="Policy to export, for weights by default shared; repeatable.")
    ] = None,
    role: Annotated[list[str] | None, typer.Option(help="Only turns and chats of this role; repeatable.")] = None,
    iteration: Annotated[
        list[int] | None, typer.Option(help="Only this iteration; for weights, of an older checkpoint; repeatable.")
    ] = None,
    match: Annotated[list[str] | None, typer.Option(help="Only the match with this id; repeatable.")] = None,
    merged: Annotated[bool, typer.Option("--merged", help="Merge an adapter into its base model.")] = False,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Export a policy's weights, or a run's matches (docs/export.md).

    Weights are a folder that transformers and vLLM load; adapters are in peft's format, or merged with --merged.
    Matches are tables of matches and turns, chats for imitation, preference pairs, or logs for Inspect's viewer.

    Example: arena export runs/latest --as chats --role opener --iteration 12 --to chats
    """
    if as_ == "weights":
        if role or match:
            raise ConfigError(f"--{'role' if role else 'match'} chooses among matches: leave it out, or give --as")
        data, line = _export_weights(run, to, policy or ["shared"], iteration or [], merged)
    else:
        if merged:
            raise ConfigError(f"--merged is for weights: leave it out with --as {as_}")
        selected = {"iterations": iteration, "matches": match, "policies": policy, "roles": role}
        filters = {name: tuple(values or ()) for name, values in selected.items()}
        data, line = _export_matches(run, to, as_, filters, trust)
    print(json.dumps(data) if as_json else f"{to}: {line}")


def _export_weights(
    run: Path, to: Path, policies: list[str], iterations: list[int], merged: bool
) -> tuple[dict[str, object], str]:
    """Write a policy's weights. Return the result as JSON data and as a line of text."""
    from arena.export.training import mark_replies
    from arena.store.export import copy_without_optimizer
    from arena.store.export import export as write

    if len(policies) > 1 or len(iterations) > 1:
        raise ConfigError("weights are of one policy after one iteration: give --policy and --iteration once")
    if merged:
        from agents.adapter import save_merged
    notes: list[str] = []

    def write_weights(policy: Path, target: Path) -> None:
        (save_merged if merged else copy_without_optimizer)(policy, target)
        notes.extend(mark_replies(target))

    number = write(run, policies[0], to, iterations[0] if iterations else None, write_weights)
    for line in notes:
        note(line)
    return {"folder": str(to), "iteration": number}, f"{policies[0]} after iteration {number}"


def _export_matches(
    run: Path, to: Path, name: str, filters: dict[str, tuple[object, ...]], trust: bool
) -> tuple[dict[str, object], str]:
    """Write the matches that pass the filters in the format `name`. Return the result as JSON data and as text."""
    from arena.export.formats import FORMATS, export_matches
    from arena.export.selection import Selection
    from arena.store.contents import check_newest
    from arena.store.export import new_folder
    from arena.store.reader import RunReader
    from games.names import nearest

    if name not in FORMATS:
        known = ("weights", *FORMATS)
        raise ConfigError(
            f"--as {name[:64]}: there is no such format{nearest(name, known)} (one of: {', '.join(known)})"
        )
    reader = RunReader(run)
    check_newest(reader.path, note)
    with new_folder(to) as folder:
        folder.mkdir(parents=True)
        counts, notes = export_matches(reader, Selection(**filters), name, folder, trust)  # type: ignore[arg-type]
    for line in notes:
        note(line)
    return {"folder": str(to), "rows": counts}, ", ".join(f"{count} {table}" for table, count in counts.items())
