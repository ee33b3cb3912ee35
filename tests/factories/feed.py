"""Lines of a turn feed, as a run writes them."""

import json
from typing import Any

HEAD: dict[str, Any] = {
    "iteration": 1, "game": "negotiation", "options": {}, "seed": 2**63, "started": "2026-01-01",
    "seats": {"opener": {"role": "r", "policy": "p", "version": 1, "trained": True, "kind": "model"}},
}  # fmt: skip
TURN: dict[str, Any] = {
    "index": 0, "seat": "opener", "role": "r", "policy": "p", "version": 1, "messages": [], "raw": "hello",
    "public": "", "private": "", "action": "", "valid": True, "rewards": {"deal": 1}, "finish": "stop", "tokens": 1,
    "seconds": 0.5,
}  # fmt: skip


def make_lines(match: str, turns: int = 1, **more: Any) -> list[tuple[str, str]]:
    """Return a match's feed lines, each with the match id: its head and `turns` turns."""
    turn_rows = [{"match": match, "turn": TURN | {"index": k} | more} for k in range(turns)]
    return [(match, json.dumps(row)) for row in ({"match": match, "head": HEAD}, *turn_rows)]
