"""One match for the viewer: deal, seats, and every turn with observation, thought, speech, reward and credit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from analysis.view.index import Index
from analysis.view.json_values import MAX_CHARACTERS, truncate
from analysis.view.metric_names import name_figure
from analysis.view.services import DealFacts, Facts, FindMarks
from arena.errors import StoreError
from arena.plain import printable
from arena.store.feed import PLAYING
from arena.store.reader import parse_iteration
from arena.store.schema import UNREAD

MAX_TURNS, MAX_FACTS = 2000, 60
"""Maximum number of turns of a match, and of facts of a deal or figures of a report."""


def find_row(index: Index, id: str, streams: bool = False) -> dict[str, Any]:
    """Return a match's row from the log, or from the turn feed while it is played. Raises StoreError for an unknown id.

    Rows of sealed iterations lack their tokens unless `streams` is True.
    """
    number = parse_iteration(id)
    if number is not None and number in index.iterations():
        if (row := index.find_open_match(number, id)) is not None:
            return row
        for row in index.reader.log.read(number, streams, [id]):
            return row
    if (row := index.find_playing(id)) is not None:
        return row
    index.refresh()
    raise StoreError(f"this run has no match '{printable(id)[:64]}'")


def describe_match(
    index: Index,
    id: str,
    deal_facts: DealFacts | None,
    max_characters: int = MAX_CHARACTERS,
    max_turns: int = MAX_TURNS,
    find_marks: FindMarks | None = None,
) -> dict[str, Any]:
    """Return everything that the page shows of a match except its tokens, as JSON values, with long texts truncated.

    `find_marks` finds the boxes in images that acts name; each turn has its boxes as `marks`. At most `max_turns` turns
    are returned; `left_out` counts the others. Raises StoreError for an unknown id.
    """
    row, shorten = find_row(index, id), partial(truncate, max_characters=max_characters)
    credit_rows = index.reader.log.credit_table(row["iteration"], ids=[id]).to_pylist()
    credit = {credit_row["turn"]: credit_row for credit_row in credit_rows}
    turns = [_make_turn(turn, credit.get(turn["index"], {}), shorten) for turn in row["turns"][:max_turns]]
    _add_returns(turns)
    if find_marks:
        _add_marks(turns, row, find_marks)
    return {
        **{name: row[name] for name in ("id", "iteration", "game", "status", "started", "seconds", "rules")},
        "reason": shorten(row["reason"]),
        "seed": str(row["seed"]),
        "options": {str(name): shorten(str(value)) for name, value in [*row["options"].items()][:MAX_FACTS]},
        **{name: row.get(name) for name in ("parent", "parent_turn", "group", "stage", "source")},
        "seats": [
            {"seat": seat, **player, "payoff": row["payoffs"].get(seat)} for seat, player in row["seats"].items()
        ],
        "report": [
            (name, name_figure(name).words, shorten(value) if isinstance(value, str) else value)
            for name, value in [*row["report"].items()][:MAX_FACTS]
        ],
        "deal": _describe_deal(row, deal_facts, shorten),
        "turns": turns,
        "left_out": max(0, len(row["turns"]) - max_turns),
        "open": not index.is_sealed(row["iteration"]),
        "playing": row["status"] == PLAYING,
        "scale": index.find_scale(),
    }  # fmt: skip


def list_family(index: Index, id: str) -> list[dict[str, Any]]:
    """Return short rows of all matches in the match's tree of branches: the oldest ancestor and its descendants."""
    table = index.table().select(["match", "parent", "parent_turn", "source", "status", "turns", "paid"])
    ancestors: list[dict[str, Any]] = table.filter(pc.equal(table["match"], id)).to_pylist()
    while ancestors and ancestors[-1]["parent"]:
        parents = table.filter(pc.equal(table["match"], ancestors[-1]["parent"])).to_pylist()
        if not parents or len(ancestors) > 100:
            break
        ancestors += parents
    family, newest = ancestors[-1:], [branch["match"] for branch in ancestors[-1:]]
    while newest and len(family) < MAX_TURNS:
        children = table.filter(pc.is_in(table["parent"], value_set=pa.array(newest, pa.string()))).to_pylist()
        newest = [branch["match"] for branch in children]
        family += children
    return family


