"""Sample matches of an iteration: a few, drawn by the run's seed, as texts that can be shown anywhere.

They hold what was done and said at the table, payoffs and the game's report. What a seat alone knew (its deal, its
thoughts, what it was shown) is left out.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow.compute as pc

from arena.parts.chance import generator
from arena.plain import printable, truncate_middle
from arena.store.reader import LogReader

COUNT = 4
LONGEST = 4000
"""Characters of a match's text."""
LINE = 500
"""Characters of a turn's."""


class SampleMatch(NamedTuple):
    """A match as a row of text, of bounded length and without control characters."""

    match: str
    game: str
    roles: str
    said: str
    payoffs: str
    outcome: str


def samples(log: LogReader, iteration: int, seed: int) -> list[SampleMatch]:
    """Up to `COUNT` of the iteration's finished matches, the same ones whenever they are asked for."""
    table = log.table(iteration, ["id", "status"])
    ids = table.filter(pc.equal(table["status"], "finished"))["id"].to_pylist()
    drawn = generator(seed, iteration, "samples").permutation(len(ids))[:COUNT].tolist()
    rows = log.read(iteration, streams=False, ids=[ids[place] for place in drawn]) if drawn else []
    return [sample_of(row) for row in rows]


def sample_of(row: Mapping[str, Any]) -> SampleMatch:
    """A match's row of the log as texts."""
    seats = (f"{seat}: {held['role']} ({held['policy']}@{held['version']})" for seat, held in row["seats"].items())
    said = "\n".join(_line(turn) for turn in row["turns"])
    report = (f"{name} {_short(value)}" for name, value in row["report"].items())
    return SampleMatch(
        match=row["id"],
        game=printable(row["game"]),
        roles=printable(", ".join(seats))[:LONGEST],
        said=truncate_middle(said, LONGEST),
        payoffs=printable(", ".join(f"{seat} {_short(value)}" for seat, value in row["payoffs"].items()))[:LONGEST],
        outcome=printable(", ".join([row["status"], *report]))[:LONGEST],
    )


def _line(turn: Mapping[str, Any]) -> str:
    act = printable(turn["action"][:LINE]) or "(nothing that the game could read)"
    return f"{printable(turn['seat'])}: {act}{'' if turn['valid'] else ' (not a legal act)'}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
