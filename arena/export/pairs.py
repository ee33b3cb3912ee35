"""Preference pairs: two replies of one policy version to the same prompt, with different returns.

Replies share a prompt at a branched turn, or in matches of one deal up to the first difference. A reply is worth its
seat's return from that turn on; equal texts are merged and get the mean of their returns. The text with the highest
return is chosen, and that with the lowest rejected. Turns that a branch repeats from its parent count once.
"""

from collections.abc import Iterator
from hashlib import sha256
from statistics import fmean

import pyarrow as pa
from pydantic_core import to_json

from arena.export.chats import MESSAGES, Chats, Reply
from arena.export.selection import Row

PAIRS = pa.schema(
    [
        *((name, MESSAGES) for name in ("prompt", "chosen", "rejected")),
        *((name, pa.float64()) for name in ("chosen_return", "rejected_return")),
        *((name, pa.string()) for name in ("chosen_match", "rejected_match", "game", "seat", "role", "policy")),
        *((name, pa.int64()) for name in ("iteration", "version", "turn", "replies")),
    ]
)
TOLERANCE = 1e-9
"""Minimum difference of returns for a pair."""


def list_pairs(chats: Chats) -> Iterator[list[Row]]:
    """Yield preference pairs as rows with the columns of `PAIRS`, one list per iteration, at most one pair per prompt.

    A prompt yields no pair if its replies' returns differ by less than `TOLERANCE`.
    """
    for number, replies in chats.iterations():
        groups: dict[bytes, list[Reply]] = {}
        for reply in replies:
            if reply.turn["index"] >= reply.row.get("parent_turn", -1):
                groups.setdefault(_group_key(reply), []).append(reply)
        yield [pair for group in groups.values() if (pair := _make_pair(group, number))]


def _group_key(reply: Reply) -> bytes:
    """Return the hash by which replies are grouped: of game, seat, policy, version and prompt."""
    turn = reply.turn
    shared = [reply.row["game"], turn["seat"], turn["policy"], turn["version"], reply.prompt]
    return sha256(to_json(shared, inf_nan_mode="null")).digest()


def _make_pair(group: list[Reply], iteration: int) -> Row | None:
    by_text: dict[str, list[Reply]] = {}
    for reply in group:
        by_text.setdefault(reply.turn["raw"], []).append(reply)
    returns = {text: fmean(reply.return_to_go for reply in replies) for text, replies in by_text.items()}
    best, worst = max(returns, key=returns.__getitem__), min(returns, key=returns.__getitem__)
    if returns[best] - returns[worst] < TOLERANCE:
        return None
    row, turn, prompt, *_ = by_text[best][0]
    return {
        "prompt": prompt,
        "chosen": [{"role": "assistant", "content": best}],
        "rejected": [{"role": "assistant", "content": worst}],
        "chosen_return": returns[best], "rejected_return": returns[worst],
        "chosen_match": row["id"], "rejected_match": by_text[worst][0].row["id"], "replies": len(group),
        "iteration": iteration, "game": row["game"], "turn": turn["index"],
        **{name: turn[name] for name in ("seat", "role", "policy", "version")},
    }  # fmt: skip
