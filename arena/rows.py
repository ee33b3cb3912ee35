"""Parts of a match as rows of plain values, and back: its identity, messages, streams."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agents.player import Image, Message
from agents.stream import Stream
from games.contracts import MatchId


def identity_row(match: MatchId) -> dict[str, Any]:
    """A match's identity in the log's columns; what only a branch has only where it is one."""
    row = {"id": str(match), "iteration": match.iteration, "deal": match.deal, "attempt": match.attempt}
    return row | {"parent": str(match.parent), "parent_turn": match.turn} if match.parent else row


def identity_of(row: Mapping[str, Any]) -> MatchId:
    """The identity in a row's columns; ValueError where the printed id is another one."""
    parent = MatchId.parse(row["parent"]) if row.get("parent") else None
    turn = row["parent_turn"] if parent else None
    match = MatchId(row["iteration"], row["deal"], row["attempt"], parent, turn)
    if str(match) != row["id"]:
        raise ValueError(f"its id {str(row['id'])[:80]!r} is not that of {match}")
    return match


def message(given: Mapping[str, Any]) -> Message:
    """A message with what it has to have, and its images if it has any; ValueError for one that is none."""
    made = Message(sender=given["sender"], text=given["text"])
    if images := given.get("images"):
        made["images"] = [_image(one) for one in images]
    return made


def _image(given: Mapping[str, Any]) -> Image:
    if not _HASH.fullmatch(given["hash"]) or not _MEDIA.fullmatch(given["media"]):
        raise ValueError(f"an image is named by a SHA-256 and a type like image/png, not {str(given)[:120]}")
    if not (0 <= given["place"] < 2**31 and 0 < given["width"] < 2**31 and 0 < given["height"] < 2**31):
        raise ValueError(f"an image's place and size are numbers of pixels and characters, not {str(given)[:120]}")
    return Image(
        place=given["place"],
        hash=given["hash"],
        media=given["media"],
        width=given["width"],
        height=given["height"],
    )


_HASH, _MEDIA = re.compile(r"[0-9a-f]{64}"), re.compile(r"image/[a-z0-9.+-]{1,32}")


def stream_row(stream: Stream, seat: str) -> dict[str, list[Any]]:
    """A stream's lists, log-probabilities and entropies rounded to float32; ValueError for what no schema has room for.

    Entropies only where they were kept.
    """
    if not len(stream.ids) == len(stream.mask) == len(stream.logprobs) == len(stream.turns):
        raise ValueError(f"the lists of {seat}'s stream differ in length")
    logprobs = _float32(stream.logprobs, f"a log-probability in {seat}'s stream")
    if any(not 0 <= token < 2**31 for token in stream.ids):
        raise ValueError(f"a token id in {seat}'s stream is not one of 31 bits")
    row: dict[str, list[Any]] = {
        "ids": [int(token) for token in stream.ids],
        "mask": [bool(sampled) for sampled in stream.mask],
        "logprobs": logprobs,
        "turns": [int(turn) for turn in stream.turns],
    }
    if stream.entropy:
        row["entropy"] = _float32(stream.entropy, f"an entropy in {seat}'s stream")
    return row


def _float32(values: Sequence[float], what: str) -> list[float]:
    """The values rounded to float32; ValueError for one that is not finite."""
    with np.errstate(over="ignore"):
        rounded = np.asarray(values, dtype=np.float32)
    if not np.isfinite(rounded).all():
        raise ValueError(f"{what} is not finite")
    return rounded.tolist()  # type: ignore[no-any-return]
