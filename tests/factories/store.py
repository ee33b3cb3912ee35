"""Minimal records and checkpoints for tests of the store."""

import json
from pathlib import Path

from agents.stream import Stream
from arena.records import MatchRecord
from games.contracts import MatchId
from tests.factories.records import make_match_record, make_turn

CONFIG = "game: negotiation\n"


def write_state(folder: Path) -> None:
    """Write a minimal checkpoint."""
    (folder / "state.json").write_text("{}")


def write_checkpoint(folder: Path, mark: str = "a") -> None:
    """Write a checkpoint of a few hundred bytes that repeat `mark`."""
    weights = folder / "policies" / "shared"
    weights.mkdir(parents=True)
    (weights / "model.safetensors").write_bytes(mark.encode() * 300)
    (weights / "config.json").write_text('{"hidden": 8}')
    (folder / "state.json").write_text(json.dumps({"mark": mark}))
    (folder / "empty.json").write_bytes(b"")


def make_record(iteration: int = 0, number: int = 0, text: str = "hi", **changes: object) -> MatchRecord:
    """Return a finished match of one turn, with changes."""
    turn = make_turn(0, {"deal": 4.0}, raw=text, public=text, action="WALK", tokens=5, seconds=0.1)
    fields: dict[str, object] = {
        "identity": MatchId(iteration, number),
        "game": "negotiation",
        "options": {"max_turns": 10},
        "seed": 2**63 + number,
        "payoffs": {"opener": 4.0},
        "report": {"deal": False, "end": "walk"},
        "turns": (turn,),
        "streams": {"opener": (Stream([1, 2], [False, True], [0.0, -0.5], [-1, 0]),)},
        "seconds": 1.5,
    }
    return make_match_record(**{**fields, **changes})