def _make_turn(turn: Mapping[str, Any], credit: Mapping[str, Any], shorten: Any) -> dict[str, Any]:
    copied = ("index", "seat", "role", "policy", "version", "valid", "finish", "tokens", "seconds")
    return {
        **{name: turn[name] for name in copied},
        "source": turn.get("source", "policy"),
        "situation": shorten(turn.get("situation", "")),
        "messages": [_make_message(message, shorten) for message in turn["messages"]],
        **{name: shorten(turn[name]) for name in ("private", "public", "action", "raw")},
        "rewards": dict(turn["rewards"]),
        "reward": credit.get("reward", sum(turn["rewards"].values())),
        "advantage": credit.get("advantage"),
    }


def _make_message(message: Mapping[str, Any], shorten: Any) -> dict[str, Any]:
    text = message["text"]
    images = [
        {**{name: image[name] for name in ("hash", "width", "height")}, "place": utf16_length(text[: image["place"]])}
        for image in message.get("images") or ()
    ]
    return {"sender": message["sender"], "text": shorten(text), "images": images}


def utf16_length(text: str) -> int:
    """Return the length of a text as JavaScript counts it."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _add_marks(turns: Sequence[dict[str, Any]], row: Mapping[str, Any], find_marks: FindMarks) -> None:
    """Add `marks` to every turn: the images in which its act names boxes, with the image's size and the boxes."""
    sizes = {
        image["hash"]: (image["width"], image["height"])
        for turn in row["turns"]
        for message in turn["messages"]
        for image in message.get("images") or ()
    }
    if not sizes:
        return
    acts = [turn["index"] for turn in row["turns"] if turn.get("source") not in UNREAD]
    marks_by_act = find_marks(row["game"], json.dumps(row["options"]), row["seed"], _list_acts(row))
    marks = dict(zip(acts, marks_by_act, strict=False))
    for turn in turns:
        boxes_by_image: dict[str, list[list[float]]] = {}
        for name, *box in marks.get(turn["index"], ()):
            if name in sizes and all(map(isfinite, box)):
                width, height = sizes[name]
                edges = zip(box, (width, height, width, height), strict=True)
                boxes_by_image.setdefault(name, []).append([min(max(value, 0), size) for value, size in edges])
        turn["marks"] = [
            {"hash": name, "width": sizes[name][0], "height": sizes[name][1], "boxes": boxes}
            for name, boxes in boxes_by_image.items()
        ]


def _list_acts(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(turn["seat"], turn["action"]) for turn in row["turns"] if turn.get("source") not in UNREAD]


def _add_returns(turns: Sequence[dict[str, Any]]) -> None:
    """Add `return` to every turn: the undiscounted sum of its seat's rewards from this turn on."""
    returns: dict[str, float] = {}
    for turn in reversed(turns):
        returns[turn["seat"]] = turn["return"] = returns.get(turn["seat"], 0.0) + turn["reward"]


def _describe_deal(
    row: Mapping[str, Any], deal_facts: DealFacts | None, shorten: Any
) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Return the deal as [(seat, [(fact, value)])] with long values cut; [] if the game is not available."""
    facts_by_seat = (
        deal_facts(row["game"], json.dumps(row["options"]), row["seed"], _list_acts(row)) if deal_facts else {}
    )
    return [
        (seat or "all know", [(name, shorten(value)) for name, value in facts[:MAX_FACTS]])
        for seat, facts in format_facts(facts_by_seat)
    ]


def format_facts(facts_by_seat: Mapping[str, Facts]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield a deal's facts as texts, (seat, [(fact, value), …]), for seats with facts. The seat "" means all seats.

    >>> list(format_facts({"": {"items": ["hat"], "in_pool": [2]}, "opener": {}}))
    [('', [('in pool', 'hat 2')])]
    """
    items = facts_by_seat.get("", {}).get("items", ())
    for seat, facts in facts_by_seat.items():
        if texts := [(name.replace("_", " "), _format_fact(v, items)) for name, v in facts.items() if name != "items"]:
            yield seat, texts


def _format_fact(value: Any, items: Sequence[str]) -> str:
    """Format a fact's value as one line. A list with one integer per item of `items` becomes `hat 2, ball 1`."""
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {_format_fact(inner, items)}" for key, inner in value.items())
    if not isinstance(value, Sequence) or isinstance(value, str):
        return str(value)
    if len(value) == len(items) and all(isinstance(inner, int) for inner in value):
        return ", ".join(f"{item} {count}" for item, count in zip(items, value, strict=True))
    return ", ".join(
        f"({_format_fact(inner, ())})" if isinstance(inner, list | tuple) else str(inner) for inner in value
    )
