"""One match for the page: the deal, seats, every turn with what was seen, thought, said, earned and credited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from analysis.page.matches import Dealt
from analysis.page.names import named
from analysis.view.index import Index
from analysis.view.plain import LONGEST, text
from arena.errors import StoreError
from arena.plain import printable
from arena.store.feed import PLAYING
from arena.store.reader import iteration_of
from arena.store.schema import UNREAD

MOST, FACTS = 2000, 60
"""Turns that are shown of a match at most, and facts of a deal or figures of a report."""


def row_of(index: Index, id: str, streams: bool = False) -> dict[str, Any]:
    """A match as the log has it; StoreError where there is none."""
    number = iteration_of(id)
    if number is not None and number in index.iterations():
        if (row := index.open_match(number, id)) is not None:
            return row
        for row in index.reader.log.read(number, streams, [id]):
            return row
    if (row := index.playing(id)) is not None:
        return row
    index.refresh()
    raise StoreError(f"this run has no match '{printable(id)[:64]}'")


def match(index: Index, id: str, dealt: Dealt | None, longest: int = LONGEST, most: int = MOST) -> dict[str, Any]:
    """All that the page shows of a match but its tokens: the first turns of very many, longer texts cut."""
    row, cut = row_of(index, id), partial(text, most=longest)
    credit = _credit(index, row)
    turns = [_turn(turn, credit.get(turn["index"], {}), cut) for turn in row["turns"][:most]]
    _returns(turns)
    return {
        **{name: row[name] for name in ("id", "iteration", "game", "status", "started", "seconds", "rules")},
        "reason": cut(row["reason"]),
        "seed": str(row["seed"]),
        "options": {str(name): cut(str(value)) for name, value in [*row["options"].items()][:FACTS]},
        **{name: row.get(name) for name in ("parent", "parent_turn", "group", "stage", "source")},
        "seats": [
            {"seat": seat, **held, "payoff": row["payoffs"].get(seat)} for seat, held in row["seats"].items()
        ],
        "report": [
            (name, named(name).words, cut(value) if isinstance(value, str) else value)
            for name, value in [*row["report"].items()][:FACTS]
        ],
        "deal": _deal(row, dealt, cut),
        "turns": turns,
        "left_out": max(0, len(row["turns"]) - most),
        "open": not index.sealed(row["iteration"]),
        "playing": row["status"] == PLAYING,
        "scale": index.strong(),
    }  # fmt: skip


def family(index: Index, id: str) -> list[dict[str, Any]]:
    """The match, all that it is a branch of, and all their branches, as short rows: a tree by `parent`."""
    table = index.table().select(["match", "parent", "parent_turn", "source", "status", "turns", "paid"])
    own: list[dict[str, Any]] = table.filter(pc.equal(table["match"], id)).to_pylist()
    while own and own[-1]["parent"]:
        above = table.filter(pc.equal(table["match"], own[-1]["parent"])).to_pylist()
        if not above or len(own) > 100:
            break
        own += above
    found, newest = own[-1:], [one["match"] for one in own[-1:]]
    while newest and len(found) < MOST:
        below = table.filter(pc.is_in(table["parent"], value_set=pa.array(newest, pa.string()))).to_pylist()
        newest = [one["match"] for one in below]
        found += below
    return found


def _credit(index: Index, row: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    table = index.reader.log.credit_table(row["iteration"], ids=[row["id"]])
    return {one["turn"]: one for one in table.to_pylist()}


def _turn(turn: Mapping[str, Any], credit: Mapping[str, Any], cut: Any) -> dict[str, Any]:
    plainly = ("index", "seat", "role", "policy", "version", "valid", "finish", "tokens", "seconds")
    return {
        **{name: turn[name] for name in plainly},
        "source": turn.get("source", "policy"),
        "situation": cut(turn.get("situation", "")),
        "messages": [_message(message, cut) for message in turn["messages"]],
        **{name: cut(turn[name]) for name in ("private", "public", "action", "raw")},
        "rewards": dict(turn["rewards"]),
        "reward": credit.get("reward", sum(turn["rewards"].values())),
        "advantage": credit.get("advantage"),
    }


def _message(message: Mapping[str, Any], cut: Any) -> dict[str, Any]:
    images = [{name: one[name] for name in ("hash", "width", "height")} for one in message.get("images") or ()]
    return {"sender": message["sender"], "text": cut(message["text"]), "images": images}


def _returns(turns: Sequence[dict[str, Any]]) -> None:
    """Give every turn its seat's rewards from there on, undiscounted."""
    coming: dict[str, float] = {}
    for turn in reversed(turns):
        coming[turn["seat"]] = turn["return"] = coming.get(turn["seat"], 0.0) + turn["reward"]


def _deal(row: Mapping[str, Any], dealt: Dealt | None, cut: Any) -> list[tuple[str, list[tuple[str, Any]]]]:
    """List what was dealt, as (who, [(fact, value)]); nothing where the game's rules are not at hand."""
    import json

    from analysis.page.matches import facts_in_lines

    acts = [(turn["seat"], turn["action"]) for turn in row["turns"] if turn.get("source") not in UNREAD]
    known = dealt(row["game"], json.dumps(row["options"]), row["seed"], acts) if dealt else {}
    return [
        (who or "all know", [(name, cut(value)) for name, value in facts[:FACTS]])
        for who, facts in facts_in_lines(known)
    ]
