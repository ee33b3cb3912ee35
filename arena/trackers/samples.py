"""Sample matches of an iteration as texts of limited length, for trackers.

A sample has the public acts, the payoffs and the game's report. Private facts, thoughts and observations are left out.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow.compute as pc

from arena.parts.chance import generator
from arena.plain import printable, truncate_middle
from arena.store.reader import LogReader

SAMPLES = 4
"""Maximum number of sample matches per iteration."""
MAX_MATCH = 4000
"""Maximum characters of each text of a match."""
MAX_TURN = 500
"""Maximum characters of an act."""


class SampleMatch(NamedTuple):
    """Finished match as a row of a tracker's table: texts without control characters."""

    match: str  # the match id
    game: str
    roles: str  # `seat: role (policy@version)`, joined by commas
    said: str  # a line per turn, `seat: act`
    payoffs: str
    outcome: str  # the status, then the figures that the game reported


def draw_samples(log: LogReader, iteration: int, seed: int) -> list[SampleMatch]:
    """Draw up to `SAMPLES` finished matches of an iteration at random. The same seed draws the same matches."""
    table = log.table(iteration, ["id", "status"])
    ids = table.filter(pc.equal(table["status"], "finished"))["id"].to_pylist()
    positions = generator(seed, iteration, "samples").permutation(len(ids))[:SAMPLES].tolist()
    rows = log.read(iteration, streams=False, ids=[ids[position] for position in positions]) if positions else []
    return [to_sample(row) for row in rows]


def to_sample(row: Mapping[str, Any]) -> SampleMatch:
    """Convert a match's log row to texts, which are truncated to `MAX_MATCH` characters, and acts to `MAX_TURN`."""
    seats = (
        f"{seat}: {player['role']} ({player['policy']}@{player['version']})" for seat, player in row["seats"].items()
    )
    report = (f"{name} {_format_value(value)}" for name, value in row["report"].items())
    return SampleMatch(
        match=row["id"],
        game=printable(row["game"]),
        roles=printable(", ".join(seats))[:MAX_MATCH],
        said=truncate_middle("\n".join(map(_format_turn, row["turns"])), MAX_MATCH),
        payoffs=printable(", ".join(f"{seat} {_format_value(value)}" for seat, value in row["payoffs"].items()))[
            :MAX_MATCH
        ],
        outcome=printable(", ".join([row["status"], *report]))[:MAX_MATCH],
    )


def _format_turn(turn: Mapping[str, Any]) -> str:
    act = printable(turn["action"][:MAX_TURN]) or "(no readable act)"
    return f"{printable(turn['seat'])}: {act}{'' if turn['valid'] else ' (not a legal act)'}"


def _format_value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
