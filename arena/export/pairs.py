"""Preference pairs: two replies to the same prompt, of which one came to more.

Replies are compared where one policy, of one version, read the very same messages at the same seat in one iteration:
at a turn that was branched, or in matches of one deal as long as they went alike. A reply's worth is what its seat
earned from that turn to the end of the match; a text that was given several times has the mean. The best text is
chosen, the worst rejected; where they came to the same there is no pair. What a branch repeats of its parent is not
counted again.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import NamedTuple

import pyarrow as pa
from pydantic_core import to_json

from arena.export.chats import MESSAGES, Chats, Said
from arena.export.selection import Row

PAIRS = pa.schema(
    [
        *((name, MESSAGES) for name in ("prompt", "chosen", "rejected")),
        *((name, pa.float64()) for name in ("chosen_return", "rejected_return")),
        *((name, pa.string()) for name in ("chosen_match", "rejected_match", "game", "seat", "role", "policy")),
        *((name, pa.int64()) for name in ("iteration", "version", "turn", "replies")),
    ]
)
ALIKE = 1e-9


class _Reply(NamedTuple):
    text: str
    worth: float
    first: Said


def rows(chats: Chats) -> Iterator[list[Row]]:
    """Rows of `PAIRS`, at most one for each prompt; `replies` is how many there were to it."""
    for number, said in chats.iterations():
        groups: dict[bytes, list[Said]] = {}
        for one in said:
            if one.turn["index"] >= one.row.get("parent_turn", -1):
                groups.setdefault(_place(one), []).append(one)
        yield [pair for group in groups.values() for pair in _pairs(group, number)]


def _place(one: Said) -> bytes:
    """A hash of all that two replies must share to be compared."""
    held = (one.row["game"], one.turn["seat"], one.turn["policy"], one.turn["version"])
    return sha256(to_json([*held, one.prompt], inf_nan_mode="null")).digest()


def _pairs(group: list[Said], iteration: int) -> Iterable[Row]:
    returns: dict[str, list[float]] = {}
    first: dict[str, Said] = {}
    for one in group:
        text = one.turn["raw"]
        returns.setdefault(text, []).append(one.worth)
        first.setdefault(text, one)
    replies = [_Reply(text, sum(values) / len(values), first[text]) for text, values in returns.items()]
    best, worst = max(replies, key=lambda reply: reply.worth), min(replies, key=lambda reply: reply.worth)
    if best.worth - worst.worth < ALIKE:
        return
    row, turn, prompt, _ = best.first
    yield {
        "prompt": prompt, "chosen": _spoken(best), "rejected": _spoken(worst),
        "chosen_return": best.worth, "rejected_return": worst.worth,
        "chosen_match": row["id"], "rejected_match": worst.first.row["id"], "replies": len(group),
        "iteration": iteration, "game": row["game"], "turn": turn["index"],
        **{name: turn[name] for name in ("seat", "role", "policy", "version")},
    }  # fmt: skip


def _spoken(reply: _Reply) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": reply.text}]
