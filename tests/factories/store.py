"""Minimal records and checkpoints for tests of the store."""

import json
from pathlib import Path

from agents.stream import Stream
from arena.records import MatchRecord, Seating, Turn
from games.contracts import MatchId

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
    turn = Turn(
        index=0,
        seat="opener",
        role="opener",
        policy="shared",
        version=1,
        messages=(),
        raw=text,
        public=text,
        private="",
        action="WALK",
        valid=True,
        rewards={"deal": 4.0},
        finish="stop",
        tokens=5,
        seconds=0.1,
    )
    fields: dict[str, object] = {
        "identity": MatchId(iteration, number),
        "game": "negotiation",
        "options": {"max_turns": 10},
        "seed": 2**63 + number,
        "seats": {"opener": Seating("opener", "shared", 1, True, "model")},
        "status": "finished",
        "reason": "",
        "payoffs": {"opener": 4.0},
        "report": {"deal": False, "end": "walk"},
        "turns": (turn,),
        "streams": {"opener": (Stream([1, 2], [False, True], [0.0, -0.5], [-1, 0]),)},
        "started": "2026-01-01T00:00:00+00:00",
        "seconds": 1.5,
    }
    return MatchRecord(**{**fields, **changes})  # type: ignore[arg-type]
